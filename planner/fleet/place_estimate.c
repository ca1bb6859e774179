/* Estimate of a placed mix from the load of its links (planner/fleet/place.h). */
#include "planner/fleet/place.h"

#include "core/base/arena.h"

#include <string.h>

struct loads {
    const struct placed *x;
    const struct template_maker *m;
    const int32_t *first;            /* (n_replicas) offset of its stages in x's lists */
    double *ns;                      /* (2 · links) busy time of each direction */
    int32_t *rings;                  /* (2 · links) hops of the current interval */
    const struct device_route **path; /* (n_replicas) of the current ring */
    int32_t *flip;                   /* (n_replicas) 1: from the higher device to the lower */
    int32_t *owner;                  /* (n_replicas) stage with the current interval */
    double *reduce_ns; /* (2 · links) busy time of each direction in gradient all-reduces */
};

static const struct device_route *route(const struct loads *q, int32_t r, int32_t s, int32_t r2,
                                        int32_t s2)
{
    const struct plan_replica *a = &q->x->plan.replicas[r], *b = &q->x->plan.replicas[r2];
    return device_graph_route(q->m->g, a->stages[s].device, b->stages[s2].device,
                              q->m->classes[q->x->device_class[q->first[r] + s]].type,
                              q->m->classes[q->x->device_class[q->first[r2] + s2]].type);
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
        const struct device_route *path = route(q, r, s, r, s + 1);
        double bytes =
            (double)x->microbatches * (double)q->m->s->cut_bytes[x->stages[s].last_layer];
        for (int32_t i = 0; path && !path->own && i < path->n_hops; i++)
            for (int32_t back = 0; back < 2; back++)
                q->ns[path->hop[i] ^ back] += 1e9 * bytes / link_Bps(q, path->hop[i], path);
    }
}

/* Time of one ring step in which every member sends `bytes`: the measured time of its links, or the load of hops that it
 * uses several times. */
static double ring_step(const struct loads *q, double bytes)
{
    double slowest = 0;
    for (int32_t r = 0; r < q->x->plan.n_replicas; r++) {
        const struct device_route *path = q->path[r];
        if (!path) continue;
        double ns = (double)cost_occupancy_ns(&path->link, (int64_t)bytes);
        for (int32_t i = 0; i < path->n_hops && !path->own; i++) {
            double shared =
                q->rings[path->hop[i] ^ q->flip[r]] * bytes * 1e9 / link_Bps(q, path->hop[i], path);
            if (shared > ns) ns = shared;
        }
        ns += (double)path->link.latency_ns;
        if (ns > slowest) slowest = ns;
    }
    return slowest;
}

/* Time of the ring all-reduce of layers first … last over all replicas; adds the load of its hops. */
static double ring(struct loads *q, int32_t first, int32_t last)
{
    const struct plan *p = &q->x->plan;
    int32_t n = p->n_replicas;
    double bytes = 0;
    for (int32_t r = 0; r < n; r++) {
        int32_t s = q->owner[r], r2 = (r + 1) % n, s2 = q->owner[r2];
        const struct template_class *k = &q->m->classes[q->x->device_class[q->first[r] + s]];
        double here = (double)space_stage_type(q->m->s, k->type, first, last)->parameter_bytes;
        if (q->m->s->job->model.measured) here *= k->tp; /* priced per GPU, sent as one device */
        const struct device_route *path = q->path[r] = route(q, r, s, r2, s2);
        q->flip[r] = direction(q, r, s, r2, s2);
        if (here > bytes) bytes = here;
        for (int32_t i = 0; path && !path->own && i < path->n_hops; i++)
            q->rings[path->hop[i] ^ q->flip[r]]++;
    }
    double step = ring_step(q, bytes / n);
    for (int32_t r = 0; r < n; r++) {
        const struct device_route *path = q->path[r];
        for (int32_t i = 0; path && !path->own && i < path->n_hops; i++) {
            int32_t at = path->hop[i] ^ q->flip[r];
            q->reduce_ns[at] += 2e9 * bytes / link_Bps(q, path->hop[i], path);
            q->rings[at] = 0;
        }
    }
    return 2.0 * (n - 1) * step;
}

/* End of the last ring; one ring per interval between the cuts of any replica. until: (n_stages) time of each stage's
 * gradients. A device runs the rings of its stage in sequence, and each ring waits for all its members, so different cuts
 * delay each other. */
static double rings(struct loads *q, struct arena *a, double *until)
{
    const struct plan *p = &q->x->plan;
    int32_t layers = q->m->s->n_layers;
    bool *cut = ARENA_ARRAY(a, bool, (size_t)layers);
    double longest = 0;
    q->owner = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            cut[p->replicas[r].stages[s].last_layer] = true;
    for (int32_t l = 0, first = 0; l < layers; l++) {
        if (!cut[l]) continue;
        double begin = 0;
        for (int32_t r = 0; r < p->n_replicas; r++) {
            while (p->replicas[r].stages[q->owner[r]].last_layer < first) q->owner[r]++;
            double ready = until[q->first[r] + q->owner[r]];
            if (ready > begin) begin = ready;
        }
        double end = begin + ring(q, first, l);
        for (int32_t r = 0; r < p->n_replicas; r++) until[q->first[r] + q->owner[r]] = end;
        if (end > longest) longest = end;
        first = l + 1;
    }
    for (int32_t i = 0; i < 2 * q->m->g->cluster->n_links; i++)
        if (q->reduce_ns[i] > longest) longest = q->reduce_ns[i];
    return longest;
}

/* --- replicas whose messages block compute streams --------------------------------------------- */

struct pace { /* of a placed replica */
    int64_t fill_ns, tau_ns;
};

