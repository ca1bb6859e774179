#include "planner/space.h"

#include "core/arena.h"
#include "core/topology.h"

/* i and j are interchangeable where exchanging them changes nothing the search can see: same type,
 * and the same time of any message to and from every third device, and between them both ways. */
static bool same_link(const struct space *s, int32_t a, int32_t b, int32_t c, int32_t d)
{
    const struct cost_link *x = space_link(s, a, b), *y = space_link(s, c, d);
    if (space_linked(s, a, b) != space_linked(s, c, d)) return false;
    if (!space_linked(s, a, b)) return true;
    return x->bandwidth_Bps == y->bandwidth_Bps && x->latency_ns == y->latency_ns;
}

/* Links are shared resources: two devices whose messages queue on different links are only alike
 * where nobody else shares them, so the identity of the link must agree too, unless both have it to
 * themselves. */
static bool owns(const struct cluster *c, int32_t device, int32_t link)
{
    const struct link *l = &c->links[link];
    return (l->kind[0] == END_DEVICE && l->end[0] == device) ||
           (l->kind[1] == END_DEVICE && l->end[1] == device);
}

/* Two links that nobody crosses but i, and nobody but j, and that cost alike. */
static bool own_links(const struct cluster *c, int32_t i, int32_t a, int32_t j, int32_t b)
{
    const struct link *x = &c->links[a], *y = &c->links[b];
    return owns(c, i, a) && owns(c, j, b) && x->bandwidth_Bps == y->bandwidth_Bps &&
           x->latency_s == y->latency_s && x->half_duplex == y->half_duplex && x->stated &&
           y->stated;
}

static bool same_resource(const struct space *s, struct topology *t, int32_t i, int32_t j,
                          int32_t other)
{
    const struct cluster *c = s->cluster;
    struct route a, b;
    bool linked = topology_route(t, i, other, &a);
    if (linked != topology_route(t, j, other, &b)) return false;
    if (!linked) return true;
    if (a.n_hops != b.n_hops) return false;
    for (int32_t k = 0; k < a.n_hops; k++)
        if (a.link[k] != b.link[k] && (a.n_hops == 1 || !own_links(c, i, a.link[k], j, b.link[k])))
            return false;
    return true;
}

static bool interchangeable(const struct space *s, struct topology *t, int32_t i, int32_t j)
{
    const struct device *d = s->cluster->devices;
    if (d[i].type != d[j].type || !same_link(s, i, j, j, i)) return false;
    for (int32_t k = 0; k < s->n_devices; k++) {
        if (k == i || k == j) continue;
        if (!same_link(s, i, k, j, k) || !same_link(s, k, i, k, j) || !same_resource(s, t, i, j, k))
            return false;
    }
    return true;
}

static void find_classes(struct space *s, struct topology *t)
{
    for (int32_t i = 0; i < s->n_devices; i++) {
        s->class_of[i] = i;
        for (int32_t j = 0; j < i; j++)
            if (interchangeable(s, t, i, j)) {
                s->class_of[i] = s->class_of[j];
                break;
            }
    }
}

/* A message on several links goes at the pace of the slowest and arrives after all their latencies (sim/network.h). */
static enum status route_cost(const struct space *s, int32_t from, int32_t to,
                              const struct route *r, struct cost_link *out, struct error *err)
{
    const struct device *d = s->cluster->devices;
    TRY(cost_link_of(s->cost, r->link[0], d[from].type, d[to].type, out, err));
    for (int32_t i = 1; i < r->n_hops; i++) {
        struct cost_link hop;
        TRY(cost_link(s->cost, r->link[i], &hop, err));
        if (hop.bandwidth_Bps < out->bandwidth_Bps) out->bandwidth_Bps = hop.bandwidth_Bps;
        out->latency_ns += hop.latency_ns;
    }
    return OK;
}

static enum status find_links(struct arena *a, struct space *s, struct error *err)
{
    size_t n = (size_t)s->n_devices * (size_t)s->n_devices;
    struct arena *own = arena_new();
    struct topology *t = topology_new(own, s->cluster);
    enum status st = OK;
    s->linked = ARENA_ARRAY(a, bool, n);
    s->link = ARENA_ARRAY(a, struct cost_link, n);
    for (int32_t i = 0; i < s->n_devices; i++)
        for (int32_t j = i + 1; j < s->n_devices && st == OK; j++) {
            struct route r;
            size_t at = (size_t)i * (size_t)s->n_devices + (size_t)j,
                   back = (size_t)j * (size_t)s->n_devices + (size_t)i;
            s->linked[at] = s->linked[back] = topology_route(t, i, j, &r);
            if (s->linked[at]) st = route_cost(s, i, j, &r, &s->link[at], err);
            s->link[back] = s->link[at];
        }
    if (st == OK && s->n_devices <= SPACE_DEVICES_MAX) find_classes(s, t);
    arena_free(own);
    return st;
}

