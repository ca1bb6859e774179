/* planner/spmd_search.c - A*, its bounds, and the door. */
#include "planner/spmd_search.h"

#include "core/arena.h"
#include "planner/spmd_labels.h"

#include <string.h>

enum { LABELS_USUAL = 20000 };

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

/* *too_many: given up. */
static void a_star(struct search *q, int32_t *goal, bool *too_many)
{
    *goal = -1;
    int32_t root = spmd_new_root(q, 0, 0, NULL);
    if (q->least_bytes && !spmd_bound_bytes(q, 0, q->bytes)) return;
    heap_push(q, root);
    while (q->n_heap) {
        int32_t at = heap_pop(q);
        if (q->labels[at].beaten) continue;
        int32_t place = q->labels[at].place;
        if (place == q->p->n_ops) {
            *goal = at;
            return;
        }
        for (const int32_t *r = q->rules[place]; *r >= 0; r++) {
            int32_t next = spmd_extend(q, at, *r);
            if (next >= 0) heap_push(q, next);
        }
        if (q->n_labels > q->most) {
            *too_many = true;
            return;
        }
    }
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
        for (int32_t r = 0; r < p->ops[i].n_rules; r++) {
            const struct spmd_rule *x = &p->ops[i].rules[r];
            int64_t ns = x->ns + (q->price > 0 && x->bytes ? spmd_priced(q, x->bytes) : 0);
            if (ns < least) least = ns;
        }
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

/* --- rules that others beat --- */

/* Is x never worse than y: the same placements, no dearer, no more terms, and where memory counts no larger? */
static bool rule_beats(const struct search *q, const struct spmd_op *op, const struct spmd_rule *x,
                       const struct spmd_rule *y)
{
    if (x->ns > y->ns) return false;
    for (int32_t k = 0; k < op->n_inputs; k++) {
        if (q->p->tensors[op->input[k]].kind == SPMD_SOURCE) continue;
        if (x->need[k] != y->need[k] || (x->terms[k] & ~y->terms[k])) return false;
    }
    for (int32_t k = 0; k < op->n_outputs; k++)
        if (x->give[k] != y->give[k]) return false;
    bool counts = q->least_bytes || q->price > 0;
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

/* Operators of one class have one list. */
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

/* --- the door --- */

static struct search *search_new(struct arena *a, const struct spmd_problem *p,
                                 const struct spmd_limits *l, bool memory, double price)
{
    struct search *q = ARENA_ARRAY(a, struct search, 1);
    *q = (struct search){.a = a, .p = p, .s = spmd_states_new(a, p), .n_table = 4096};
    q->most = l && l->most_labels ? l->most_labels : LABELS_USUAL;
    q->enough_ns = INT64_MAX;
    q->price = price, q->spare = ARENA_ARRAY(a, int64_t, (size_t)p->n_columns + 1);
    q->table = ARENA_ARRAY(a, int32_t, q->n_table);
    find_bounds(q, memory);
    find_rules(q);
    return q;
}

static bool fits(const struct spmd_problem *p, const int64_t *bytes)
{
    for (int32_t c = 0; c < p->n_columns; c++)
        if (bytes[c] > p->cap[c]) return false;
    return true;
}

/* The rules of a chain; what they cost in truth. */
static int64_t take(struct arena *a, struct search *q, int32_t goal, struct spmd_found *out)
{
    out->n_labels += q->n_applied;
    if (goal < 0) return INT64_MAX;
    out->rule = ARENA_ARRAY(a, int32_t, (size_t)q->p->n_ops);
    out->bytes = ARENA_ARRAY(a, int64_t, (size_t)q->p->n_columns);
    read_rules(q, goal, 0, out->rule);
    int64_t ns = spmd_cost(q->a, q->p, out->rule, out->bytes);
    if (!(q->price > 0) && ns != q->labels[goal].ns)
        BUG("a chain of rules costs another sum than its label");
    return ns;
}

/* Memory does not count, but for its price. */
static int64_t search_free(struct arena *a, const struct spmd_problem *p,
                           const struct spmd_limits *l, double price, struct spmd_found *out,
                           int64_t *with_price)
{
    struct arena *scratch = arena_new();
    struct search *q = search_new(scratch, p, NULL, false, price);
    int32_t goal = -1;
    bool no = false;
    out->n_pieces = 0;
    if (l && l->pieces_from > 1) goal = spmd_by_pieces(q, l->pieces_from, &out->n_pieces);
    q->most = INT32_MAX / 2;
    if (!out->n_pieces) a_star(q, &goal, &no);
    *with_price = goal < 0 ? INT64_MAX : q->labels[goal].ns;
    int64_t ns = take(a, q, goal, out);
    arena_free(scratch);
    return ns;
}

/* Prices of memory: the least that makes it fit, by halving. The best that fits goes to *best, its ns is INT64_MAX where none
 * does; returns a lower bound of all that fit. */
static int64_t by_prices(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                         int64_t free_ns, struct spmd_found *best)
{
    enum { DOUBLINGS = 40, HALVINGS = 14 };
    double low = 0, high = 0, price = 1e-3 * (double)free_ns + 1;
    int64_t bound = free_ns, labels = 0;
    best->ns = INT64_MAX;
    for (int k = 0; k < DOUBLINGS && (!(high > 0) || k < HALVINGS); k++) {
        struct spmd_found now = {0};
        int64_t with, ns = search_free(a, p, l, price, &now, &with);
        double owed = price * p->n_columns + p->n_ops + 1; /* one a rounding */
        labels += now.n_labels;
        if (ns == INT64_MAX || price > 1e15) break;
        if ((double)with - owed > (double)bound) bound = (int64_t)((double)with - owed);
        bool good = fits(p, now.bytes);
        if (good && ns < best->ns) *best = now, best->ns = ns;
        if (good)
            high = price;
        else
            low = price;
        price = high > 0 ? (low + high) / 2 : 2 * price;
    }
    best->n_labels = labels;
    return bound;
}

/* Memory counts: what prices find, then what can be proved to be the best within so many labels. */
static void search_bound(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                         struct spmd_found *out)
{
    struct spmd_found best;
    struct arena *scratch = arena_new();
    int64_t bound = by_prices(a, p, l, out->ns, &best), labels = out->n_labels + best.n_labels;
    struct search *q = search_new(scratch, p, l, true, 0);
    int32_t goal = -1;
    bool too_many = false;
    q->enough_ns = best.ns;
    a_star(q, &goal, &too_many);
    if (goal >= 0) {
        best.ns = take(a, q, goal, &best);
        best.n_pieces = 0;
    }
    best.n_labels = labels + q->n_applied;
    best.bound_ns = too_many ? bound : best.ns;
    arena_free(scratch);
    *out = best;
}

enum status spmd_search(struct arena *a, const struct spmd_problem *p, const struct spmd_limits *l,
                        struct spmd_found *out, struct error *err)
{
    int64_t same;
    (void)err;
    *out = (struct spmd_found){.ns = INT64_MAX};
    out->ns = out->bound_ns = search_free(a, p, l, 0, out, &same);
    if (out->ns != INT64_MAX && !fits(p, out->bytes)) search_bound(a, p, l, out);
    return OK;
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
