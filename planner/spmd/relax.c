/* planner/spmd/relax.c - the tables of the relaxation, filled from the last operator to the first.
 *
 * A state is a mixed-radix number: one digit for each live tensor, its placement. A rule at an operator is a cost and a step of that number, both
 * sums over digits, so filling a table takes O(states · rules · live tensors). Tensors with the most placements lose their digit until all tables
 * are within the limit of work.
 */
#include "planner/spmd/relax.h"

#include "core/base/arena.h"
#include "core/base/stop.h"

#include <string.h>

/* States · rules of the tables that take the time of a label (400 ns): 7.7 ns each (2026-11-27). All places have as much work as the labels
 * of a search. */
enum { LABEL_ENTRIES = 50 };
static const int64_t most_work = (int64_t)LABEL_ENTRIES * SPMD_LABELS;

struct from { /* a tensor of one class, made in one placement; each (n_placements) */
    int64_t *forward;
    int64_t (*back)[4]; /* by the axes over which the reader's gradient is partial */
};
struct known { /* a class of tensors */
    const struct spmd_tensor_class *class;
    bool wanted;
    struct from **made; /* (n_placements) */
};
struct seen {                 /* a tensor */
    int32_t n_readers, radix; /* radix 1: dropped, without a digit */
    bool forgotten, maker_keeps;
    int32_t *value; /* (radix) placement */
    uint8_t *partial; /* (radix) of a shared parameter */
    int16_t *digit; /* (n_placements) */
    const struct from **from;
};
struct place {
    int32_t n, size;
    int32_t *stride; /* (n live) 0: no digit */
    int64_t *least;
};

struct spmd_relax {
    struct arena *a;
    struct spmd_states *s;
    const struct spmd_problem *p;
    const int32_t *const *rules;
    const double *price;
    struct known *known;
    int32_t n_known;
    size_t known_capacity;
    struct seen *seen; /* (n_tensors) */
    struct place *places;
};

int64_t spmd_relax_priced(const struct spmd_problem *p, const double *price, const int64_t *bytes)
{
    double sum = 0;
    for (int32_t c = 0; c < p->n_columns; c++) sum += price[c] * (double)bytes[c];
    return (int64_t)sum;
}

/* --- one reader alone --- */

static int64_t sums_of(const struct spmd_tensor_class *of, int32_t placement, int32_t partial)
{
    return (partial & 1 ? of->sum_ns[placement][0] : 0) + (partial & 2 ? of->sum_ns[placement][1] : 0);
}

/* Least backward cost of a step, with the all-reduce that remains for its source. */
static void back_over(const struct spmd_tensor_class *of, const struct spmd_step *s, int32_t source,
                      bool root, int64_t *back)
{
    for (int32_t m = 0; m < 4; m++) {
        int64_t ns = sums_of(of, s->after, m) + s->back_ns;
        if (s->gather) {
            ns = m >> s->axis & 1 ? s->back_partial_ns : s->back_ns;
            if (root) ns += sums_of(of, source, m & ~(1 << s->axis));
        }
        if (ns < back[m]) back[m] = ns;
    }
}

/* Shortest paths over all steps from the initial placement, because a version may arise on any of them. */
static struct from *find_from(struct spmd_relax *x, const struct spmd_tensor_class *of, bool wanted,
                              int32_t made)
{
    int32_t n = x->p->n_placements;
    struct from *f = ARENA_ARRAY(x->a, struct from, 1);
    f->forward = ARENA_ARRAY(x->a, int64_t, (size_t)n);
    f->back = arena_alloc(x->a, (size_t)n, sizeof *f->back);
    for (int32_t p = 0; p < n; p++) {
        f->forward[p] = p == made ? 0 : SPMD_NEVER;
        for (int32_t m = 0; m < 4; m++) f->back[p][m] = p == made ? sums_of(of, p, m) : SPMD_NEVER;
    }
    for (bool again = true; again;) {
        again = false;
        for (int32_t to = 0; to < n; to++) {
            const struct spmd_reshard *w = of->reshard[(int64_t)made * n + to];
            for (int32_t k = 0; w && to != made && k < w->n; k++) {
                const struct spmd_step *s = &w->step[k];
                int32_t source = k ? w->step[k - 1].after : made;
                back_over(of, s, source, source == made, f->back[s->after]);
                if (f->forward[source] + s->forward_ns >= f->forward[s->after]) continue;
                f->forward[s->after] = f->forward[source] + s->forward_ns;
                again = true;
            }
        }
    }
    for (int32_t p = 0; p < n; p++)
        for (int32_t m = 0; m < 4; m++)
            if (!wanted || f->back[p][m] == SPMD_NEVER) f->back[p][m] = 0;
    return f;
}

