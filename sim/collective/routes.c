/* The cluster's links keep their indices; the route of two devices connected through switches is appended. Both are
 * cached, because a lookup in the cluster scans all links: an open hash by (lower, higher device), at most half full. */
#include "sim/collective/routes.h"

#include "core/base/arena.h"
#include "core/cluster/topology.h"

#include <string.h>

struct pair { /* of devices; low < high */
    int32_t low, high, link;
    int32_t upwards; /* direction from low to high */
};

struct collective_routes {
    struct arena *arena;
    const struct cluster *cluster;
    struct topology *topology;
    struct program program;
    size_t capacity; /* of its links */
    size_t n, n_slots;
    struct pair *slots; /* (n_slots), a power of two; high 0: empty */
};

struct collective_routes *collective_routes_new(struct arena *a, const struct cluster *c)
{
    struct collective_routes *w = ARENA_ARRAY(a, struct collective_routes, 1);
    *w = (struct collective_routes){.arena = a,
                                  .cluster = c,
                                  .topology = c->n_switches ? topology_new(a, c) : NULL,
                                  .capacity = (size_t)c->n_links,
                                  .n_slots = 64};
    w->slots = ARENA_ARRAY(a, struct pair, w->n_slots);
    w->program.n_links = c->n_links;
    w->program.links = ARENA_ARRAY(a, struct program_link, (size_t)c->n_links);
    for (int32_t i = 0; i < c->n_links; i++)
        w->program.links[i] = (struct program_link){.name = c->links[i].name,
                                                    .bandwidth_Bps = c->links[i].bandwidth_Bps,
                                                    .latency_s = c->links[i].latency_s,
                                                    .half_duplex = c->links[i].half_duplex,
                                                    .emulated = c->emulated,
                                                    .sharing = (int32_t)c->links[i].sharing};
    return w;
}

static struct pair *slot_of(const struct collective_routes *w, int32_t low, int32_t high)
{
    size_t at =
        (size_t)(((uint64_t)low << 32 | (uint32_t)high) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (;; at++) {
        struct pair *p = &w->slots[at & (w->n_slots - 1)];
        if (!p->high || (p->low == low && p->high == high)) return p;
    }
}

static void grow(struct collective_routes *w)
{
    struct pair *old = w->slots;
    size_t n = w->n_slots;
    w->n_slots *= 2;
    w->slots = ARENA_ARRAY(w->arena, struct pair, w->n_slots);
    for (size_t i = 0; i < n; i++)
        if (old[i].high) *slot_of(w, old[i].low, old[i].high) = old[i];
}

/* The route of two devices, as one more link; -1 if there is none. */
static int32_t new_route(struct collective_routes *w, int32_t low, int32_t high)
{
    struct route algorithm;
    struct program *p = &w->program;
    if (!topology_route(w->topology, low, high, &algorithm)) return -1;
    p->links = arena_grow(w->arena, p->links, (size_t)p->n_links, &w->capacity, sizeof *p->links);
    p->links[p->n_links] = (struct program_link){
        .name = arena_printf(w->arena, "%s to %s", w->cluster->devices[low].name,
                             w->cluster->devices[high].name),
        .emulated = w->cluster->emulated,
        .sharing = LINK_FAIR,
        .n_hops = algorithm.n_hops,
        .hop = algorithm.link,
        .hop_direction = algorithm.towards};
    return p->n_links++;
}

bool collective_routes_find(struct collective_routes *w, int32_t from, int32_t to, int32_t *link,
                    int32_t *direction)
{
    *link = -1, *direction = 0;
    if (from == to) return true;
    int32_t low = from < to ? from : to, high = from < to ? to : from;
    struct pair *p = slot_of(w, low, high);
    if (!p->high) {
        if (2 * ++w->n > w->n_slots) {
            grow(w);
            p = slot_of(w, low, high);
        }
        *p = (struct pair){.low = low, .high = high};
        p->link = cluster_link(w->cluster, low, high, &p->upwards);
        if (p->link < 0) p->upwards = 0;
        if (p->link < 0 && w->topology) p->link = new_route(w, low, high);
    }
    *direction = from < to ? p->upwards : !p->upwards;
    *link = p->link;
    return *link >= 0;
}

const struct program *collective_routes_program(const struct collective_routes *w)
{
    return &w->program;
}

enum status collective_routes_cost(struct collective_routes *w, struct cost *k, int32_t from, int32_t to,
                                struct cost_link *out, struct error *err)
{
    int32_t link, direction;
    *out = (struct cost_link){.bandwidth_Bps = 1};
    if (!collective_routes_find(w, from, to, &link, &direction))
        return error_set(err, ERR_INPUT, "no link between %s and %s",
                         w->cluster->devices[from].name, w->cluster->devices[to].name);
    if (link < 0) return OK;
    return cost_path(k, &w->program.links[link], link, out, err);
}
