/* planner/coarse/rings.c - routes between the stages of a pipeline; gradient all-reduces of a template's stages. */
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/coarse/line.h"

int32_t coarse_line_routes(struct coarse_line *l)
{
    for (int32_t i = 0; i + 1 < l->n; i++) {
        l->route[i] = device_graph_route(l->q->graph, l->device[i], l->device[i + 1],
                                         coarse_line_degree(l, i)->type, coarse_line_degree(l, i + 1)->type);
        if (!l->route[i]) return i;
    }
    return -1;
}

int64_t coarse_line_wire_bytes(const struct coarse_line *l, const struct stage_cost *c)
{
    enum dtype t = l->s->graph->dtype;
    if (!dtype_is_half(t)) return c->gradient_bytes;
    return c->gradient_bytes / dtype_bytes(dtype_master(t)) * dtype_bytes(t);
}

/* What a stage sends in an all-reduce of its gradients, or a reduce-scatter and an all-gather of its parameters, over very many replicas. */
static double ring_bytes(const struct coarse_line *l, const struct stage_cost *c)
{
    double wire = (double)coarse_line_wire_bytes(l, c);
    return l->zero ? wire + (double)c->parameter_bytes : 2 * wire;
}

/* The same of all GPUs of a stage together, to other nodes: GPUs that hold the same parameters send each byte once. *copies: such GPUs. */
static double stage_ring_bytes(const struct coarse_line *l, int32_t i, int32_t *copies)
{
    const struct coarse_stage *x = &l->stage[i];
    const struct coarse_class *k = &l->q->classes[x->of];
    const struct stage_cost *c = coarse_line_cost(l, i, x->first, x->last);
    int32_t n = coarse_line_degree(l, i)->n;
    double all = n * ring_bytes(l, c);
    *copies = 1;
    if (n == 1 || l->s->job->model.measured) return all;
    double once = ring_bytes(l, space_stage_type(l->s, k->type, x->first, x->last));
    *copies = (int32_t)(all / (once + 1) + 0.5);
    if (*copies < 1) *copies = 1;
    return all / *copies;
}

int64_t coarse_ring_ns(const struct coarse *q, const struct coarse_stage *x, const struct device_route *r)
{
    double most = 0;
    for (int32_t h = 0; h < r->n_hops; h++) {
        int64_t stages = units_min(x->rings, q->graph->below[r->hop[h] / 2] / x->ring_gpus);
        double ns = 1e9 * x->ring_bytes * (double)units_max(1, stages) / r->hop_Bps[h];
        if (ns > most) most = ns;
    }
    return (int64_t)most;
}

void coarse_line_set_rings(struct coarse_line *l, int32_t i)
{
    struct coarse_stage *x = &l->stage[i];
    const struct coarse_class *k = &l->q->classes[x->of];
    const struct stage_cost *c = coarse_line_cost(l, i, x->first, x->last);
    int32_t n = coarse_line_degree(l, i)->n, each = k->n / l->replicas;
    x->ring_bytes = stage_ring_bytes(l, i, &x->copies);
    x->rings = each / n, x->ring_gpus = l->by_stage ? l->replicas * n : n;
    x->sums = group_rings(l->s, coarse_line_degree(l, i)->type, x->first, x->last);
    x->reduce_ns = x->step_ns = 0;
    int32_t far = l->by_stage ? x->ring_gpus - n : k->n - each; /* first GPU of the last replica */
    if (far <= 0 && x->copies == 1) return; /* one replica: all others are of other classes */
    if (far <= 0) far = n / x->copies;      /* the next GPU of the stage that holds the same */
    bool inside = far < k->per_node;
    const struct device_route *r = device_graph_route(l->q->graph, k->device[0], k->device[far],
                                                      coarse_line_degree(l, i)->type, coarse_line_degree(l, i)->type);
    x->step_ns = r ? r->link.latency_ns : 0;
    x->reduce_ns = !r                ? INT64_MAX / 4
                   : inside || r->own ? (int64_t)(1e9 * ring_bytes(l, c) / r->link.bandwidth_Bps)
                                      : coarse_ring_ns(l->q, x, r);
}

/* --- gradient all-reduces over all teams --- */

/* The ring of the layers that are in one stage of every team: its time over the slowest route, without latency; the latency of a step; its
 * number, one after the other; members; the time before the end of the backward at which its gradients are complete; and the update. */
struct ring {
    int64_t ns, step_ns, n, members, lead_ns, update_ns;
};

static void add_route(struct ring *r, const struct device_route *route, int64_t ns)
{
    if (!route) return;
    r->ns = units_max(r->ns, ns);
    r->step_ns = units_max(r->step_ns, route->link.latency_ns);
}

/* at: (n) the stage of each team. */
static struct ring ring_of(const struct coarse *q, const struct coarse_template *const *team,
                           const int32_t *at, int32_t n, int32_t replicas)
{
    struct ring r = {.lead_ns = INT64_MAX, .members = 1};
    for (int32_t k = 0; k < n; k++) {
        const struct coarse_stage *x = &team[k]->stages[at[k]];
        int64_t members = (int64_t)replicas * x->copies;
        r.ns = units_max(r.ns, x->reduce_ns), r.step_ns = units_max(r.step_ns, x->step_ns);
        r.n = units_max(r.n, x->sums), r.members = units_max(r.members, members);
        r.lead_ns = units_min(r.lead_ns, x->lead_ns);
        r.update_ns = units_max(r.update_ns, team[k]->zero ? x->update_ns / members : x->update_ns);
        for (int32_t j = 0; j < n; j++) {
            const struct device_route *route = q->crossing[x->of][team[j]->stages[at[j]].of];
            if (j != k && route) add_route(&r, route, coarse_ring_ns(q, x, route));
        }
    }
    return r;
}

/* From the last layers to the first, as stages launch them. The rings of one stage follow each other, and two teams that are cut at different
 * layers make a chain of all their rings. */
int64_t coarse_tail_ns(const struct coarse *q, const struct coarse_template *const *team, int32_t n,
                       int32_t replicas)
{
    int32_t at[COARSE_CLASSES], end = team[0]->stages[team[0]->n_stages - 1].last;
    int64_t most = 0, done = INT64_MIN / 2;
    for (int32_t k = 0; k < n; k++) at[k] = team[k]->n_stages - 1;
    while (end >= 0) {
        int32_t first = 0, longest = 1;
        struct ring r = ring_of(q, team, at, n, replicas);
        bool goes_on = false;
        for (int32_t k = 0; k < n; k++) {
            const struct coarse_stage *x = &team[k]->stages[at[k]];
            first = (int32_t)units_max(first, x->first);
            longest = (int32_t)units_max(longest, x->last - x->first + 1);
        }
        int64_t steps = 2 * (r.members - 1);
        double part = (double)(r.members - 1) / (double)r.members * (end - first + 1) / longest;
        done = units_max(done, -r.lead_ns) + (int64_t)((double)r.ns * part) + r.n * steps * r.step_ns;
        most = units_max(most, units_max(0, done) + r.update_ns);
        for (int32_t k = 0; k < n; k++) {
            goes_on |= team[k]->stages[at[k]].first < first;
            at[k] -= team[k]->stages[at[k]].first == first;
        }
        if (!goes_on) done = INT64_MIN / 2;
        end = first - 1;
    }
    return most;
}