static const struct from *from_of(struct spmd_relax *x, const struct spmd_tensor *t, int32_t made)
{
    struct known *k = x->known, *end = x->known + x->n_known;
    while (k < end && (k->class != t->of || k->wanted != t->wanted)) k++;
    if (k == end) {
        x->known = arena_grow(x->a, x->known, (size_t)x->n_known, &x->known_capacity, sizeof *k);
        k = &x->known[x->n_known++];
        *k = (struct known){.class = t->of, .wanted = t->wanted};
        k->made = ARENA_ARRAY(x->a, struct from *, (size_t)x->p->n_placements);
    }
    if (!k->made[made]) k->made[made] = find_from(x, t->of, t->wanted, made);
    return k->made[made];
}

static int64_t priced(const struct spmd_relax *x, const struct spmd_tensor_class *of,
                      int32_t placement)
{
    const int64_t *bytes = of->bytes ? of->bytes[placement] : NULL;
    return x->price && bytes ? spmd_relax_priced(x->p, x->price, bytes) : 0;
}

/* Cost of input k of an operator by a rule as the only reader, for each initial placement (digit). */
static int64_t reading(const struct spmd_relax *x, const struct spmd_op *op,
                       const struct spmd_rule *r, int32_t k, int32_t digit)
{
    const struct spmd_tensor *t = &x->p->tensors[op->input[k]];
    const struct seen *y = &x->seen[op->input[k]];
    const struct from *f = y->from[digit];
    int32_t need = r->need[k];
    int64_t ns = f->forward[need];
    if (ns >= SPMD_NEVER) return SPMD_NEVER;
    if (!(op->silent >> k & 1)) ns += f->back[need][r->partial[k] & 3];
    if ((op->keeps_input >> k & 1) && !(y->maker_keeps && need == y->value[digit]))
        ns += priced(x, t->of, need);
    return ns / y->n_readers;
}

/* --- digits --- */

static void find_made(struct spmd_relax *x, int32_t op)
{
    const struct spmd_op *o = &x->p->ops[op];
    size_t n = (size_t)x->p->n_placements;
    for (int32_t k = 0; k < o->n_outputs; k++) {
        struct seen *y = &x->seen[o->output[k]];
        const struct spmd_tensor *t = &x->p->tensors[o->output[k]];
        y->digit = ARENA_ARRAY(x->a, int16_t, n);
        memset(y->digit, 0xff, n * sizeof *y->digit);
        y->value = ARENA_ARRAY(x->a, int32_t, (size_t)o->n_rules);
        y->from = ARENA_ARRAY(x->a, const struct from *, (size_t)o->n_rules);
        y->maker_keeps = o->keeps_output >> k & 1;
        for (const int32_t *r = x->rules[op]; *r >= 0; r++) {
            int32_t give = o->rules[*r].give[k];
            if (y->digit[give] >= 0) continue;
            y->digit[give] = (int16_t)y->radix;
            y->from[y->radix] = y->n_readers && t->of ? from_of(x, t, give) : NULL;
            y->value[y->radix++] = give;
        }
    }
}

static int32_t home_digit(const struct seen *y, int32_t home, uint8_t partial)
{
    int32_t d = 0;
    while (d < y->radix && (y->value[d] != home || y->partial[d] != partial)) d++;
    return d;
}

enum { HOMES_MAX = 64 };

/* All homes possible after the readers so far. */
static void find_homes(struct spmd_relax *x, int32_t op, int32_t k)
{
    const struct spmd_op *o = &x->p->ops[op];
    struct seen *y = &x->seen[o->input[k]];
    const struct spmd_tensor *t = &x->p->tensors[o->input[k]];
    if (!y->value) {
        y->value = ARENA_ARRAY(x->a, int32_t, HOMES_MAX);
        y->partial = ARENA_ARRAY(x->a, uint8_t, HOMES_MAX);
    }
    int32_t before = y->radix;
    for (int32_t d = -1; d < before; d++)
        for (const int32_t *r = x->rules[op]; *r >= 0 && !y->forgotten; r++) {
            int32_t home = d < 0 ? -1 : y->value[d];
            uint8_t partial = d < 0 ? 0 : y->partial[d];
            t->join(x->p->user, &home, &partial, o->rules[*r].need[k], o->rules[*r].partial[k]);
            int32_t at = home_digit(y, home, partial);
            if (at < y->radix) continue;
            if (y->radix == HOMES_MAX) y->forgotten = true;
            if (y->forgotten) break;
            y->value[at] = home, y->partial[at] = partial, y->radix++;
        }
}

