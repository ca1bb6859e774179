/* planner/spmd/answer.c - from rules to choices and back. */
#include "planner/spmd/spmd.h"

#include "core/base/arena.h"

#include <string.h>

const struct spmd_meaning *spmd_meaning_of(const struct spmd_tables *t, int32_t op, int32_t rule)
{
    return &t->meanings[t->problem.ops[op].rules[rule].tag];
}

static void read_answer(struct arena *a, const struct spmd_question *q, struct spmd_answer *out)
{
    const struct spmd_tables *t = out->tables;
    out->ns = out->found.ns;
    if (out->ns == INT64_MAX) return;
    out->bytes = out->found.bytes;
    out->choices = ARENA_ARRAY(a, struct op_choice, (size_t)q->g->n_forward);
    out->gathered = ARENA_ARRAY(a, bool, (size_t)q->g->n_tensors);
    out->sufficient_factors = ARENA_ARRAY(a, bool, (size_t)q->g->n_forward);
    for (int32_t k = t->n_entries; k < t->problem.n_ops; k++) {
        int32_t i = t->first_op + k - t->n_entries;
        const struct spmd_meaning *m = spmd_meaning_of(t, k, out->found.rule[k]);
        out->choices[i] = m->choice;
        out->sufficient_factors[i] = m->sufficient_factors;
        if (m->gather) out->gathered[q->g->ops[i].input[m->shards]] = true;
    }
}

/* --- where memory binds --- */

/* Caps of successive searches, bytes per device. The bytes laid out beyond the counted ones differ between answers, so no
 * single cap is right: an answer that is too large lowers it, then bisection follows. */
struct turns {
    struct arena *a;
    const struct spmd_question *q;
    struct spmd_limits limits;
    int64_t *cap;        /* (n_devices) the problem's */
    int64_t *low;        /* the highest caps with an answer that fits, or with none */
    const int64_t *high; /* counted bytes of the latest answer that was too large; NULL: none */
    bool halving;        /* low is valid */
    int32_t laid;        /* answers lowered */
    struct spmd_answer best;
};

/* Whether the answer fits as lowered; below: the caps less its excess over the counted bytes. */
static bool fits_lowered(struct turns *t, const struct spmd_answer *x, int64_t *below)
{
    const struct spmd_question *q = t->q;
    bool fits = true;
    if (!q->memory_bytes || !q->lay) return true;
    t->laid++;
    int64_t *bytes = ARENA_ARRAY(t->a, int64_t, (size_t)q->s->n_devices);
    if (!q->lay(q->of, spmd_sharding(t->a, q, x), bytes)) return true; /* the caller finds out why */
    for (int32_t d = 0; d < q->s->n_devices; d++) {
        below[d] = q->memory_bytes[d] - (bytes[d] - x->bytes[d]);
        if (below[d] > t->cap[d]) below[d] = t->cap[d];
        fits = fits && bytes[d] <= q->memory_bytes[d];
    }
    return fits;
}

/* Caps halfway from low to high; false: there are none between. */
static bool halve(struct turns *t)
{
    bool distinct = false;
    for (int32_t d = 0; d < t->q->s->n_devices; d++) {
        int64_t room = t->high[d] - t->low[d];
        t->cap[d] = t->low[d] + (room > 0 ? room / 2 : 0);
        distinct |= room > 1;
    }
    return distinct;
}

/* Caps of the next search from this answer; false: none. */
static bool next_caps(struct turns *t, const struct spmd_answer *x)
{
    size_t n = (size_t)t->q->s->n_devices;
    int64_t *below = ARENA_ARRAY(t->a, int64_t, n);
    bool found = x->ns < INT64_MAX, fits = found && fits_lowered(t, x, below);
    if (fits && x->ns < t->best.ns) t->best = *x;
    if (fits && (!t->limits.enough_ns || x->ns < t->limits.enough_ns)) t->limits.enough_ns = x->ns;
    if (fits || !found)
        memcpy(t->low, t->cap, n * sizeof *t->low), t->halving = true;
    else
        t->high = x->bytes;
    if (!t->high) return false; /* the first search, with all memory */
    if (t->halving) return halve(t);
    memcpy(t->cap, below, n * sizeof *below);
    return true;
}

/* Fitted cost in ns, as for the tables: of a label, of the relaxation per rule of each operator, and of an operator of the graph lowered on
 * a device: 18 stages of Llama-8B on 32 GPUs took 6 to 9 us where a label took 640 ns (2026-11-26). */
