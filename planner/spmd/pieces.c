/* planner/spmd/pieces.c - a repeated piece is solved once for each state in which it is entered.
 *
 * Place by place, all states of a place: at the seams of a repeat only they matter, and its copies are composed by (min,+).
 */
#include "planner/spmd/labels.h"

#include "core/base/arena.h"
#include "core/model/repeats.h"

#include <string.h>

static bool same_operators(const void *user, int32_t i, int32_t j)
{
    const struct spmd_states *s = user;
    const struct spmd_op *x = &s->p->ops[i], *y = &s->p->ops[j];
    if (x->class != y->class || x->n_inputs != y->n_inputs || x->n_outputs != y->n_outputs)
        return false;
    for (int32_t k = 0; k < x->n_inputs; k++) {
        int32_t t = x->input[k], u = y->input[k];
        const struct spmd_tensor *a = &s->p->tensors[t], *b = &s->p->tensors[u];
        if (a->kind != b->kind || a->of != b->of || a->wanted != b->wanted) return false;
        if (a->kind == SPMD_SHARED && t != u) return false;
        if (a->kind == SPMD_SOURCE) continue;
        if ((s->last_reader[t] == i) != (s->last_reader[u] == j)) return false;
        if (a->kind == SPMD_SHARED) continue;
        int32_t at = spmd_live_place(s, i, t), bt = spmd_live_place(s, j, u);
        if (s->live[i].n - at != s->live[j].n - bt) return false;
    }
    for (int32_t k = 0; k < x->n_outputs; k++) {
        int32_t t = x->output[k], u = y->output[k], a = s->last_reader[t], b = s->last_reader[u];
        if (s->p->tensors[t].of != s->p->tensors[u].of ||
            s->p->tensors[t].wanted != s->p->tensors[u].wanted)
            return false;
        if ((a < 0) != (b < 0) || (a == s->p->n_ops) != (b == s->p->n_ops)) return false;
        if (a >= 0 && a != s->p->n_ops && a - i != b - j) return false;
    }
    return s->live[i].n == s->live[j].n && s->live[i + 1].n == s->live[j + 1].n;
}

struct front { /* labels of one place */
    int32_t n, *label;
    size_t capacity;
};

static void add_front(struct search *q, struct front *f, int32_t label)
{
    f->label = arena_grow(q->a, f->label, (size_t)f->n, &f->capacity, sizeof *f->label);
    f->label[f->n++] = label;
}

static void drop_beaten(struct search *q, struct front *f)
{
    int32_t n = 0;
    for (int32_t k = 0; k < f->n; k++)
        if (!q->labels[f->label[k]].beaten) f->label[n++] = f->label[k];
    f->n = n;
}

/* Expands all states from one place to a later one. */
static void walk(struct search *q, struct front *f, int32_t to)
{
    while (f->n && q->labels[f->label[0]].place < to) {
        if (q->n_applied > q->most) f->n = 0;
        struct front next = {0};
        int32_t place = q->labels[f->label[0]].place;
        for (int32_t k = 0; k < f->n; k++)
            for (const int32_t *r = q->rules[place]; *r >= 0; r++) {
                int32_t id = spmd_extend(q, f->label[k], *r);
                if (id >= 0) add_front(q, &next, id);
            }
        drop_beaten(q, &next);
        *f = next;
    }
}

struct piece { /* transitions of one copy from its entry state */
    int32_t root;
    struct front exits;
};

/* The piece that begins at `first` for the entry state of label `from`; solved on first use. */
static struct piece *piece_of(struct search *q, struct piece **pieces, int32_t *n, size_t *capacity,
                              const struct repeat *r, int32_t run, int32_t from)
{
    int32_t live = spmd_live_at(q, r->first);
    const int32_t *state = q->states + q->labels[from].state;
    for (int32_t k = 0; k < *n; k++)
        if (!memcmp(q->states + q->labels[(*pieces)[k].root].state, state,
                    (size_t)live * sizeof *state))
            return &(*pieces)[k];
    *pieces = arena_grow(q->a, *pieces, (size_t)*n, capacity, sizeof **pieces);
    int32_t *copy = arena_copy(q->a, state, (size_t)(live + 1) * sizeof *state);
    struct piece *y = &(*pieces)[(*n)++];
    *y = (struct piece){.root = spmd_new_root(q, r->first, run + *n, copy)};
    add_front(q, &y->exits, y->root);
    walk(q, &y->exits, r->first + r->period);
    return y;
}

/* All copies of a repeat, with states at the seams only. */
static void compose(struct search *q, struct front *f, const struct repeat *r, int32_t *run)
{
    struct piece *pieces = NULL;
    int32_t n = 0, live = spmd_live_at(q, r->first);
    size_t capacity = 0;
    for (int32_t copy = 0; copy < r->copies; copy++) {
        struct front next = {0};
        for (int32_t k = 0; k < f->n; k++) {
            const struct piece *y = piece_of(q, &pieces, &n, &capacity, r, *run, f->label[k]);
            if (q->n_applied > q->most) {
                f->n = 0;
                return;
            }
            for (int32_t e = 0; e < y->exits.n; e++) {
                spmd_room(q);
                int32_t exit = y->exits.label[e], from = f->label[k];
                struct label *l = &q->labels[q->n_labels];
                *l = (struct label){.ns = q->labels[from].ns + q->labels[exit].ns,
                                    .place = r->first + (copy + 1) * r->period,
                                    .rule = -1,
                                    .parent = from,
                                    .via = exit,
                                    .state = q->n_states};
                int32_t *state = q->states + q->n_states;
                memcpy(state, q->states + q->labels[exit].state, (size_t)live * sizeof *state);
                int32_t id = spmd_settle_label(q, state);
                if (id >= 0) add_front(q, &next, id);
            }
        }
        drop_beaten(q, &next);
        *f = next;
    }
    *run += n;
}

/* All copies must have equal numbers of live tensors at entry and exit and lie inside the sequence. */
static bool composable(const struct search *q, const struct repeat *r)
{
    int32_t end = r->first + r->period * r->copies;
    if (end >= q->p->n_ops) return false; /* the last operator settles the outputs */
    for (int32_t c = 0; c <= r->copies; c++)
        if (spmd_live_at(q, r->first + c * r->period) != spmd_live_at(q, r->first)) return false;
    return true;
}

int32_t spmd_by_pieces(struct search *q, int32_t *n_pieces)
{
    struct repeat *list;
    struct repeats_of of = {.n = q->p->n_ops, .user = q->s, .same = same_operators};
    int32_t n = repeats_find(q->a, &of, &list), run = 0;
    struct front f = {0};
    bool any = false;
    for (int32_t k = 0; k < n; k++) {
        while (list[k].copies > 1 && !composable(q, &list[k])) list[k].copies--;
        any = any || list[k].copies > 1;
    }
    if (!any) return -1;
    add_front(q, &f, spmd_new_root(q, 0, 0, NULL));
    for (int32_t k = 0; k < n; k++) {
        struct repeat r = list[k];
        if (r.copies < 2) continue;
        walk(q, &f, r.first);
        compose(q, &f, &r, &run);
        *n_pieces += r.copies;
    }
    walk(q, &f, q->p->n_ops);
    if (q->n_applied > q->most) *n_pieces = 0;
    return f.n ? f.label[0] : -1;
}
