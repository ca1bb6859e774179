/* planner/spmd/algorithms.c - the algorithm of each collective of an answer, as a plan states it.
 *
 * What is converted, summed and gathered follows from the answer; prices give the algorithm, one for all groups
 * along an axis. Collectives are named as core/sharding/shard and core/graph/gradient name them: after the tensor that is converted. Where the
 * collectives of all blocks go alike one entry with * for their numbers says so. Entries that no collective of the view needs are
 * left out: the accounts list what may flow back, the view has what does.
 */
#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "planner/spmd/spmd.h"

#include <string.h>

struct meant { /* one collective */
    const char *match, *pattern;
    enum collective_kind kind;
    enum collective_algorithm algorithm;
    bool usual;
};

struct made { /* of a resharding: the k-th of its tensor */
    int32_t tensor, after;
    const char *name;
};

struct meanings {
    struct arena *a;
    const struct spmd_question *q;
    struct spmd_price *price;
    struct meant *list;
    int32_t n, n_made;
    size_t capacity, made_capacity;
    struct made *made;
};

static bool kind_of(enum op_kind kind, enum collective_kind *out)
{
    *out = kind == OP_group_all_gather       ? COLLECTIVE_ALL_GATHER
           : kind == OP_group_reduce_scatter ? COLLECTIVE_REDUCE_SCATTER
           : kind == OP_group_all_reduce     ? COLLECTIVE_ALL_REDUCE
                                             : COLLECTIVE_ALL_TO_ALL;
    return op_is_group(kind);
}

static void mean(struct meanings *m, const char *match, int32_t tensor, enum op_kind kind,
                 int32_t axis, int32_t before, int32_t after)
{
    const struct tensor *t = &m->q->g->tensors[tensor];
    struct meant x = {.match = match};
    struct error none = {0};
    bool even;
    if (!kind_of(kind, &x.kind)) return;
    if (spmd_step_algorithm(m->price, &t->shape, dtype_bytes(t->dtype), kind, axis, before, after, &x.algorithm,
                      &even, &none) != OK)
        return;
    for (int32_t k = 0; k < m->n; k++)
        if (m->list[k].kind == x.kind && !strcmp(m->list[k].match, match)) return;
    x.pattern = sharding_pattern(m->a, match);
    x.usual = x.algorithm == sharding_default_algorithm(x.kind, even);
    m->list = arena_grow(m->a, m->list, (size_t)m->n, &m->capacity, sizeof x);
    m->list[m->n++] = x;
}

/* What makes `to` of `from` along an axis. */
static enum op_kind step_kind(const struct on_axis *from, const struct on_axis *to)
{
    bool sharding = to->how == PLACED_SHARDED;
    if (from->how == PLACED_REPLICATED) return OP_local_slice;
    if (from->how == PLACED_PARTIAL) return sharding ? OP_group_reduce_scatter : OP_group_all_reduce;
    return sharding ? OP_group_all_to_all : OP_group_all_gather;
}

/* The resharding that makes a tensor in a placement; NULL: none. */
static const char *made_by(const struct meanings *m, int32_t tensor, int32_t placement)
{
    for (int32_t k = 0; k < m->n_made; k++)
        if (m->made[k].tensor == tensor && m->made[k].after == placement) return m->made[k].name;
    return NULL;
}

/* Reshardings of a tensor are numbered in order, as by core/sharding/shard. */
static const char *made_first(struct meanings *m, int32_t tensor, int32_t after, enum op_kind kind)
{
    const char *name = m->q->g->tensors[tensor].name, *known = made_by(m, tensor, after);
    int32_t number = 0;
    if (known) return known;
    for (int32_t k = 0; k < m->n_made; k++) number += m->made[k].tensor == tensor;
    name = number ? arena_printf(m->a, "%s.%s.%d", name, op_kind_name(kind), number)
                  : arena_printf(m->a, "%s.%s", name, op_kind_name(kind));
    m->made = arena_grow(m->a, m->made, (size_t)m->n_made, &m->made_capacity, sizeof(struct made));
    m->made[m->n_made++] = (struct made){tensor, after, name};
    return name;
}

/* A resharding forwards with its dual, or an all-reduce of a gradient. */
static void mean_event(struct meanings *m, const struct spmd_event *e)
{
    const char *name = m->q->g->tensors[e->tensor].name;
    int32_t axis = e->step.axis, before = e->from, after = e->step.after;
    if (after < 0) {
        const char *made = made_by(m, e->tensor, before);
        mean(m, arena_printf(m->a, "%s.grad_all_reduce*", made ? made : name), e->tensor,
             OP_group_all_reduce, axis, before, before);
        return;
    }
    enum op_kind kind = step_kind(&spmd_placement_of(m->price, before)->axis[axis],
                                  &spmd_placement_of(m->price, after)->axis[axis]);
    const char *made = made_first(m, e->tensor, after, kind);
    mean(m, made, e->tensor, kind, axis, before, after);
    for (int partial = 0; partial < 2 && kind != OP_group_all_reduce; partial++)
        mean(m, arena_printf(m->a, "%s.grad_*", made), e->tensor, conversion_dual(kind, partial),
             axis, after, before);
}

