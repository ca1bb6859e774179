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