static void find_digits(struct spmd_relax *x)
{
    const struct spmd_problem *p = x->p;
    for (int32_t i = 0; i < p->n_ops; i++)
        for (int32_t k = 0; k < p->ops[i].n_inputs; k++) x->seen[p->ops[i].input[k]].n_readers++;
    for (int32_t i = 0; i < p->n_ops; i++) {
        find_made(x, i);
        for (int32_t k = 0; k < p->ops[i].n_inputs; k++)
            if (p->tensors[p->ops[i].input[k]].kind == SPMD_SHARED) find_homes(x, i, k);
    }
}

static int32_t rules_at(const struct spmd_relax *x, int32_t place)
{
    int32_t n = 1;
    for (const int32_t *r = place < x->p->n_ops ? x->rules[place] : NULL; r && *r >= 0; r++) n++;
    return n;
}

/* Drops the tensor with most placements until the table is small enough; returns the cost of filling it. */
static int64_t fit_place(struct spmd_relax *x, int32_t place, int64_t most)
{
    const struct spmd_live *l = &x->s->live[place];
    for (;;) {
        int64_t work = rules_at(x, place);
        int32_t widest = -1;
        for (int32_t k = 0; k < l->n; k++) {
            const struct seen *y = &x->seen[l->tensor[k]];
            if (y->forgotten || y->radix < 2) continue;
            if (work <= most) work *= y->radix;
            if (widest < 0 || y->radix >= x->seen[l->tensor[widest]].radix) widest = k;
        }
        if (widest < 0 || work <= most) return work;
        x->seen[l->tensor[widest]].forgotten = true;
    }
}

static void fit_places(struct spmd_relax *x)
{
    const struct spmd_states *s = x->s;
    int64_t most = most_work, all;
    for (int32_t i = 0; i < x->p->n_ops; i++) /* unreachable states have no value */
        for (int32_t k = 0; s->live[i].n > SPMD_LIVE_MAX && k < s->live[i].n; k++)
            x->seen[s->live[i].tensor[k]].forgotten = true;
    do {
        all = 0;
        for (int32_t i = 0; i < x->p->n_ops; i++) all += fit_place(x, i, most);
        most /= 2;
    } while (all > most_work && most > 1);
}

static void make_place(struct spmd_relax *x, int32_t place)
{
    const struct spmd_live *l = &x->s->live[place];
    struct place *y = &x->places[place];
    *y = (struct place){.n = place == x->p->n_ops ? 0 : l->n, .size = 1};
    y->stride = ARENA_ARRAY(x->a, int32_t, (size_t)l->n + 1);
    for (int32_t k = 0; k < y->n; k++) {
        const struct seen *t = &x->seen[l->tensor[k]];
        if (t->forgotten || t->radix < 2) continue;
        y->stride[k] = y->size;
        y->size *= t->radix;
    }
    y->least = ARENA_ARRAY(x->a, int64_t, (size_t)y->size);
}

/* --- tables --- */

struct move { /* one rule at one place: cost and transition by digits of the live tensors */
    int64_t ns;
    int32_t next;
    int64_t *cost[SPMD_LIVE_MAX]; /* NULL: 0 */
    int32_t *step[SPMD_LIVE_MAX]; /* NULL: unchanged digit */
};

static int32_t radix_of(const struct spmd_relax *x, int32_t tensor)
{
    const struct seen *y = &x->seen[tensor];
    return y->forgotten || y->radix < 1 ? 1 : y->radix;
}

static void add_cost(struct spmd_relax *x, struct arena *a, struct move *m, int32_t at,
                     const struct spmd_op *op, const struct spmd_rule *r, int32_t k)
{
    const struct seen *y = &x->seen[op->input[k]];
    int32_t n = radix_of(x, op->input[k]);
    if (!m->cost[at]) m->cost[at] = ARENA_ARRAY(a, int64_t, (size_t)n);
    int64_t least = SPMD_NEVER;
    for (int32_t d = 0; d < y->radix; d++) {
        int64_t ns = reading(x, op, r, k, d);
        if (ns < least) least = ns;
        if (n > 1) m->cost[at][d] += ns;
    }
    if (n == 1) m->cost[at][0] += least;
}