/* Collectives of the rules themselves: gathered parameters, sufficient factors. One axis. */
static void mean_own(struct meanings *m, const struct spmd_answer *x, int32_t i)
{
    const struct graph *g = m->q->g;
    const struct graph_op *op = &g->ops[i];
    for (int32_t k = 0; k < op->n_inputs; k++) {
        const struct tensor *t = &g->tensors[op->input[k]];
        if (t->role != TENSOR_PARAMETER || !x->gathered[op->input[k]]) continue;
        struct placement p = {0};
        p.axis[0] =
            (struct on_axis){.how = PLACED_SHARDED,
                             .grain = {.n_units = t->shape.dim[0], .n_sections = 1, .unit = {1}}};
        int32_t home = spmd_placement(m->price, &p);
        const char *match = arena_printf(m->a, "%s.group_all_gather", t->name);
        mean(m, match, op->input[k], OP_group_all_gather, 0, home, 0);
        mean(m, arena_printf(m->a, "%s.grad_*", match), op->input[k], OP_group_reduce_scatter, 0, 0,
             home);
    }
    if (!x->sufficient_factors[i]) return;
    struct op_placements need;
    struct error none = {0};
    const struct grain *grains = graph_grains(m->a, g);
    if (op_placements_of(m->q->s, g, op, grains, &x->choices[i], &need, &none) != OK) return;
    mean(m, arena_printf(m->a, "%s.factor_x", op->name), op->input[0], OP_group_all_gather, 0,
         spmd_placement(m->price, &need.input[0]), 0);
    mean(m, arena_printf(m->a, "%s.factor_dy", op->name), op->output[0], OP_group_all_gather, 0,
         spmd_placement(m->price, &need.output[0]), 0);
}

/* Whether all collectives of its pattern and kind have its algorithm. first: whether it is the first of them. */
static bool agree(const struct meanings *m, int32_t i, bool *first)
{
    bool all = true;
    *first = true;
    for (int32_t k = 0; k < m->n; k++) {
        if (m->list[k].kind != m->list[i].kind || strcmp(m->list[k].pattern, m->list[i].pattern))
            continue;
        all &= m->list[k].algorithm == m->list[i].algorithm && m->list[k].usual == m->list[i].usual;
        *first &= k >= i;
    }
    return all;
}

static void state(struct meanings *m, struct sharding *s)
{
    struct sharding_algorithm *algorithms = ARENA_ARRAY(m->a, struct sharding_algorithm, (size_t)m->n);
    s->n_algorithms = 0, s->algorithms = algorithms;
    for (int32_t i = 0; i < m->n; i++) {
        const struct meant *x = &m->list[i];
        bool first, all = agree(m, i, &first);
        if (all && (!first || x->usual)) continue;
        algorithms[s->n_algorithms++] = (struct sharding_algorithm){
            .match = all ? x->pattern : x->match, .kind = x->kind, .algorithm = x->algorithm};
    }
}

/* --- collectives of the view --- */

/* As in core/lower/collectives: several nodes with equally many members, more than one. */
static bool in_tiers(const struct spmd_question *q, const struct exchange *e)
{
    int32_t node[256], tier[256];
    if (!q->node || e->n > 256) return false;
    for (int32_t i = 0; i < e->n; i++) node[i] = q->node[e->member[i]];
    int32_t each = collective_tiers_of(node, e->n, tier);
    return each > 1 && each < e->n;
}

/* Also entries of a single layer, if the rules are for any stage: lowering refuses those that apply to no collective of one. */
static void leave_out_idle(struct meanings *m, struct sharding *s)
{
    const struct spmd_question *q = m->q;
    struct graph forward = *q->g, *view; /* name without the suffix of core/graph/gradient */
    struct error none = {0};
    int32_t *layer = ARENA_ARRAY(m->a, int32_t, (size_t)s->n_algorithms); /* 1 + that of its first use; 0: none */
    bool *used = ARENA_ARRAY(m->a, bool, (size_t)s->n_algorithms);
    int32_t n = 0;
    forward.n_ops = forward.n_forward;
    forward.tensors =
        arena_copy(m->a, q->g->tensors, (size_t)q->g->n_tensors * sizeof *forward.tensors);
    for (int32_t t = 0; t < forward.n_tensors; t++) forward.tensors[t].gradient = -1;
    if (shard_graph(m->a, &forward, s, 0, q->first_layer, q->last_layer, &view, &none) != OK ||
        gradient_build(view, 1, &none) != OK) {
        s->n_algorithms = 0;
        return;
    }
    for (int32_t i = 0; i < view->n_ops; i++) {
        const struct graph_op *op = &view->ops[i];
        enum collective_kind kind;
        bool mine = op->layer >= q->first_layer && op->layer <= q->last_layer;
        if (!mine || !kind_of(op->kind, &kind)) continue;
        int32_t entry = sharding_algorithm_for(s, op->name, kind, op->attrs.exchange->n,
                                         in_tiers(q, op->attrs.exchange));
        if (entry < 0) continue;
        if (!layer[entry]) layer[entry] = op->layer + 1;
        used[entry] |= !q->complete_cuts || layer[entry] != op->layer + 1;
    }
    struct sharding_algorithm *algorithms = (struct sharding_algorithm *)(uintptr_t)s->algorithms; /* say's own */
    for (int32_t k = 0; k < s->n_algorithms; k++)
        if (used[k]) algorithms[n++] = algorithms[k];
    s->n_algorithms = n;
}

void spmd_set_algorithms(struct arena *a, const struct spmd_question *q, const struct spmd_answer *x,
                   struct sharding *s)
{
    struct meanings m = {.a = a, .q = q, .price = x->tables->price};
    const struct spmd_tables *t = x->tables;
    struct spmd_event *events;
    int32_t n = spmd_events(a, &t->problem, x->found.rule, &events);
    s->n_algorithms = 0;
    for (int32_t k = 0; k < n; k++)
        if (events[k].op < 0) mean_event(&m, &events[k]);
    for (int32_t k = t->n_entries; k < t->problem.n_ops; k++)
        mean_own(&m, x, t->first_op + k - t->n_entries);
    state(&m, s);
    if (s->n_algorithms) leave_out_idle(&m, s);
}