enum { LABEL_NS = 400, FOLLOW_NS = 3000, LAY_OP_NS = 4500 };

static int64_t search_work(const struct spmd_tables *t, int64_t labels)
{
    int64_t rules = 0;
    for (int32_t k = 0; k < t->problem.n_ops; k++) rules += t->problem.ops[k].n_rules;
    return LABEL_NS * labels + FOLLOW_NS * rules;
}

static int64_t lay_work(const struct turns *t)
{
    return LAY_OP_NS * (int64_t)t->laid * t->q->g->n_ops * t->q->s->n_devices;
}

enum status spmd_best(struct arena *a, const struct spmd_question *q, struct spmd_answer *out,
                      struct error *err)
{
    struct spmd_tables *tables;
    TRY(spmd_tables_new(a, q, &tables, err));
    int64_t bound = 0, labels = 0;
    struct turns t = {.a = a, .q = q, .limits = q->limits, .cap = (int64_t *)tables->problem.cap};
    t.low = ARENA_ARRAY(a, int64_t, (size_t)q->s->n_devices);
    t.best = (struct spmd_answer){.ns = INT64_MAX, .tables = tables};
    bool more = true;
    for (int turn = 0; turn < SPMD_TURNS && more; turn++) {
        struct spmd_answer x = {.tables = tables};
        TRY(spmd_search(a, &tables->problem, &t.limits, &x.found, err));
        labels += x.found.n_labels;
        if (!turn) t.best.found = x.found;
        /* of the counted bytes, valid for any layout */
        if (!turn) bound = x.found.bound_ns;
        read_answer(a, q, &x);
        more = next_caps(&t, &x);
    }
    *out = t.best;
    out->found.n_labels = labels, out->found.bound_ns = bound;
    out->work_ns = tables->work_ns + search_work(tables, labels) + lay_work(&t);
    return OK;
}

static bool keeps_sharded(const struct graph *g, const struct graph_op *op, const bool *gathered)
{
    bool any = false;
    for (int32_t k = 0; k < op->n_inputs && gathered; k++)
        any |= g->tensors[op->input[k]].role == TENSOR_PARAMETER && gathered[op->input[k]];
    return any;
}

int64_t spmd_choices_ns(struct arena *a, const struct spmd_tables *t, const struct spmd_question *q,
                        const struct op_choice *choices, const bool *gathered, int64_t *bytes)
{
    int32_t *rule = ARENA_ARRAY(a, int32_t, (size_t)t->problem.n_ops);
    int64_t best = INT64_MAX;
    for (int32_t k = t->n_entries; k < t->problem.n_ops; k++) {
        int32_t i = t->first_op + k - t->n_entries;
        const int32_t *input = q->g->ops[i].input;
        bool kept = keeps_sharded(q->g, &q->g->ops[i], gathered);
        const struct spmd_op *op = &t->problem.ops[k];
        rule[k] = -1;
        for (int32_t r = 0; r < op->n_rules && rule[k] < 0; r++) {
            const struct spmd_meaning *m = spmd_meaning_of(t, k, r);
            bool alike = m->gather ? kept && gathered[input[m->shards]] : !kept;
            if (alike && op_choice_equal(&m->choice, &choices[i], q->s->n_axes)) rule[k] = r;
        }
        if (rule[k] < 0) return INT64_MAX;
    }
    int64_t *mine = ARENA_ARRAY(a, int64_t, (size_t)t->problem.n_columns);
    for (int32_t k = 0; k < t->n_entries; k++) rule[k] = 0;
    for (int32_t turn = -1;
         turn < t->n_entries;) { /* the cheapest placement of the inputs */
        int64_t ns = spmd_cost(a, &t->problem, rule, mine);
        if (ns < best && bytes) memcpy(bytes, mine, (size_t)t->problem.n_columns * sizeof *bytes);
        if (ns < best) best = ns;
        for (turn = 0; turn < t->n_entries; turn++) {
            if (++rule[turn] < t->problem.ops[turn].n_rules) break;
            rule[turn] = 0;
        }
    }
    return best;
}

struct sharding *spmd_sharding(struct arena *a, const struct spmd_question *q,
                               const struct spmd_answer *x)
{
    struct sharding *s = arena_copy(a, q->s, sizeof *s);
    sharding_set_choices(a, s, q->g, x->choices, x->gathered);
    spmd_set_algorithms(a, q, x, s);
    return s;
}
