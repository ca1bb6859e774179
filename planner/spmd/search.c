/* planner/spmd/search.c - beam search, A*, Lagrangian bounds, and the entry point. */
#include "planner/spmd/search.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "planner/spmd/labels.h"

#include <math.h>
#include <string.h>

/* Labels that the beam search keeps at a place. With 6 the rules of BERT with experts on a mesh of 16 by 4 take 12.6 s, more than on one axis
 * (9.4 s), and with 24 less (2026-11-26). */
enum { BEAM = 24, BEAM_RUN = INT32_MAX, A_STAR_RUN = BEAM_RUN - 1 };

/* --- A* --- */

static bool sooner(const struct search *q, int32_t x, int32_t y)
{
    const struct label *a = &q->labels[x], *b = &q->labels[y];
    if (a->least_ns != b->least_ns) return a->least_ns < b->least_ns;
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

/* A solution better than the incumbent: *goal, or -1. Returns true if the limit of labels was reached; then *bound is a
 * lower bound. */
static bool a_star(struct search *q, int32_t *goal, int64_t *bound)
{
    int64_t most = q->n_applied + q->most;
    *goal = -1, *bound = q->enough_ns;
    int32_t root = spmd_new_root(q, 0, A_STAR_RUN, NULL);
    if (q->least_bytes && !spmd_bound_bytes(q, 0, q->bytes + (int64_t)root * q->p->n_columns))
        return false;
    heap_push(q, root);
    while (q->n_heap) {
        int32_t at = heap_pop(q);
        if (q->labels[at].beaten) continue;
        int32_t place = q->labels[at].place;
        if (place == q->p->n_ops) {
            *goal = at;
            *bound = q->labels[at].ns;
            return false;
        }
        if (q->n_applied > most || stop_requested()) {
            if (q->labels[at].least_ns < *bound) *bound = q->labels[at].least_ns;
            return true;
        }
        for (const int32_t *r = q->rules[place]; *r >= 0; r++) {
            int32_t next = spmd_extend(q, at, *r);
            if (next >= 0) heap_push(q, next);
        }
    }
    return false;
}

/* --- a beam --- */

/* Moves the best of the first n labels by bound to the front. */
static int32_t best_labels(struct search *q, int32_t *label, int32_t n)
{
    int32_t kept = 0;
    for (int32_t k = 0; k < n; k++) {
        int32_t x = label[k], at = kept < BEAM ? kept : BEAM - 1;
        if (q->labels[x].beaten || (kept == BEAM && !sooner(q, x, label[at]))) continue;
        for (; at && sooner(q, x, label[at - 1]); at--) label[at] = label[at - 1];
        label[at] = x;
        if (kept < BEAM) kept++;
    }
    return kept;
}

/* Beam search: a good solution, place by place; -1: none. O(operators · BEAM · rules). */
static int32_t beam(struct search *q)
{
    int32_t n = 1, most = BEAM;
    if (stop_requested()) return -1; /* the relaxation may be incomplete */
    for (int32_t i = 0; i < q->p->n_ops; i++)
        for (int32_t k = 0; q->rules[i][k] >= 0; k++)
            if ((k + 1) * BEAM > most) most = (k + 1) * BEAM;
    int32_t *now = ARENA_ARRAY(q->a, int32_t, (size_t)most),
            *next = ARENA_ARRAY(q->a, int32_t, (size_t)most);
    now[0] = spmd_new_root(q, 0, BEAM_RUN, NULL);
    if (q->least_bytes && !spmd_bound_bytes(q, 0, q->bytes + (int64_t)now[0] * q->p->n_columns))
        return -1;
    for (int32_t place = 0; place < q->p->n_ops && n; place++) {
        int32_t made = 0, *swap = now;
        if (stop_requested()) return -1;
        for (int32_t k = 0; k < n; k++)
            for (const int32_t *r = q->rules[place]; *r >= 0; r++) {
                int32_t id = spmd_extend(q, now[k], *r);
                if (id >= 0) next[made++] = id;
            }
        n = best_labels(q, next, made);
        now = next, next = swap;
    }
    return n ? now[0] : -1;
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
             k++) { /* may exist already: contributes 0 to the least bytes */
            const struct spmd_tensor *t = &p->tensors[o->input[k]];
            if (t->kind == SPMD_SOURCE) continue;
            if (t->kind == SPMD_SHARED) {
                more = INT64_MAX / 4; /* known only at the end */
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

static void find_bounds(struct search *q)
{
    const struct spmd_problem *p = q->p;
    int32_t n = p->n_ops, c = p->n_columns;
    q->least_bytes = ARENA_ARRAY(q->a, int64_t, (size_t)(n + 1) * (size_t)c);
    q->most_bytes = ARENA_ARRAY(q->a, int64_t, (size_t)(n + 1) * (size_t)c);
    for (int32_t i = n - 1; i >= 0; i--)
        for (int32_t k = 0; k < c; k++) {
            int64_t low, high, at = (int64_t)i * c + k, behind = at + c;
            least_and_most(p, i, k, &low, &high);
            q->least_bytes[at] = q->least_bytes[behind] + low;
            q->most_bytes[at] = q->most_bytes[behind] + high;
            if (q->most_bytes[at] > INT64_MAX / 4) q->most_bytes[at] = INT64_MAX / 4;
        }
}

/* --- dominated rules --- */

/* Whether x dominates y: same placements, not costlier, no more partial axes, and no more bytes if memory counts. */
static bool rule_beats(const struct search *q, const struct spmd_op *op, const struct spmd_rule *x,
                       const struct spmd_rule *y)
{
    if (x->ns > y->ns) return false;
    for (int32_t k = 0; k < op->n_inputs; k++) {
        if (q->p->tensors[op->input[k]].kind == SPMD_SOURCE) continue;
        if (x->need[k] != y->need[k] || (x->partial[k] & ~y->partial[k])) return false;
    }
    for (int32_t k = 0; k < op->n_outputs; k++)
        if (x->give[k] != y->give[k]) return false;
    bool counts = q->least_bytes || q->price;
    for (int32_t c = 0; counts && c < q->p->n_columns; c++)
        if ((x->bytes ? x->bytes[c] : 0) > (y->bytes ? y->bytes[c] : 0)) return false;
    return true;
}

static int32_t *good_rules(const struct search *q, const struct spmd_op *op)
{
    int32_t *list = ARENA_ARRAY(q->a, int32_t, (size_t)op->n_rules + 1), n = 0;
    for (int32_t r = 0; r < op->n_rules; r++) {
        bool beaten = false;
        for (int32_t v = 0; v < op->n_rules && !beaten; v++) {
            bool tie = v > r && rule_beats(q, op, &op->rules[r], &op->rules[v]);
            beaten = v != r && !tie && rule_beats(q, op, &op->rules[v], &op->rules[r]);
        }
        if (!beaten) list[n++] = r;
    }
    list[n] = -1;
    return list;
}

/* Operators of one class share a list. */
static void find_rules(struct search *q)
{
    int32_t *seen = ARENA_ARRAY(q->a, int32_t, (size_t)q->p->n_ops + 1), n = 0;
    q->rules = ARENA_ARRAY(q->a, const int32_t *, (size_t)q->p->n_ops);
    for (int32_t i = 0; i < q->p->n_ops; i++) {
        int32_t k = 0;
        const struct spmd_op *op = &q->p->ops[i];
        while (k < n && (q->p->ops[seen[k]].rules != op->rules ||
                         q->p->ops[seen[k]].n_inputs != op->n_inputs))
            k++;
        if (k == n) seen[n++] = i, q->rules[i] = good_rules(q, op);
        q->rules[i] = q->rules[seen[k]];
    }
}

/* Stores the rules from a label back to its root, shifted by `shift` places. */
static void read_rules(const struct search *q, int32_t label, int32_t shift, int32_t *rule)
{
    for (const struct label *l = &q->labels[label]; l->parent >= 0; l = &q->labels[l->parent]) {
        if (l->via >= 0)
            read_rules(q, l->via, shift + l->place - q->labels[l->via].place, rule);
        else
            rule[shift + l->place - 1] = l->rule;
    }
}

/* --- entry point --- */

static struct search *search_new(struct arena *a, const struct spmd_problem *p, bool memory,
                                 const double *price)
{
    struct search *q = ARENA_ARRAY(a, struct search, 1);
    *q = (struct search){.a = a, .p = p, .s = spmd_states_new(a, p), .n_table = 4096};
    q->enough_ns = INT64_MAX;
    q->price = price, q->spare = ARENA_ARRAY(a, int64_t, (size_t)p->n_columns + 1);
    q->table = ARENA_ARRAY(a, int32_t, q->n_table);
    if (memory) find_bounds(q);
    find_rules(q);
    return q;
}

static bool fits(const struct spmd_problem *p, const int64_t *bytes)
{
    for (int32_t c = 0; c < p->n_columns; c++)
        if (bytes[c] > p->cap[c]) return false;
    return true;
}

/* The rules of a solution, and their true cost. */
static int64_t take(struct arena *a, struct search *q, int32_t goal, struct spmd_found *out)
{
    if (goal < 0) return INT64_MAX;
    out->rule = ARENA_ARRAY(a, int32_t, (size_t)q->p->n_ops);
    out->bytes = ARENA_ARRAY(a, int64_t, (size_t)q->p->n_columns);
    read_rules(q, goal, 0, out->rule);
    int64_t ns = spmd_cost(q->a, q->p, out->rule, out->bytes);
    if (!q->price && ns != q->labels[goal].ns)
        BUG("a chain of rules costs another sum than its label");
    return ns;
}

/* Beam search, then A*: the best label, or -1. *bound: lower bound. */
static int32_t beam_and_prove(struct search *q, int64_t most, int64_t *bound)
{
    int32_t first = beam(q), better;
    q->most = most;
    *bound = 0;
    if (stop_requested()) return first;
    if (first >= 0 && q->labels[first].ns < q->enough_ns) q->enough_ns = q->labels[first].ns;
    (void)a_star(q, &better, bound);
    return better >= 0 ? better : first;
}

/* Of a proof at multipliers or under binding memory. */
static int64_t most_labels(const struct spmd_limits *l)
{
    return l && l->max_labels ? l->max_labels : SPMD_LABELS / 10;
}

/* Search without caps, with bytes at their multipliers. Sets out's rules, bytes, labels and pieces; out->bound_ns includes
 * the multipliers' cost. */
static void search_free(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                        const double *price, struct spmd_found *out)
{
    struct arena *scratch = arena_new();
    struct search *q = search_new(scratch, p, false, price);
    int32_t goal = -1;
    *out = (struct spmd_found){.ns = INT64_MAX};
    q->most = SPMD_LABELS;
    if (!price) goal = spmd_by_pieces(q, &out->n_pieces);
    if (out->n_pieces)
        out->bound_ns = goal < 0 ? INT64_MAX : q->labels[goal].ns;
    else {
        if (!price && l && l->enough_ns) q->enough_ns = l->enough_ns;
        q->relax = spmd_relax_new(scratch, q->s, q->rules, price);
        goal = beam_and_prove(q, price ? most_labels(l) : SPMD_LABELS, &out->bound_ns);
    }
    out->ns = take(a, q, goal, out);
    out->n_labels = q->n_applied;
    arena_free(scratch);
}

/* --- cost of given rules --- */

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

/* --- binding memory: Lagrangian relaxation --- */

struct prices {         /* multipliers: ns for bytes equal to a column's cap; (n_columns) each */
    double *now, *best; /* multipliers of the best bound; NULL: none */
    double *of_byte;
    int64_t bound_ns; /* lower bound of answers that fit */
    int64_t n_labels;
    struct spmd_found *found; /* the best answer that fits */
    const int32_t *fat;       /* rules of the latest answer that does not fit; NULL: none */
};

static double set_prices(const struct spmd_problem *p, const double *price, double *of_byte)
{
    double owed = 0;
    for (int32_t c = 0; c < p->n_columns; c++) {
        of_byte[c] = price[c] / (double)(p->cap[c] > 0 ? p->cap[c] : 1);
        owed += price[c];
    }
    return owed;
}

/* Combines two answers: one up to an operator, the other from there on, at the last place that fits, by bisection; both
 * orders. Equal layers change at the same multiplier, so this changes only some of them. */
static void mix(struct arena *a, const struct spmd_problem *p, const int32_t *fat,
                const int32_t *thin, struct spmd_found *best)
{
    struct arena *scratch = arena_new();
    struct spmd_states *s = spmd_states_new(scratch, p);
    size_t n = (size_t)p->n_ops;
    int32_t *rule = ARENA_ARRAY(scratch, int32_t, n);
    int64_t *bytes = ARENA_ARRAY(scratch, int64_t, (size_t)p->n_columns);
    for (int fat_first = 0; fat_first < 2; fat_first++) {
        int32_t low = 0, high = p->n_ops; /* number of operators with the larger rule: low fits */
        while (high - low > 1) {
            int32_t mid = low + (high - low) / 2;
            for (int32_t i = 0; i < p->n_ops; i++)
                rule[i] = (fat_first ? i < mid : i >= p->n_ops - mid) ? fat[i] : thin[i];
            memset(bytes, 0, (size_t)p->n_columns * sizeof *bytes);
            int64_t ns = play(s, rule, bytes);
            bool fit = ns < INT64_MAX && fits(p, bytes);
            if (fit)
                low = mid;
            else
                high = mid;
            if (!fit || ns >= best->ns) continue;
            best->ns = ns;
            best->rule = arena_copy(a, rule, n * sizeof *rule);
            best->bytes = arena_copy(a, bytes, (size_t)p->n_columns * sizeof *bytes);
        }
    }
    arena_free(scratch);
}

/* One search at the current multipliers; fit: whether its answer fits. */
static void try_prices(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                       struct prices *y, struct spmd_found *now, bool *fit)
{
    double owed = set_prices(p, y->now, y->of_byte);
    search_free(a, p, l, y->of_byte, now);
    y->n_labels += now->n_labels;
    *fit = now->ns != INT64_MAX && fits(p, now->bytes);
    if (*fit && now->ns < y->found->ns) *y->found = *now;
    if (now->ns < INT64_MAX && !*fit) y->fat = now->rule;
    if (y->fat && y->found->ns < INT64_MAX) mix(a, p, y->fat, y->found->rule, y->found);
    double bound = now->bound_ns < INT64_MAX ? (double)now->bound_ns - owed - 1 : 0;
    if (bound <= (double)y->bound_ns || bound > 1e18) return;
    y->bound_ns = (int64_t)bound;
    memcpy(y->best, y->now, (size_t)p->n_columns * sizeof *y->best);
}

/* First one multiplier of all columns, raised until the answer fits; then, from the best bound, one per column by
 * subgradient steps: raised by the missing bytes, lowered by the slack. */
static void by_prices(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                      int64_t free_ns, struct prices *y)
{
    struct spmd_found now = {.ns = INT64_MAX};
    bool fit = false;
    const double most = spmd_price_max(p);
    double price = 0.02 * (double)free_ns / p->n_columns + 1;
    for (; !fit && price < most; price *= 4) {
        for (int32_t c = 0; c < p->n_columns; c++) y->now[c] = price;
        try_prices(a, p, l, y, &now, &fit);
        if (now.ns == INT64_MAX) return;
    }
    if (y->best[0] > 0) memcpy(y->now, y->best, (size_t)p->n_columns * sizeof *y->now);
    for (int k = 0; k < SPMD_TURNS; k++) {
        bool high = false;
        if (k || fit) try_prices(a, p, l, y, &now, &fit);
        if (now.ns == INT64_MAX || stop_requested()) return;
        for (int32_t c = 0; c < p->n_columns; c++) {
            double full = (double)now.bytes[c] / (double)(p->cap[c] > 0 ? p->cap[c] : 1);
            double times = pow(full, k < SPMD_TURNS / 2 ? 6 : 2); /* smaller steps at the end */
            y->now[c] *= times < 0.2 ? 0.2 : times > 5 ? 5 : times;
            high = high || y->now[c] > most;
        }
        if (high) return;
    }
}

/* With binding memory: Lagrangian search, beam search, then A* within the limit of labels for a proof. */
static void search_bound(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                         struct spmd_found *out)
{
    struct spmd_found best = {.ns = INT64_MAX};
    struct arena *scratch = arena_new();
    size_t n = (size_t)p->n_columns;
    struct prices y = {.bound_ns = out->bound_ns, .n_labels = out->n_labels, .found = &best};
    y.now = ARENA_ARRAY(scratch, double, n), y.best = ARENA_ARRAY(scratch, double, n);
    y.of_byte = ARENA_ARRAY(scratch, double, n);
    by_prices(a, p, l, out->ns, &y);
    struct search *q = search_new(scratch, p, true, NULL);
    int64_t bound;
    q->enough_ns = l && l->enough_ns && l->enough_ns < best.ns ? l->enough_ns : best.ns;
    q->relax = spmd_relax_new(scratch, q->s, q->rules, NULL);
    int32_t goal = beam_and_prove(q, most_labels(l), &bound);
    if (goal >= 0) best.ns = take(a, q, goal, &best);
    best.n_pieces = 0;
    best.n_labels = y.n_labels + q->n_applied;
    best.bound_ns = bound > y.bound_ns ? bound : y.bound_ns;
    if (best.bound_ns > best.ns) best.bound_ns = best.ns;
    arena_free(scratch);
    *out = best;
}

enum status spmd_search(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                        struct spmd_found *out, struct error *err)
{
    search_free(a, p, l, NULL, out);
    if (out->ns != INT64_MAX && !fits(p, out->bytes)) search_bound(a, p, l, out);
    return stop_check(err);
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
