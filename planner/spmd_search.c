/* planner/spmd_search.c - labels, A*, and pieces composed.
 *
 * A label is a partial solution: operators before `place` have their rules. Labels of one place and state hang in one
 * chain of the table; without memory that counts a chain has one member. A label that was beaten after it was put into
 * the heap is dropped when it comes out.
 * Composition walks place by place instead: all states of a place are few, and at the seams of a repeat only they matter.
 */
#include "planner/spmd_search.h"

#include "core/arena.h"
#include "core/repeats.h"
#include "planner/spmd_state.h"

#include <string.h>

enum { LABELS_USUAL = 4000000 };

struct label {
    int64_t ns;
    int32_t place, rule;
    int32_t parent; /* -1: none */
    int32_t via;    /* >= 0: from parent to here as from the root of this label's chain to it */
    int32_t next;   /* in the chain of the table; -1 */
    int32_t run;    /* labels of different runs are different */
    bool beaten;
    size_t state; /* into states, live[place].n numbers */
};

struct search {
    struct arena *a;
    const struct spmd_problem *p;
    struct spmd_states *s;
    int64_t *least_ns; /* (n_ops + 1) that must follow */
    int64_t *least_bytes,
        *most_bytes; /* (n_ops + 1, n_columns) that must, and can, follow; NULL: memory does not count */
    struct label *labels;
    int32_t n_labels;
    size_t label_capacity;
    int32_t *states;
    size_t n_states, state_capacity;
    int64_t *bytes; /* (labels, n_columns) */
    size_t byte_capacity;
    int32_t *table;
    size_t n_table;
    int32_t *heap;
    size_t n_heap, heap_capacity;
    int64_t n_applied, most;
};

/* --- labels --- */