/* A shared parameter: its next home, and the home's cost after its last reader. */
static void add_home(struct spmd_relax *x, struct arena *a, struct move *m, int32_t place,
                     int32_t op, int32_t k, const struct spmd_rule *r)
{
    const struct spmd_problem *p = x->p;
    int32_t tensor = p->ops[op].input[k], now = spmd_live_place(x->s, op, tensor);
    int32_t behind = spmd_live_place(x->s, op + 1, tensor);
    const struct seen *y = &x->seen[tensor];
    const struct spmd_tensor *t = &p->tensors[tensor];
    bool last = x->s->last_reader[tensor] == op;
    if (y->forgotten) return;
    for (int32_t d = now < 0 ? -1 : 0; d < (now < 0 ? 0 : y->radix); d++) {
        int32_t home = d < 0 ? -1 : y->value[d];
        uint8_t partial = d < 0 ? 0 : y->partial[d];
        for (int32_t j = 0; j < p->ops[op].n_inputs; j++)
            if (p->ops[op].input[j] == tensor)
                t->join(p->user, &home, &partial, r->need[j], r->partial[j]);
        int64_t ns = 0;
        const int64_t *bytes = NULL;
        if (last) ns = t->home_ns(p->user, tensor, home, partial, &bytes);
        if (last && bytes && x->price) ns += spmd_relax_priced(p, x->price, bytes);
        int32_t to = home_digit(y, home, partial);
        if (to == y->radix) to = 0, ns = SPMD_NEVER; /* unreachable */
        int32_t step = last || behind < 0 ? 0 : to * x->places[place + 1].stride[behind];
        if (d < 0) {
            m->ns += ns, m->next += step;
            continue;
        }
        if (!m->cost[now]) m->cost[now] = ARENA_ARRAY(a, int64_t, (size_t)y->radix);
        if (!m->step[now]) m->step[now] = ARENA_ARRAY(a, int32_t, (size_t)y->radix);
        m->cost[now][d] = ns, m->step[now][d] = step;
    }
}

static void make_move(struct spmd_relax *x, struct arena *a, int32_t op, const struct spmd_rule *r,
                      struct move *m)
{
    const struct spmd_op *o = &x->p->ops[op];
    const struct spmd_live *after = &x->s->live[op + 1];
    *m = (struct move){.ns = r->ns};
    if (x->price && r->bytes) m->ns += spmd_relax_priced(x->p, x->price, r->bytes);
    for (int32_t k = 0; k < o->n_outputs; k++)
        if (o->keeps_output >> k & 1)
            m->ns += priced(x, x->p->tensors[o->output[k]].of, r->give[k]);
    for (int32_t k = 0; k < x->places[op + 1].n; k++) {
        int32_t from = after->from[k];
        if (from >= 0 || from < -OP_OPERANDS_MAX || !x->places[op + 1].stride[k]) continue;
        m->next +=
            x->places[op + 1].stride[k] * x->seen[after->tensor[k]].digit[r->give[-1 - from]];
    }
    for (int32_t k = 0; k < o->n_inputs; k++) {
        const struct spmd_tensor *t = &x->p->tensors[o->input[k]];
        bool again = false;
        for (int32_t j = 0; j < k; j++) again = again || o->input[j] == o->input[k];
        if (t->kind == SPMD_SHARED && !again) add_home(x, a, m, op, op, k, r);
        if (t->kind == SPMD_MADE)
            add_cost(x, a, m, spmd_live_place(x->s, op, o->input[k]), o, r, k);
    }
}

/* Strides of the tensors that stay live: (live before). */
static void staying(const struct spmd_relax *x, int32_t op, int32_t *stride)
{
    const struct spmd_live *after = &x->s->live[op + 1];
    memset(stride, 0, (size_t)x->places[op].n * sizeof *stride);
    for (int32_t k = 0; k < x->places[op + 1].n; k++)
        if (after->from[k] >= 0) stride[after->from[k]] = x->places[op + 1].stride[k];
}

static int64_t best_move(const struct move *moves, int32_t n, const int32_t *digit,
                         const int32_t *list, int32_t n_list, int32_t base, const int64_t *next)
{
    int64_t best = SPMD_NEVER;
    for (int32_t r = 0; r < n; r++) {
        const struct move *m = &moves[r];
        int64_t ns = m->ns;
        int32_t to = base + m->next;
        for (int32_t i = 0; i < n_list; i++) {
            int32_t k = list[i];
            if (m->cost[k]) ns += m->cost[k][digit[k]];
            if (m->step[k]) to += m->step[k][digit[k]];
        }
        if (ns < best && ns + next[to] < best) best = ns + next[to];
    }
    return best;
}

