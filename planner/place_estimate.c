/* How long a placed mix should take: what links carry, from hop to hop (planner/place.h). */
#include "planner/place.h"

#include "core/arena.h"

#include <string.h>

struct loads {
    const struct placed *x;
    const struct template_maker *m;
    const int32_t *first;            /* (n_replicas) of its stages in x's lists */
    double *ns;                      /* (2 · links) that each direction is busy */
    int32_t *rings;                  /* (2 · links) hops of the interval at hand */
    const struct device_route **way; /* (n_replicas) of the ring at hand */
    int32_t *flip;                   /* (n_replicas) 1: from the higher device to the lower */
    double *sums_ns; /* (2 · links) that each direction is busy with sums of gradients */
};

static const struct device_route *route(const struct loads *q, int32_t r, int32_t s, int32_t r2,
                                        int32_t s2)
{
    const struct plan_replica *a = &q->x->plan.replicas[r], *b = &q->x->plan.replicas[r2];
    return device_graph_route(q->m->g, a->stages[s].device, b->stages[s2].device,
                              q->m->kinds[q->x->kind[q->first[r] + s]].type,
                              q->m->kinds[q->x->kind[q->first[r2] + s2]].type);
}

static int32_t direction(const struct loads *q, int32_t r, int32_t s, int32_t r2, int32_t s2)
{
    return q->x->plan.replicas[r].stages[s].device > q->x->plan.replicas[r2].stages[s2].device;
}

static double link_Bps(const struct loads *q, int32_t hop, const struct device_route *r)
{
    struct cost_link l;
    struct error unheard;
    if (r->n_hops == 1) return r->link.bandwidth_Bps;
    return cost_link(q->m->s->cost, hop / 2, &l, &unheard) == OK ? l.bandwidth_Bps
                                                                 : r->link.bandwidth_Bps;
}

/* Activations and gradients of all microbatches. */
static void add_messages(struct loads *q, int32_t r)
{
    const struct plan_replica *x = &q->x->plan.replicas[r];
    for (int32_t s = 0; s + 1 < x->n_stages; s++) {
        const struct device_route *way = route(q, r, s, r, s + 1);
        double bytes =
            (double)x->microbatches * (double)q->m->s->cut_bytes[x->stages[s].last_layer];
        for (int32_t i = 0; way && !way->own && i < way->n_hops; i++)
            for (int32_t back = 0; back < 2; back++)
                q->ns[way->hop[i] ^ back] += 1e9 * bytes / link_Bps(q, way->hop[i], way);
    }
}

static int32_t owner(const struct plan_replica *r, int32_t layer)
{
    int32_t s = 0;
    while (r->stages[s].last_layer < layer) s++;
    return s;
}

/* Time of the ring over all replicas of layers first … last; what its hops add to the links' times. */
static double ring(struct loads *q, int32_t first, int32_t last)
{
    const struct plan *p = &q->x->plan;
    int32_t n = p->n_replicas;
    double slowest = 0, latency = 0, bytes = 0;
    for (int32_t r = 0; r < n; r++) {
        int32_t s = owner(&p->replicas[r], first), r2 = (r + 1) % n;
        int32_t s2 = owner(&p->replicas[r2], first);
        int32_t type = q->m->kinds[q->x->kind[q->first[r] + s]].type;
        double here = (double)space_stage_type(q->m->s, type, first, last)->parameter_bytes;
        const struct device_route *way = q->way[r] = route(q, r, s, r2, s2);
        q->flip[r] = direction(q, r, s, r2, s2);
        if (here > bytes) bytes = here;
        for (int32_t i = 0; way && !way->own && i < way->n_hops; i++)
            q->rings[way->hop[i] ^ q->flip[r]]++;
    }
    for (int32_t r = 0; r < n; r++) {
        const struct device_route *way = q->way[r];
        if (!way) continue;
        if (1 / way->link.bandwidth_Bps > slowest) slowest = 1 / way->link.bandwidth_Bps;
        for (int32_t i = 0; i < way->n_hops && !way->own; i++) {
            int32_t at = way->hop[i] ^ q->flip[r];
            double one = 1 / link_Bps(q, way->hop[i], way);
            if (q->rings[at] * one > slowest) slowest = q->rings[at] * one;
            q->sums_ns[at] += 2e9 * bytes * one;
        }
        if ((double)way->link.latency_ns > latency) latency = (double)way->link.latency_ns;
    }
    for (int32_t r = 0; r < n; r++)
        for (int32_t i = 0; q->way[r] && !q->way[r]->own && i < q->way[r]->n_hops; i++)
            q->rings[q->way[r]->hop[i] ^ q->flip[r]] = 0;
    return 2.0 * (n - 1) * (bytes / n * slowest * 1e9 + latency);
}

/* Rings of the intervals between the cuts of any replica; a device takes those of its stage one after the other. */
static double rings(struct loads *q, struct arena *a)
{
    const struct plan *p = &q->x->plan;
    int32_t layers = q->m->s->n_layers;
    bool *cut = ARENA_ARRAY(a, bool, (size_t)layers);
    double *until = ARENA_ARRAY(a, double, (size_t)layers + 1), longest = 0;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            cut[p->replicas[r].stages[s].last_layer] = true;
    for (int32_t l = 0, first = 0; l < layers; l++) {
        until[l + 1] = until[l];
        if (!cut[l]) continue;
        until[l + 1] += ring(q, first, l);
        first = l + 1;
    }
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++) {
            const struct plan_stage *x = &p->replicas[r].stages[s];
            double ns = until[x->last_layer + 1] - until[x->first_layer];
            if (ns > longest) longest = ns;
        }
    for (int32_t i = 0; i < 2 * q->m->g->cluster->n_links; i++)
        if (q->sums_ns[i] > longest) longest = q->sums_ns[i];
    return longest;
}

int64_t place_estimate(struct arena *a, const struct placed *x, const struct mix *mix)
{
    const struct template_maker *m = x->maker;
    const struct plan *p = &x->plan;
    size_t directions = 2 * (size_t)m->g->cluster->n_links;
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    struct loads q = {.x = x, .m = m, .first = first};
    q.ns = ARENA_ARRAY(a, double, directions);
    q.rings = ARENA_ARRAY(a, int32_t, directions);
    q.way = ARENA_ARRAY(a, const struct device_route *, (size_t)p->n_replicas);
    q.flip = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    q.sums_ns = ARENA_ARRAY(a, double, directions);
    for (int32_t r = 0, at = 0; r < p->n_replicas; r++) {
        first[r] = at;
        at += p->replicas[r].n_stages;
    }
    double t_ns = (double)mix->t_ns;
    for (int32_t r = 0; r < p->n_replicas; r++) add_messages(&q, r);
    for (size_t i = 0; i < directions; i++)
        if (q.ns[i] > t_ns) t_ns = q.ns[i];
    return (int64_t)(t_ns + (p->n_replicas > 1 ? rings(&q, a) : 0));
}
