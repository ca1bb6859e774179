#include "planner/candidate/space.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/cluster/topology.h"
#include "planner/candidate/group.h"

/* i and j are interchangeable if an exchange does not change the cost of any plan: equal types, equal message times to and
 * from every third device, and equal times between them in both directions. */
static bool same_link(const struct space *s, int32_t a, int32_t b, int32_t c, int32_t d)
{
    const struct cost_link *x = space_link(s, a, b), *y = space_link(s, c, d);
    if (!x || !y) return !x && !y;
    return x->bandwidth_Bps == y->bandwidth_Bps && x->latency_ns == y->latency_ns;
}

/* Links are shared resources, so the links must be identical too, unless both are dedicated. */
static bool owns(const struct cluster *c, int32_t device, int32_t link)
{
    const struct link *l = &c->links[link];
    return (l->kind[0] == END_DEVICE && l->end[0] == device) ||
           (l->kind[1] == END_DEVICE && l->end[1] == device);
}

/* Two links of equal cost, one used by i only, the other by j only. */
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

static void find_links(struct arena *a, struct space *s)
{
    struct arena *own = arena_new();
    size_t n = (size_t)s->n_devices;
    const struct cost_link **link = ARENA_ARRAY(a, const struct cost_link *, n *n);
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            link[i * n + j] = device_graph_link(s->devices, (int32_t)i, (int32_t)j);
    s->link = link;
    find_classes(s, topology_new(own, s->cluster));
    arena_free(own);
}

/* Usually only weight gradients follow the producer of the gradient for the layer before. A layer is early if not, or if it
 * forwards another layer's gradient. */
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

/* Lower bound of the bytes between two devices: GPUs that share positions send a shard each. */
static void find_cuts(struct arena *a, struct space *s)
{
    s->cut_bytes = ARENA_ARRAY(a, int64_t, (size_t)s->n_layers);
    s->late_bytes = ARENA_ARRAY(a, int64_t, (size_t)s->n_layers);
    for (int32_t i = 0; i < s->graphs.n; i++) {
        const struct layer_crossing *x = layer_classes_crossings(a, s->graphs.graphs[i]);
        for (int32_t l = 0; l + 1 < s->n_layers; l++) {
            int64_t *all = &s->cut_bytes[l], *late = &s->late_bytes[l];
            *all = i ? units_min(*all, x[l].activation_bytes) : x[l].activation_bytes;
            *late = i ? units_min(*late, x[l].min_late_bytes) : x[l].min_late_bytes;
        }
    }
}

/* Prices each type's operators, so that operators missing in the profile are reported here and later stage costs cannot
 * fail. */
static enum status make_table(struct arena *a, struct space *s, const struct lower_options *lower,
                              struct error *err)
{
    s->table = stage_table_new(a, s->graph, s->cost, &s->job->optimizer);
    stage_table_fused(s->table, lower->fused, lower->n_fused);
    s->stage = ARENA_ARRAY(a, struct stage_cost **, (size_t)s->n_types * (size_t)s->n_layers);
    for (int32_t t = 0; t < s->n_types; t++) {
        struct stage_cost whole;
        TRY(stage_table_cost(s->table, 0, s->n_layers - 1, t, &whole, err));
    }
    return OK;
}

const struct stage_cost *space_price(const struct space *s, int32_t type, int32_t first,
                                     int32_t last)
{
    struct stage_cost ***row = &s->stage[type * s->n_layers + first], **chunk, *out;
    struct error why;
    if (!*row) {
        size_t n = (size_t)(s->n_layers + SPACE_CHUNK - 1) / SPACE_CHUNK;
        *row = ARENA_ARRAY(s->arena, struct stage_cost *, n);
    }
    chunk = &(*row)[last / SPACE_CHUNK];
    if (!*chunk) {
        *chunk = ARENA_ARRAY(s->arena, struct stage_cost, SPACE_CHUNK);
        for (int32_t l = 0; l < SPACE_CHUNK; l++) (*chunk)[l].parameter_bytes = -1;
    }
    out = &(*chunk)[last % SPACE_CHUNK];
    if (out->parameter_bytes >= 0) return out;
    if (stage_table_cost(group_table(s, type), first, last, type, out, &why) != OK)
        BUG("a stage of priced operators has no price: %s", why.text);
    group_borders(s, type, first, last, out);
    return out;
}