/* Behind the operator that makes the gradient which crosses to the layer before, a layer computes
 * weight gradients only; where it does not, or passes another layer's gradient on, it is early. */
static void find_early(struct arena *a, struct space *s)
{
    const struct graph *g = s->graph;
    s->early = ARENA_ARRAY(a, bool, (size_t)s->n_layers);
    int32_t *last = ARENA_ARRAY(a, int32_t, (size_t)s->n_layers); /* not of weights */
    bool *crosses = ARENA_ARRAY(a, bool, (size_t)g->n_tensors);
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        int32_t layer = g->ops[i].layer;
        if (g->ops[i].phase != PHASE_W) last[layer] = i;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            const struct tensor *t = &g->tensors[g->ops[i].input[k]];
            bool gradient = t->role == TENSOR_GRADIENT && t->producer >= g->n_forward;
            if (gradient && g->ops[t->producer].layer > layer) crosses[g->ops[i].input[k]] = true;
        }
    }
    for (int32_t l = 0; l < s->n_layers; l++) {
        s->early[l] = true;
        const struct graph_op *op = &g->ops[last[l]];
        for (int32_t k = 0; last[l] && k < op->n_outputs; k++)
            if (crosses[op->output[k]]) s->early[l] = false;
    }
}

/* What crosses after a layer between any two devices, at least: cards that share positions send a share each. */
static int64_t least_bytes(const struct lower_graphs *graphs, int32_t layer)
{
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < graphs->n; i++) {
        const struct graph *g = graphs->graphs[i];
        int64_t bytes = graph_cut_bytes(g, &g->cut[layer]);
        least = bytes < least ? bytes : least;
    }
    return least;
}

enum status space_make(struct arena *a, const struct job *j, const struct cluster *c,
                       struct cost *k, int64_t microbatch, const struct lower_options *lower,
                       struct space *out, struct error *err)
{
    *out = (struct space){.job = j,
                          .cluster = c,
                          .cost = k,
                          .microbatch = microbatch,
                          .n_types = c->n_types,
                          .n_devices = c->n_devices,
                          .microbatches = (int32_t)(j->global_batch / microbatch)};
    TRY(lower_graphs_make(a, j, c, microbatch, lower, &out->graphs, err));
    out->graph = out->graphs.graphs[0];
    int32_t n = out->n_layers = out->graph->n_layers;
    out->cut_bytes = ARENA_ARRAY(a, int64_t, (size_t)n);
    for (int32_t i = 0; i + 1 < n; i++) out->cut_bytes[i] = least_bytes(&out->graphs, i);
    find_early(a, out);
    struct stage_table *table = stage_table_new(a, out->graph, k, &j->optimizer);
    stage_table_graphs(table, &out->graphs);
    stage_table_fused(table, lower->fused, lower->n_fused);
    out->stage = ARENA_ARRAY(a, struct stage_cost, (size_t)c->n_types * (size_t)n * (size_t)n);
    for (int32_t t = 0; t < c->n_types; t++)
        for (int32_t first = 0; first < n; first++)
            for (int32_t last = first; last < n; last++)
                TRY(sim_stage(table, first, last, t,
                              &out->stage[((int64_t)t * n + first) * n + last], err));
    return find_links(a, out, err);
}

int64_t space_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut)
{
    const struct cost_link *l = space_link(s, from, to);
    return cost_occupancy_ns(l, s->cut_bytes[cut]) + l->latency_ns;
}

int64_t space_late_ns(const struct space *s, int32_t device, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage(s, device, first, last);
    if (first == 0) return 0;
    if (s->early[first]) return c->input_ns + c->weight_ns;
    return space_stage(s, device, first, first)->weight_ns;
}

void space_stage_time(const struct space *s, int32_t device, int32_t first, int32_t last,
                      int32_t in_flight, struct space_stage_time *out)
{
    const struct stage_cost *c = space_stage(s, device, first, last);
    int64_t memory = s->cluster->types[s->cluster->devices[device].type].memory_bytes;
    int64_t fixed = c->parameter_bytes + c->gradient_bytes + c->state_bytes;
    *out = (struct space_stage_time){.forward_ns = c->forward_ns,
                                     .backward_ns = c->input_ns + c->weight_ns,
                                     .return_ns = c->input_ns + c->weight_ns -
                                                  space_late_ns(s, device, first, last),
                                     .update_ns = c->update_ns,
                                     .recompute = fixed + in_flight * c->activation_bytes > memory};
    /* All that a backward reads is alive when it begins, kept or computed again. */
    int64_t missing = fixed + c->activation_bytes - memory;
    if (missing > 0) out->missing_bytes = missing;
    if (!out->recompute) return;
    out->recompute_ns = c->recompute_ns;
    out->backward_ns += c->recompute_ns;
}