static void fill_place(struct spmd_relax *x, struct arena *a, int32_t op)
{
    struct place *y = &x->places[op];
    const struct spmd_live *l = &x->s->live[op];
    int32_t n = 0, n_list = 0, list[SPMD_LIVE_MAX], digit[SPMD_LIVE_MAX] = {0};
    int32_t stay[SPMD_LIVE_MAX], base = 0;
    struct move *moves = ARENA_ARRAY(a, struct move, (size_t)rules_at(x, op));
    for (const int32_t *r = x->rules[op]; *r >= 0; r++)
        make_move(x, a, op, &x->p->ops[op].rules[*r], &moves[n++]);
    staying(x, op, stay);
    for (int32_t k = 0; k < y->n; k++) {
        bool read = false;
        for (int32_t r = 0; r < n; r++) {
            read = read || moves[r].cost[k] || moves[r].step[k];
            if (moves[r].step[k]) stay[k] = 0;
        }
        if (read) list[n_list++] = k;
    }
    for (int32_t at = 0; at < y->size; at++) {
        y->least[at] = best_move(moves, n, digit, list, n_list, base, x->places[op + 1].least);
        for (int32_t k = 0; k < y->n; k++) { /* the next digits */
            if (!y->stride[k]) continue;
            base += stay[k];
            if (++digit[k] < x->seen[l->tensor[k]].radix) break;
            base -= stay[k] * digit[k];
            digit[k] = 0;
        }
    }
}

struct spmd_relax *spmd_relax_new(struct arena *a, struct spmd_states *s,
                                  const int32_t *const *rules, const double *price)
{
    struct spmd_relax *x = ARENA_ARRAY(a, struct spmd_relax, 1);
    const struct spmd_problem *p = s->p;
    *x = (struct spmd_relax){.a = a, .s = s, .p = p, .rules = rules, .price = price};
    x->seen = ARENA_ARRAY(a, struct seen, (size_t)p->n_tensors);
    x->places = ARENA_ARRAY(a, struct place, (size_t)p->n_ops + 1);
    find_digits(x);
    fit_places(x);
    for (int32_t i = 0; i <= p->n_ops; i++) make_place(x, i);
    struct arena *scratch = arena_new();
    for (int32_t i = p->n_ops - 1; i >= 0 && !stop_requested(); i--) {
        if (s->live[i].n > SPMD_LIVE_MAX) continue;
        fill_place(x, scratch, i);
        arena_reset(scratch);
    }
    arena_free(scratch);
    return x;
}

/* --- costs that a state has paid in advance --- */

/* Paid cost minus the shares of past readers; negative if they still owe more. */
static int64_t paid_ahead(const struct spmd_relax *x, int32_t tensor, const struct spmd_record *r)
{
    const struct spmd_tensor_class *of = x->p->tensors[tensor].of;
    const struct seen *y = &x->seen[tensor];
    int32_t made = r->version[0].placement;
    int64_t paid = 0, shares = 0;
    if (r->n == 1 && !r->version[0].partial && (!r->version[0].kept || y->maker_keeps)) return 0;
    const struct from *f = y->from[y->digit[made]];
    for (int32_t v = 0; v < r->n; v++) {
        const struct spmd_version *z = &r->version[v];
        if (v)
            paid +=
                of->reshard[(int64_t)made * x->p->n_placements + z->target]->step[z->step].forward_ns;
        if (z->kept && !(v == 0 && y->maker_keeps)) {
            int64_t ns = priced(x, of, z->placement);
            paid += ns;
            shares += ns / y->n_readers;
        }
        for (int32_t m = 0; m < 4; m++)
            if (z->partial >> m & 1)
                shares += (f->forward[z->placement] + f->back[z->placement][m]) / y->n_readers;
    }
    return paid - shares;
}

int64_t spmd_relax_min(const struct spmd_relax *x, int32_t place, const int32_t *state)
{
    const struct place *y = &x->places[place];
    const struct spmd_live *l = &x->s->live[place];
    int64_t ahead = 0;
    int32_t at = 0;
    for (int32_t k = 0; k < y->n; k++) {
        const struct seen *t = &x->seen[l->tensor[k]];
        const struct spmd_record *r = &x->s->records[state[k]];
        if (x->p->tensors[l->tensor[k]].kind == SPMD_SHARED) {
            if (y->stride[k])
                at += y->stride[k] * home_digit(t, r->version[0].placement, r->version[0].partial);
            continue;
        }
        if (y->stride[k]) at += y->stride[k] * t->digit[r->version[0].placement];
        ahead += paid_ahead(x, l->tensor[k], r);
    }
    return y->least[at] - ahead;
}
