#include "sim/collective/price.h"

#include "core/base/arena.h"

/* Nodes of n members, equally many on each; 0: unequally. */
static int32_t nodes_of(const struct cluster *c, const int32_t *device, int32_t n)
{
    struct arena *a = arena_new();
    int32_t *here = ARENA_ARRAY(a, int32_t, (size_t)c->n_nodes), nodes = 0;
    for (int32_t i = 0; i < n; i++) nodes += !here[c->devices[device[i]].node]++;
    for (int32_t i = 0; i < n && nodes; i++)
        if (here[c->devices[device[i]].node] * nodes != n) nodes = 0;
    arena_free(a);
    return nodes;
}

/* Of the cluster, or -1 where one of them is emulated or is not there. */
static int32_t member_device(const struct cluster *c, const struct program *p,
                             const struct collective_member *m)
{
    const struct program_device *d = &p->devices[p->stages[m->stage].device];
    return d->slowdown > 0 ? -1 : cluster_device(c, d->name);
}

int32_t collective_nodes(const struct cost *k, const struct program *p, const struct collective *c)
{
    if (c->stands_for) return c->stands_on;
    struct arena *a = arena_new();
    int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)c->n_members), nodes = -1;
    for (int32_t i = 0; i < c->n_members && nodes; i++) {
        device[i] = member_device(cost_cluster(k), p, &c->members[i]);
        if (device[i] < 0) nodes = 0;
    }
    if (nodes) nodes = nodes_of(cost_cluster(k), device, c->n_members);
    arena_free(a);
    return nodes;
}

int64_t collective_price_ns(const struct cost *k, const struct program *p,
                            const struct collective *c)
{
    int32_t ranks = c->stands_for ? c->stands_for : c->n_members;
    if (!cost_has_collectives(k) || ranks < 2 || c->algorithm == ALGORITHM_LOCAL ||
        c->kind == COLLECTIVE_ALL_TO_ALL)
        return -1;
    int32_t nodes = collective_nodes(k, p, c);
    int64_t elements = c->elements;
    if (collective_of_tensor(c) && c->algorithm == ALGORITHM_RING &&
        c->kind != COLLECTIVE_ALL_REDUCE)
        elements = c->n_members * c->most;
    return nodes ? cost_collective_ns(k, c->kind, c->algorithm, ranks, nodes,
                                      elements * dtype_bytes(c->dtype))
                 : -1;
}

int64_t collective_price_devices_ns(const struct cost *k, enum collective_kind kind,
                                    enum collective_algorithm algorithm, const int32_t *device,
                                    int32_t n, int64_t bytes)
{
    const struct cluster *c = cost_cluster(k);
    if (!cost_has_collectives(k) || c->emulated) return -1;
    int32_t nodes = nodes_of(c, device, n);
    return nodes ? cost_collective_ns(k, kind, algorithm, n, nodes, bytes) : -1;
}