/* Template times assume neighbours on one node; the placement gives the crossings between nodes. */
static struct pace pace_of(const struct loads *q, int32_t r)
{
    const struct plan_replica *x = &q->x->plan.replicas[r];
    const int32_t *device_class = &q->x->device_class[q->first[r]];
    struct pace out = {0, 1};
    int64_t tail = 0, before = 0; /* before: work that remains after the last message */
    for (int32_t s = 0; s < x->n_stages; s++) {
        const struct plan_stage *y = &x->stages[s];
        const struct stage_cost *c =
            space_stage_type(q->m->s, q->m->classes[device_class[s]].type, y->first_layer, y->last_layer);
        int64_t work = c->forward_ns + c->input_ns + c->weight_ns, once = before;
        if (y->recompute) work += c->recompute_ns;
        once += work, work += before;
        if (s + 1 < x->n_stages) {
            const struct device_route *path = route(q, r, s, r, s + 1);
            int64_t here = template_busy_on(q->m, device_class[s], path, y->last_layer);
            before = template_busy_on(q->m, device_class[s + 1], path, y->last_layer);
            work += here;
            once +=
                here - 2 * (path ? cost_occupancy_ns(&path->link, q->m->s->cut_bytes[y->last_layer]) +
                                      path->link.latency_ns
                                : 0);
        }
        out.fill_ns += once;
        if (work > out.tau_ns) out.tau_ns = work;
        if (c->update_ns > tail) tail = c->update_ns;
    }
    out.fill_ns += tail;
    return out;
}

/* Microbatches of all replicas together within T. */
static int64_t done_by(const struct pace *pace, int32_t n, int64_t t_ns)
{
    int64_t done = 0;
    for (int32_t r = 0; r < n; r++)
        done += t_ns < pace[r].fill_ns ? 1 : (t_ns - pace[r].fill_ns) / pace[r].tau_ns + 1;
    return done;
}

/* Later stages have their gradients earlier by the remaining backwards of the stages before them. */
static void ready_times(struct loads *q, int32_t r, double ns, double *until)
{
    const struct plan_replica *x = &q->x->plan.replicas[r];
    for (int32_t s = 0; s < x->n_stages; s++) {
        const struct plan_stage *y = &x->stages[s];
        int32_t type = q->m->classes[q->x->device_class[q->first[r] + s]].type;
        const struct stage_cost *c = space_stage_type(q->m->s, type, y->first_layer, y->last_layer);
        until[q->first[r] + s] = ns;
        ns -= (double)(c->input_ns + c->weight_ns + (y->recompute ? c->recompute_ns : 0));
    }
}

/* Balances the shares of the placed replicas; returns the time of the slowest. */
static int64_t share_placed(struct loads *q, struct arena *a, struct plan *p, double *until)
{
    struct pace *pace = ARENA_ARRAY(a, struct pace, (size_t)p->n_replicas);
    int64_t all = q->m->s->microbatches, low = 0, high = 0, slowest = 0, over;
    for (int32_t r = 0; r < p->n_replicas; r++) {
        pace[r] = pace_of(q, r);
        int64_t ns = pace[r].fill_ns + (p->replicas[r].microbatches - 1) * pace[r].tau_ns;
        if (ns > high) high = ns;
    }
    while (low < high) {
        int64_t t = low + (high - low) / 2;
        if (done_by(pace, p->n_replicas, t) >= all)
            high = t;
        else
            low = t + 1;
    }
    over = done_by(pace, p->n_replicas, high) - all;
    for (int32_t r = p->n_replicas - 1; r >= 0; r--) {
        int64_t n = high < pace[r].fill_ns ? 1 : (high - pace[r].fill_ns) / pace[r].tau_ns + 1;
        if (n > 1 && over > 0) n--, over--;
        p->replicas[r].microbatches = (int32_t)n;
        int64_t ns = pace[r].fill_ns + (n - 1) * pace[r].tau_ns;
        ready_times(q, r, (double)ns, until);
        if (ns > slowest) slowest = ns;
    }
    return slowest;
}

static bool any_blocking(const struct template_maker *m)
{
    for (int32_t i = 0; i < m->n_classes * m->n_classes; i++)
        if (m->near[i] && m->near[i]->blocking) return true;
    return false;
}

int64_t place_estimate(struct arena *a, struct placed *x, const struct mix *mix)
{
    const struct template_maker *m = x->maker;
    struct plan *p = &x->plan;
    size_t directions = 2 * (size_t)m->g->cluster->n_links;
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    struct loads q = {.x = x, .m = m, .first = first};
    q.ns = ARENA_ARRAY(a, double, directions);
    q.rings = ARENA_ARRAY(a, int32_t, directions);
    q.path = ARENA_ARRAY(a, const struct device_route *, (size_t)p->n_replicas);
    q.flip = ARENA_ARRAY(a, int32_t, (size_t)p->n_replicas);
    q.reduce_ns = ARENA_ARRAY(a, double, directions);
    for (int32_t r = 0, at = 0; r < p->n_replicas; r++) {
        first[r] = at;
        at += p->replicas[r].n_stages;
    }
    double *until = ARENA_ARRAY(a, double, (size_t)x->n_stages), t_ns = (double)mix->t_ns;
    bool blocking = any_blocking(m);
    if (blocking) t_ns = (double)share_placed(&q, a, p, until);
    for (int32_t r = 0; r < p->n_replicas; r++) add_messages(&q, r);
    for (size_t i = 0; i < directions; i++)
        if (q.ns[i] > t_ns) t_ns = q.ns[i];
    double sums = p->n_replicas > 1 ? rings(&q, a, until) : 0;
    if (!blocking) sums += t_ns;
    return (int64_t)(sums > t_ns ? sums : t_ns);
}