static uint64_t hash_state(int32_t place, int32_t run, const int32_t *state, int32_t n)
{
    uint64_t h = ((uint64_t)(uint32_t)place << 32 | (uint32_t)run) * UINT64_C(0x9E3779B97F4A7C15);
    for (int32_t k = 0; k < n; k++) {
        h = (h ^ (uint64_t)(uint32_t)state[k]) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    return h;
}

static int32_t live_at(const struct search *q, int32_t place)
{
    return place == q->p->n_ops ? 0 : q->s->live[place].n;
}

static size_t bucket_of(const struct search *q, int32_t place, int32_t run, const int32_t *state)
{
    int32_t n = live_at(q, place);
    for (size_t at = (size_t)hash_state(place, run, state, n);; at++) {
        int32_t id = q->table[at & (q->n_table - 1)] - 1;
        if (id < 0) return at & (q->n_table - 1);
        const struct label *l = &q->labels[id];
        if (l->place == place && l->run == run &&
            !memcmp(q->states + l->state, state, (size_t)n * sizeof *state))
            return at & (q->n_table - 1);
    }
}

static void grow_table(struct search *q)
{
    int32_t *old = q->table;
    size_t n = q->n_table;
    q->n_table *= 4;
    q->table = ARENA_ARRAY(q->a, int32_t, q->n_table);
    for (size_t i = 0; i < n; i++) {
        if (!old[i]) continue;
        const struct label *l = &q->labels[old[i] - 1];
        q->table[bucket_of(q, l->place, l->run, q->states + l->state)] = old[i];
    }
}

/* Is x at least as good as y? */
static bool beats(const struct search *q, int32_t x, int32_t y)
{
    int32_t n = q->p->n_columns;
    if (q->labels[x].ns > q->labels[y].ns) return false;
    for (int32_t c = 0; q->least_bytes && c < n; c++)
        if (q->bytes[(int64_t)x * n + c] > q->bytes[(int64_t)y * n + c]) return false;
    return true;
}

/* Takes the label that stands last in the list into the table, or takes it away. */
static int32_t settle_label(struct search *q, const int32_t *state)
{
    int32_t id = q->n_labels;
    struct label *l = &q->labels[id];
    size_t at = bucket_of(q, l->place, l->run, state);
    int32_t *link = &q->table[at], first = *link - 1;
    for (int32_t k = first; k >= 0; k = q->labels[k].next)
        if (!q->labels[k].beaten && beats(q, k, id)) return -1;
    for (int32_t k = first; k >= 0; k = q->labels[k].next)
        if (!q->labels[k].beaten && beats(q, id, k)) q->labels[k].beaten = true;
    while (first >= 0 && q->labels[first].beaten) first = q->labels[first].next;
    l->next = first;
    *link = id + 1;
    q->n_states += (size_t)live_at(q, l->place);
    if (2 * (size_t)++q->n_labels > q->n_table) grow_table(q);
    return id;
}

static void room(struct search *q)
{
    size_t n = (size_t)q->n_labels, c = (size_t)q->p->n_columns;
    q->labels = arena_grow(q->a, q->labels, n, &q->label_capacity, sizeof *q->labels);
    while (q->n_states + SPMD_LIVE_MAX > q->state_capacity)
        q->states =
            arena_grow(q->a, q->states, q->state_capacity, &q->state_capacity, sizeof *q->states);
    while (q->least_bytes && (n + 1) * c > q->byte_capacity)
        q->bytes =
            arena_grow(q->a, q->bytes, q->byte_capacity, &q->byte_capacity, sizeof *q->bytes);
}

/* Members that cannot run out any more count as 0. false: one has. */
static bool bound_bytes(const struct search *q, int32_t place, int64_t *bytes)
{
    int32_t n = q->p->n_columns;
    for (int32_t c = 0; c < n; c++) {
        int64_t now = bytes[c];
        if (now + q->least_bytes[(int64_t)place * n + c] > q->p->cap[c]) return false;
        if (now + q->most_bytes[(int64_t)place * n + c] <= q->p->cap[c]) bytes[c] = 0;
    }
    return true;
}

/* One more operator. -1: no way, or no better than what is there. */
static int32_t extend(struct search *q, int32_t from, int32_t rule)
{
    room(q);
    int32_t n = q->p->n_columns, place = q->labels[from].place, id = q->n_labels;
    struct label *l = &q->labels[id];
    int64_t *bytes = NULL;
    *l = q->labels[from];
    l->place = place + 1, l->rule = rule, l->parent = from, l->via = -1, l->beaten = false;
    l->state = q->n_states;
    if (q->least_bytes) {
        bytes = q->bytes + (int64_t)id * n;
        memcpy(bytes, q->bytes + (int64_t)from * n, (size_t)n * sizeof *bytes);
    }
    q->n_applied++;
    const int32_t *in = q->states + q->labels[from].state;
    int32_t *out = q->states + l->state;
    if (!spmd_apply(q->s, place, &q->p->ops[place].rules[rule], in, out, &l->ns, bytes)) return -1;
    if (bytes && !bound_bytes(q, place + 1, bytes)) return -1;
    return settle_label(q, out);
}

static int32_t new_root(struct search *q, int32_t place, int32_t run, const int32_t *state)
{
    room(q);
    int32_t n = live_at(q, place), id = q->n_labels;
    q->labels[id] = (struct label){
        .place = place, .rule = -1, .parent = -1, .via = -1, .run = run, .state = q->n_states};
    if (n) memcpy(q->states + q->n_states, state, (size_t)n * sizeof *state);
    if (q->least_bytes)
        memset(q->bytes + (int64_t)id * q->p->n_columns, 0,
               (size_t)q->p->n_columns * sizeof *q->bytes);
    return settle_label(q, q->states + q->labels[id].state);
}

/* The rules from a label back to the root of its chain, `shift` places later than they stand. */
static void read_rules(const struct search *q, int32_t label, int32_t shift, int32_t *rule)
{
    for (const struct label *l = &q->labels[label]; l->parent >= 0; l = &q->labels[l->parent]) {
        if (l->via >= 0)
            read_rules(q, l->via, shift + l->place - q->labels[l->via].place, rule);
        else
            rule[shift + l->place - 1] = l->rule;
    }
}

/* --- A* --- */

static bool sooner(const struct search *q, int32_t x, int32_t y)
{
    const struct label *a = &q->labels[x], *b = &q->labels[y];
    int64_t fa = a->ns + q->least_ns[a->place], fb = b->ns + q->least_ns[b->place];
    if (fa != fb) return fa < fb;
    if (a->place != b->place) return a->place > b->place;
    return x < y;
}

static void heap_push(struct search *q, int32_t label)
{
    q->heap = arena_grow(q->a, q->heap, q->n_heap, &q->heap_capacity, sizeof *q->heap);
    size_t at = q->n_heap++;
    for (; at && sooner(q, label, q->heap[(at - 1) / 2]); at = (at - 1) / 2)
        q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = label;
}

static int32_t heap_pop(struct search *q)
{
    int32_t top = q->heap[0], last = q->heap[--q->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= q->n_heap) break;
        if (child + 1 < q->n_heap && sooner(q, q->heap[child + 1], q->heap[child])) child++;
        if (!sooner(q, q->heap[child], last)) break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = last;
    return top;
}

static enum status a_star(struct search *q, int32_t *goal, struct error *err)
{
    *goal = -1;
    int32_t root = new_root(q, 0, 0, NULL);
    if (q->least_bytes && !bound_bytes(q, 0, q->bytes)) return OK;
    heap_push(q, root);
    while (q->n_heap) {
        int32_t at = heap_pop(q);
        if (q->labels[at].beaten) continue;
        int32_t place = q->labels[at].place;
        if (place == q->p->n_ops) return *goal = at, OK;
        for (int32_t r = 0; r < q->p->ops[place].n_rules; r++) {
            int32_t next = extend(q, at, r);
            if (next >= 0) heap_push(q, next);
        }
        if (q->n_labels > q->most)
            return error_set(
                err, ERR_INPUT,
                "sharing %d operators: more than %lld partial solutions; memory is too "
                "short for a choice to be proved",
                q->p->n_ops, (long long)q->most);
    }
    return OK;
}

/* --- bounds --- */

static void least_and_most(const struct spmd_problem *p, int32_t op, int32_t c, int64_t *least,
                           int64_t *most)
{
    const struct spmd_op *o = &p->ops[op];
    *least = INT64_MAX, *most = 0;
    for (int32_t r = 0; r < o->n_rules; r++) {
        int64_t fixed = o->rules[r].bytes ? o->rules[r].bytes[c] : 0, kept = 0, more = 0;
        for (int32_t k = 0; k < o->n_outputs; k++) {
            const struct spmd_tensor_class *of = p->tensors[o->output[k]].of;
            const int64_t *b = of && of->bytes ? of->bytes[o->rules[r].give[k]] : NULL;
            if (b && (o->keeps_output >> k & 1)) kept += b[c];
        }
        for (int32_t k = 0; k < o->n_inputs;
             k++) { /* may be there already: of what must, nothing */
            const struct spmd_tensor *t = &p->tensors[o->input[k]];
            if (t->kind == SPMD_SOURCE) continue;
            if (t->kind == SPMD_SHARED) {
                more = INT64_MAX / 4; /* known at the end only */
                continue;
            }
            const int64_t *b = t->of->bytes ? t->of->bytes[o->rules[r].need[k]] : NULL;
            if (b && (o->keeps_input >> k & 1)) more += b[c];
        }
        if (fixed + kept < *least) *least = fixed + kept;
        if (fixed + kept + more > *most) *most = fixed + kept + more;
    }
    if (!o->n_rules) *least = 0;
}

static void find_bounds(struct search *q, bool memory)
{
    const struct spmd_problem *p = q->p;
    int32_t n = p->n_ops, c = p->n_columns;
    q->least_ns = ARENA_ARRAY(q->a, int64_t, (size_t)n + 1);
    if (memory) {
        q->least_bytes = ARENA_ARRAY(q->a, int64_t, (size_t)(n + 1) * (size_t)c);
        q->most_bytes = ARENA_ARRAY(q->a, int64_t, (size_t)(n + 1) * (size_t)c);
    }
    for (int32_t i = n - 1; i >= 0; i--) {
        int64_t least = INT64_MAX;
        for (int32_t r = 0; r < p->ops[i].n_rules; r++)
            if (p->ops[i].rules[r].ns < least) least = p->ops[i].rules[r].ns;
        q->least_ns[i] = q->least_ns[i + 1] + (p->ops[i].n_rules ? least : 0);
        for (int32_t k = 0; memory && k < c; k++) {
            int64_t low, high, at = (int64_t)i * c + k, behind = at + c;
            least_and_most(p, i, k, &low, &high);
            q->least_bytes[at] = q->least_bytes[behind] + low;
            q->most_bytes[at] = q->most_bytes[behind] + high;
            if (q->most_bytes[at] > INT64_MAX / 4) q->most_bytes[at] = INT64_MAX / 4;
        }
    }
}

/* --- pieces --- */

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

/* From one place to a later one, all states of every place between. */
static void walk(struct search *q, struct front *f, int32_t to)
{
    while (f->n && q->labels[f->label[0]].place < to) {
        struct front next = {0};
        int32_t place = q->labels[f->label[0]].place;
        for (int32_t k = 0; k < f->n; k++)
            for (int32_t r = 0; r < q->p->ops[place].n_rules; r++) {
                int32_t id = extend(q, f->label[k], r);
                if (id >= 0) add_front(q, &next, id);
            }
        drop_beaten(q, &next);
        *f = next;
    }
}

struct piece { /* what one copy makes of the state in which it is entered */
    int32_t root;
    struct front exits;
};

/* The piece that begins at `first` for the state of label `from`; solved when it is first asked for. */
static struct piece *piece_of(struct search *q, struct piece **pieces, int32_t *n, size_t *capacity,
                              const struct repeat *r, int32_t run, int32_t from)
{
    int32_t live = live_at(q, r->first);
    const int32_t *state = q->states + q->labels[from].state;
    for (int32_t k = 0; k < *n; k++)
        if (!memcmp(q->states + q->labels[(*pieces)[k].root].state, state,
                    (size_t)live * sizeof *state))
            return &(*pieces)[k];
    *pieces = arena_grow(q->a, *pieces, (size_t)*n, capacity, sizeof **pieces);
    int32_t *copy = arena_copy(q->a, state, (size_t)(live + 1) * sizeof *state);
    struct piece *y = &(*pieces)[(*n)++];
    *y = (struct piece){.root = new_root(q, r->first, run + *n, copy)};
    add_front(q, &y->exits, y->root);
    walk(q, &y->exits, r->first + r->period);
    return y;
}

/* All copies of a repeat: states at seams alone. */
static void compose(struct search *q, struct front *f, const struct repeat *r, int32_t *run)
{
    struct piece *pieces = NULL;
    int32_t n = 0, live = live_at(q, r->first);
    size_t capacity = 0;
    for (int32_t copy = 0; copy < r->copies; copy++) {
        struct front next = {0};
        for (int32_t k = 0; k < f->n; k++) {
            const struct piece *y = piece_of(q, &pieces, &n, &capacity, r, *run, f->label[k]);
            for (int32_t e = 0; e < y->exits.n; e++) {
                room(q);
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
                int32_t id = settle_label(q, state);
                if (id >= 0) add_front(q, &next, id);
            }
        }
        drop_beaten(q, &next);
        *f = next;
    }
    *run += n;
}

/* A copy must be entered and left with as many live tensors as the others, all between places inside the sequence. */
static bool composable(const struct search *q, const struct repeat *r)
{
    int32_t end = r->first + r->period * r->copies;
    if (end >= q->p->n_ops) return false; /* the last operator settles what leaves */
    for (int32_t c = 0; c <= r->copies; c++)
        if (live_at(q, r->first + c * r->period) != live_at(q, r->first)) return false;
    return true;
}

static int32_t by_pieces(struct search *q, int32_t *n_pieces)
{
    struct repeat *list;
    struct repeats_of of = {.n = q->p->n_ops, .user = q->s, .same = same_operators};
    int32_t n = repeats_find(q->a, &of, &list), run = 0;
    struct front f = {0};
    add_front(q, &f, new_root(q, 0, 0, NULL));
    for (int32_t k = 0; k < n; k++) {
        struct repeat r = list[k];
        while (r.copies > 1 && !composable(q, &r)) r.copies--;
        if (r.copies < 2) continue;
        walk(q, &f, r.first);
        compose(q, &f, &r, &run);
        *n_pieces += r.copies;
    }
    walk(q, &f, q->p->n_ops);
    return f.n ? f.label[0] : -1;
}

/* --- the door --- */

static struct search *search_new(struct arena *a, const struct spmd_problem *p,
                                 const struct spmd_limits *l, bool memory)
{
    struct search *q = ARENA_ARRAY(a, struct search, 1);
    *q = (struct search){.a = a, .p = p, .s = spmd_states_new(a, p), .n_table = 4096};
    q->most = l && l->most_labels ? l->most_labels : LABELS_USUAL;
    q->table = ARENA_ARRAY(a, int32_t, q->n_table);
    find_bounds(q, memory);
    return q;
}

static bool fits(const struct spmd_problem *p, const int64_t *bytes)
{
    for (int32_t c = 0; c < p->n_columns; c++)
        if (bytes[c] > p->cap[c]) return false;
    return true;
}

static void answer(struct arena *a, struct search *q, int32_t goal, struct spmd_found *out)
{
    out->n_labels += q->n_applied;
    out->ns = INT64_MAX;
    if (goal < 0) return;
    out->rule = ARENA_ARRAY(a, int32_t, (size_t)q->p->n_ops);
    out->bytes = ARENA_ARRAY(a, int64_t, (size_t)q->p->n_columns);
    read_rules(q, goal, 0, out->rule);
    out->ns = spmd_cost(q->a, q->p, out->rule, out->bytes);
    if (out->ns != q->labels[goal].ns) BUG("a chain of rules costs another sum than its label");
}

enum status spmd_search(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                        struct spmd_found *out, struct error *err)
{
    struct arena *scratch = arena_new();
    int32_t goal = -1;
    enum status st = OK;
    *out = (struct spmd_found){.ns = INT64_MAX};
    struct search *q = search_new(scratch, p, l, false);
    if (l && l->by_pieces)
        goal = by_pieces(q, &out->n_pieces);
    else
        st = a_star(q, &goal, err);
    if (st == OK) answer(a, q, goal, out);
    if (st == OK && out->ns != INT64_MAX && !fits(p, out->bytes)) {
        q = search_new(scratch, p, l, true);
        out->n_pieces = 0;
        st = a_star(q, &goal, err);
        if (st == OK) answer(a, q, goal, out);
    }
    arena_free(scratch);
    return st;
}

/* --- what a choice costs --- */

static int64_t play(struct spmd_states *s, const int32_t *rule, int64_t *bytes)
{
    const struct spmd_problem *p = s->p;
    int32_t state[2][SPMD_LIVE_MAX];
    int64_t ns = 0;
    for (int32_t i = 0; i < p->n_ops; i++) {
        if (s->listen) {
            s->events =
                arena_grow(s->a, s->events, s->n_events, &s->event_capacity, sizeof *s->events);
            s->events[s->n_events++] = (struct spmd_event){.op = i, .tensor = -1};
        }
        if (!spmd_apply(s, i, &p->ops[i].rules[rule[i]], state[i % 2], state[(i + 1) % 2], &ns,
                        bytes))
            return INT64_MAX;
    }
    return ns;
}

int64_t spmd_cost(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                  int64_t *bytes)
{
    if (bytes) memset(bytes, 0, (size_t)p->n_columns * sizeof *bytes);
    return play(spmd_states_new(a, p), rule, bytes);
}

int32_t spmd_events(struct arena *a, const struct spmd_problem *p, const int32_t *rule,
                    struct spmd_event **out)
{
    struct spmd_states *s = spmd_states_new(a, p);
    s->listen = true;
    if (play(s, rule, NULL) == INT64_MAX) return 0;
    *out = s->events;
    return (int32_t)s->n_events;
}
