#include "sim/engine/representatives.h"

#include "core/program/replicas.h"
#include "sim/collective/price.h"

/* What one message takes, as late as all links of a route together and as fast as the slowest of them; 0: no price. */
static double link_ns(const struct program *p, struct cost *k, int32_t link, int64_t bytes)
{
    const struct program_link *l = link < 0 ? NULL : &p->links[link];
    double latency = 0, longest = 0;
    for (int32_t i = 0; l && (i < l->n_hops || i < 1); i++) {
        int32_t at = l->n_hops ? l->hop[i] : link;
        struct cost_link c;
        if (cost_program_link(k, &p->links[at], at, &c, NULL) != OK) return 0;
        double ns = (double)cost_occupancy_ns(&c, bytes);
        latency += (double)c.latency_ns;
        if (ns > longest) longest = ns;
    }
    return latency + longest;
}

/* A hop of a ring stands for those of the members behind it that are left out: it is the slowest of them. */
static void take_slowest(const struct program *p, struct cost *k, const struct collective *g,
                         const bool *keep, struct collective *out)
{
    int64_t bytes = g->elements / g->n_members * dtype_bytes(g->dtype);
    int32_t at = -1, first = 0;
    while (!keep[p->stages[g->members[first].stage].replica]) first++;
    double most = -1;
    for (int32_t i = 0; g->link && i < g->n_members; i++) {
        int32_t m = (first + i) % g->n_members;
        if (keep[p->stages[g->members[m].stage].replica]) at++, most = -1;
        double ns = link_ns(p, k, g->link[m], bytes);
        if (ns <= most) continue;
        most = ns, out->link[at] = g->link[m], out->direction[at] = g->direction[m];
    }
}

bool representatives_make(struct arena *a, const struct program *p, struct cost *k,
                          const bool *keep, struct program *out)
{
    int32_t *of;
    if (p->server.n) return false; /* each worker has messages of its own */
    program_keep_replicas(a, p, keep, out, &of);
    for (int32_t i = 0; i < out->n_collectives; i++) {
        const struct collective *g = &p->collectives[of[i]];
        struct collective *x = &out->collectives[i];
        if (x->n_members == g->n_members) continue;
        if (program_collective_in_rounds(g)) return false;
        if (program_collective_rings(g)) take_slowest(p, k, g, keep, x);
        if (!x->stands_for) x->stands_ns = collective_price_ns(k, p, g, NULL);
        if (!x->stands_for) x->stands_for = g->n_members;
    }
    return true;
}
