/* core/sharding/shard_collectives.c - conversions of a view as collectives of core/collective/collective.h. */
#include "core/sharding/shard.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"

enum collective_kind shard_collective_kind(const struct graph_op *op)
{
    return op->kind == OP_group_all_gather       ? COLLECTIVE_ALL_GATHER
           : op->kind == OP_group_reduce_scatter ? COLLECTIVE_REDUCE_SCATTER
           : op->kind == OP_group_all_to_all     ? COLLECTIVE_ALL_TO_ALL
                                                 : COLLECTIVE_ALL_REDUCE;
}

static bool even(const struct exchange *e)
{
    for (int32_t i = 1; e->shards && i < e->shards->n; i++)
        if (division_extent(e->shards, i) != division_extent(e->shards, 0)) return false;
    return true;
}

enum collective_algorithm shard_collective_algorithm(const struct sharding *s, const struct graph_op *op,
                                            const int32_t *tier)
{
    enum collective_kind kind = shard_collective_kind(op);
    int32_t entry = sharding_algorithm_for(s, op->name, kind, op->attrs.exchange->n, tier);
    return entry >= 0 ? s->algorithms[entry].algorithm : sharding_default_algorithm(kind, even(op->attrs.exchange));
}

static struct collective_cut cut_of(struct arena *a, int32_t dimension, const struct division *d)
{
    size_t n = (size_t)d->n * (size_t)d->n_runs;
    struct collective_cut c = {dimension, d->n_runs, ARENA_ARRAY(a, int64_t, n),
                            ARENA_ARRAY(a, int64_t, n)};
    for (size_t i = 0; i < n; i++) c.first[i] = d->run[i].first, c.count[i] = d->run[i].n;
    return c;
}

struct collective *shard_collective(struct arena *a, const struct graph *view,
                                 const struct graph_op *op, const struct sharding *s,
                                 const int32_t *tier)
{
    const struct exchange *e = op->attrs.exchange;
    struct collective *m = ARENA_ARRAY(a, struct collective, 1);
    *m = (struct collective){.kind = shard_collective_kind(op),
                             .algorithm = shard_collective_algorithm(s, op, tier),
                             .n_members = e->n,
                             .whole = view->tensors[op->input[0]].shape};
    m->from.dimension = m->to.dimension = -1;
    if (m->kind == COLLECTIVE_ALL_GATHER) m->whole = view->tensors[op->output[0]].shape;
    if (m->kind == COLLECTIVE_ALL_TO_ALL) m->whole.dim[e->dim] = e->shards->whole;
    if (collective_has_from(m->kind)) m->from = cut_of(a, e->dim, e->shards);
    if (m->kind == COLLECTIVE_REDUCE_SCATTER) m->to = cut_of(a, e->dim, e->shards);
    if (m->kind == COLLECTIVE_ALL_TO_ALL) m->to = cut_of(a, e->to_dim, e->to);
    m->elements = shape_elements(&m->whole);
    if (collective_rounds_of(m->algorithm)->tiers) {
        m->tier = tier;
        collective_set_tiers(a, m);
    }
    m->most = collective_max(m);
    return m;
}