static void find_ties(struct space *s)
{
    int32_t *ties = ARENA_ARRAY(s->arena, int32_t, (size_t)s->n_layers + 1);
    for (int32_t l = 0; l < s->n_layers; l++)
        ties[l + 1] = ties[l] + (group_tied_bytes(s, 0, l, l) > 0);
    if (ties[s->n_layers]) s->ties = ties;
}

enum status space_make(struct arena *a, const struct job *j, const struct cluster *c,
                       struct cost *k, int64_t microbatch, const struct lower_options *lower,
                       struct space *out, struct error *err)
{
    return space_make_on(a, j, c, k, NULL, microbatch, lower, out, err);
}

enum status space_make_on(struct arena *a, const struct job *j, const struct cluster *c,
                          struct cost *k, struct device_graph *devices, int64_t microbatch,
                          const struct lower_options *lower, struct space *out, struct error *err)
{
    *out = (struct space){.arena = a,
                          .job = j,
                          .cluster = c,
                          .cost = k,
                          .lower = lower,
                          .devices = devices,
                          .microbatch = microbatch,
                          .n_types = c->n_types,
                          .n_devices = c->n_devices,
                          .microbatches = (int32_t)(j->global_batch / microbatch)};
    TRY(lower_graphs_make(a, j, microbatch, lower, &out->graphs, err));
    out->graph = out->graphs.graphs[0];
    out->n_layers = out->graph->n_layers;
    out->classes = layer_classes_new(a, out->graph);
    find_cuts(a, out);
    find_early(a, out);
    TRY(make_table(a, out, lower, err));
    find_ties(out);
    if (!devices) TRY(device_graph_new(a, c, k, &out->devices, err));
    if (c->n_devices <= SPACE_TABLES_MAX) find_links(a, out);
    return OK;
}

bool space_awaits(const struct space *s)
{
    for (int32_t i = 0; i < s->cluster->n_links; i++)
        if (!s->cluster->links[i].blocking) return false;
    return true;
}

int64_t space_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut)
{
    const struct cost_link *l = space_link(s, from, to);
    return cost_occupancy_ns(l, s->cut_bytes[cut]) + l->latency_ns;
}

int64_t space_least_transfer_ns(const struct space *s, int32_t from, int32_t to, int32_t cut)
{
    const struct cost_link *l = space_link(s, from, to);
    return cost_occupancy_ns(l, s->late_bytes[cut]) + l->latency_ns;
}

static int64_t late_ns(const struct space *s, int32_t type, int32_t first, int32_t last)
{
    const struct stage_cost *c = space_stage_type(s, type, first, last);
    if (first == 0) return 0;
    if (s->early[first]) return c->input_ns + c->weight_ns;
    return space_stage_type(s, type, first, first)->weight_ns;
}

int64_t space_late_ns(const struct space *s, int32_t device, int32_t first, int32_t last)
{
    return late_ns(s, s->cluster->devices[device].type, first, last);
}

void space_stage_time(const struct space *s, int32_t device, int32_t first, int32_t last,
                      int32_t in_flight, struct space_stage_time *out)
{
    int32_t type = s->cluster->devices[device].type;
    const struct stage_cost *c = space_stage_type(s, type, first, last);
    int64_t memory = s->cluster->types[type].memory_bytes;
    int64_t fixed = c->parameter_bytes + c->gradient_bytes + c->state_bytes;
    *out = (struct space_stage_time){.forward_ns = c->forward_ns,
                                     .backward_ns = c->input_ns + c->weight_ns,
                                     .return_ns =
                                         c->input_ns + c->weight_ns - late_ns(s, type, first, last),
                                     .update_ns = c->update_ns,
                                     .recompute = fixed + in_flight * c->activation_bytes > memory};
    /* All inputs of a backward are alive at its start, kept or recomputed. */
    int64_t missing = fixed + c->activation_bytes - memory;
    if (missing > 0) out->missing_bytes = missing;
    if (!out->recompute) return;
    out->recompute_ns = c->recompute_ns;
    out->backward_ns += c->recompute_ns;
}

enum status space_shard_graphs(struct arena *a, struct space *s, const struct plan *p,
                               struct error *err)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++) {
            const struct plan_stage *x = &p->replicas[r].stages[i];
            for (int32_t k = 0; k < x->n_shards && x->sequences; k++) {
                const struct graph *g;
                TRY(lower_graphs_need(a, &s->graphs, s->job, s->lower, x->sequences[k], &g, err));
            }
        }
    return OK;
}
