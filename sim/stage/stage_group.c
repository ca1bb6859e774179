/* sim/stage/stage_group.c - the time of the collectives inside a stage whose operators are sharded over a group of devices. */
#include "sim/stage/stage_internal.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/sharding/shard.h"
#include "sim/collective/price.h"
#include "sim/collective/rounds.h"

struct hops_of { /* of the members of one collective */
    const struct stage_group *group;
    int32_t n;
    const int32_t *member; /* (n) positions in the group, ascending */
};

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    const struct hops_of *h = of;
    return h->group->hop(h->group->of, h->group->device[h->member[from]],
                         h->group->device[h->member[to]]);
}

/* If each of n members sends to the one k positions further, n - k messages go up and k down again; so in every collective of the round. */
static int64_t beside(const void *of, int32_t from, int32_t to)
{
    const struct hops_of *h = of;
    int64_t all = h->group->beside;
    if (all == 1 || !h->group->duplex) return all;
    return all * (from < to ? h->n - (to - from) : h->n - (from - to)) / h->n;
}

/* From a measured table or NCCL's model, by the rule of sim/collective/price.h; -1: from the links. */
static int64_t priced_ns(struct arena *a, struct cost *k, const struct stage_group *group,
                         const struct collective *c, const int32_t *member)
{
    if (!cost_prices_collectives(k) || c->kind == COLLECTIVE_ALL_TO_ALL) return -1;
    bool padded = c->algorithm == ALGORITHM_RING && c->kind != COLLECTIVE_ALL_REDUCE;
    int64_t elements = padded ? c->n_members * c->most : c->elements;
    int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)c->n_members);
    for (int32_t i = 0; i < c->n_members; i++) device[i] = group->device[member[i]];
    return collective_price_devices_ns(k, c->kind, c->algorithm, device, c->n_members,
                                       elements * dtype_bytes(c->dtype), NULL);
}

int64_t stage_group_ns(struct cost *k, const struct stage_group *group, const struct graph *view,
                       const struct graph_op *op)
{
    struct arena *a = arena_new();
    struct collective *c = shard_collective(a, view, op, group->sharding, NULL);
    size_t n = (size_t)c->n_members;
    const int32_t *member = op->attrs.exchange->member;
    c->dtype = view->tensors[op->input[0]].dtype;
    int64_t slowest = priced_ns(a, k, group, c, member);
    if (slowest < 0) {
        struct hops_of of = {group, c->n_members, member};
        const struct collective_hops hops = {hop, &of, beside};
        int64_t *end = ARENA_ARRAY(a, int64_t, n), *next = ARENA_ARRAY(a, int64_t, n);
        collective_rounds_ns(c, dtype_bytes(c->dtype), &hops, end, next);
        for (size_t i = 0; i < n; i++) slowest = units_max(slowest, end[i]);
    }
    arena_free(a);
    return slowest;
}
