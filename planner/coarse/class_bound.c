/* planner/coarse/class_bound.c - lower bound of the plans of equal pipelines, from the prices of the search (planner/bound/groups.h). */
#include "planner/coarse/internal.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "core/base/units.h"
#include "core/model/measured.h"
#include "planner/bound/cluster.h"
#include "planner/bound/groups.h"
#include "planner/bound/kept.h"
#include "planner/candidate/group.h"
#include "planner/spmd_stage/tp_options.h"

#include <math.h>
#include <stdbool.h>

/* The fastest links from a GPU of a class to others of its node, and from its node to others. */
struct reach {
    double near_ns, far_ns, near_Bps, far_Bps; /* least time of a message; most bytes a second */
    bool bus;                                  /* all GPUs of the node share one link */
};

/* The least bandwidth of the links that a message shares with all others of its node. */
static double node_Bps(const struct coarse *q, const struct device_route *r, int32_t devices)
{
    double least = INFINITY;
    for (int32_t h = 0; h < r->n_hops && !r->own; h++)
        if (q->graph->below[r->hop[h] / 2] >= devices) least = fmin(least, r->hop_Bps[h]);
    return least;
}

static struct reach reach_of(const struct coarse *q, const struct coarse_class *k, int64_t bytes)
{
    const struct cluster *c = q->task->cluster;
    int32_t node = c->devices[k->device[0]].node;
    struct reach x = {INFINITY, INFINITY, 0, 0, false};
    for (const struct coarse_class *y = q->classes; y < q->classes + q->n_classes; y++)
        for (int32_t i = y == k; i < y->n; i += i < y->per_node ? 1 : y->n) {
            const struct device_route *r =
                device_graph_route(q->graph, k->device[0], y->device[i], k->type, y->type);
            if (!r) continue;
            bool near = c->devices[y->device[i]].node == node;
            double *ns = near ? &x.near_ns : &x.far_ns, *Bps = near ? &x.near_Bps : &x.far_Bps;
            double fast = near ? r->link.bandwidth_Bps : node_Bps(q, r, c->nodes[node].n_devices);
            *ns = fmin(*ns, (double)(cost_occupancy_ns(&r->link, bytes) + r->link.latency_ns));
            *Bps = fmax(*Bps, fast);
            if (near) x.bus = r->n_hops == 1 && c->links[r->hop[0] / 2].n_ends == 1;
        }
    return x;
}

/* Messages to a stage on the same node and on another; 0: no link. A node has room for some stages of an option; the message behind
 * the last of them leaves it. */
static void set_messages(const struct reach *x, int32_t n, int32_t node_devices,
                         struct bound_group_option *o)
{
    double near = fmin(x->near_ns, x->far_ns), far = isinf(x->far_ns) ? near : x->far_ns;
    o->near_message_ns = isinf(near) ? 0 : near, o->far_message_ns = isinf(near) ? 0 : far;
    o->node_part = 2 * n > node_devices ? 1 : (double)n / node_devices;
    o->copies = node_devices / n, o->bus = x->bus;
}

static double border_ns(const struct space *s, int32_t type)
{
    struct stage_cost one = {0};
    if (s->n_layers > 1) group_borders(s, type, 1, s->n_layers - 1, &one);
    return (double)(one.forward_ns + one.input_ns);
}

static int64_t least_scratch(const struct space *s, int32_t type)
{
    int64_t least = INT64_MAX;
    for (int32_t l = 0; l < s->n_layers; l++)
        least = units_min(least, space_stage_type(s, type, l, l)->scratch_bytes);
    return least;
}

static int64_t least_cut(const struct space *s)
{
    int64_t least = INT64_MAX;
    for (int32_t l = 0; l + 1 < s->n_layers; l++) least = units_min(least, s->late_bytes[l]);
    return s->n_layers > 1 ? least : 0;
}

/* Gradients, or what of them and of the parameters is sent at least under ZeRO, of one layer. */
static int64_t wire_bytes(const struct space *s, const struct stage_cost *c)
{
    int64_t bytes = c->gradient_bytes;
    if (cost_prices_collectives(s->cost)) return 0; /* on no link */
    if (dtype_is_half(s->graph->dtype))
        bytes = bytes / dtype_bytes(dtype_master(s->graph->dtype)) * dtype_bytes(s->graph->dtype);
    return units_min(bytes, c->parameter_bytes);
}

/* GPUs of a group that hold the same parameters, at least. */
static int32_t holders_of(const struct space *s, const struct coarse_class *k,
                          const struct coarse_degree *d)
{
    double least = d->n;
    for (int32_t l = 0; l < s->n_layers; l++) {
        double own = (double)space_stage_type(s, d->type, l, l)->parameter_bytes,
               all = (double)space_stage_type(s, k->type, l, l)->parameter_bytes;
        if (all > 0) least = fmin(least, d->n * own / all);
    }
    return (int32_t)fmax(1, floor(least + 1e-6));
}

/* Layers of an option. A parameter that several layers use counts in the first of them. */
static void set_layers(const struct space *s, const struct coarse_class *k,
                       const struct coarse_degree *d, const struct reach *x,
                       const struct bound_kept *kept, struct bound_group_layer *out)
{
    for (int32_t l = 0; l < s->n_layers; l++) {
        const struct stage_cost *c = space_stage_type(s, d->type, l, l),
                                *one = space_stage_type(s, k->type, l, l);
        struct stage_cost border = {0};
        group_borders(s, d->type, l, l, &border);
        double all = (double)(one->parameter_bytes + one->gradient_bytes + one->state_bytes);
        double own = all > 0 ? fmin(1, kept[l].state_bytes / all) : 1;
        double part = (double)s->microbatch / d->n, nano = own * 1e9;
        out[l] = (struct bound_group_layer){
            .forward_ns = (double)(c->forward_ns - border.forward_ns),
            .input_ns = (double)(c->input_least_ns - border.input_least_ns),
            .weight_ns = (double)c->weight_least_ns,
            .again_ns = (double)c->recompute_ns,
            .pass_ns = (double)(c->forward_ns - border.forward_ns),
            .whole_bytes = own * (double)(c->parameter_bytes + c->gradient_bytes),
            .divided_bytes = own * (double)one->state_bytes / d->n,
            .kept_bytes =
                fmax(part * kept[l].kept_bytes, (double)(c->activation_bytes - c->input_bytes)),
            .waiting_bytes = part * kept[l].waiting_bytes,
            .near_sum_ns = x->near_Bps > 0 ? nano * (double)wire_bytes(s, c) / x->near_Bps : 0,
            .far_sum_ns = x->far_Bps > 0 ? nano * (double)wire_bytes(s, one) / x->far_Bps : 0};
        if (!s->early[l]) out[l].pass_ns += out[l].input_ns;
        if (out[l].waiting_bytes > out[l].kept_bytes) out[l].waiting_bytes = out[l].kept_bytes;
    }
}

/* Options of a class at the current size. */
static void add_options(const struct coarse *q, int32_t of, const struct bound_kept *kept,
                        struct arena *a, struct bound_groups *b, struct bound_group_option *options)
{
    const struct space *s = &q->spaces[q->size];
    const struct coarse_class *k = &q->classes[of];
    const struct device_type *t = &q->priced.types[k->type];
    int32_t node = q->task->cluster->nodes[q->task->cluster->devices[k->device[0]].node].n_devices;
    for (int32_t d = 0; d < k->n_degrees; d++) {
        const struct coarse_degree *y = &k->degree[d];
        if (y->n > 1 ? !s->groups || !s->groups[y->type] : !y->usable) continue;
        struct reach x = reach_of(q, k, least_cut(s) / y->n);
        struct bound_group_layer *layers =
            ARENA_ARRAY(a, struct bound_group_layer, (size_t)s->n_layers);
        set_layers(s, k, y, &x, kept, layers);
        options[b->n_options] = (struct bound_group_option){
            .device_class = of,
            .gpus = y->n,
            .room_bytes = (double)(t->memory_bytes - least_scratch(s, y->type)),
            .border_ns = border_ns(s, y->type),
            .holders = holders_of(s, k, y),
            .layers = layers};
        set_messages(&x, y->n, node, &options[b->n_options++]);
        double longest = fmax(isinf(x.near_ns) ? 0 : x.near_ns, isinf(x.far_ns) ? 0 : x.far_ns);
        b->far_ns = fmax(b->far_ns, 4 * longest);
    }
}

/* Of plans of the current size; *binding is unchanged if none takes less than most_ns. */
static double size_ns(const struct coarse *q, double most_ns, const char **binding)
{
    const struct space *s = &q->spaces[q->size];
    struct arena *a = arena_new();
    int64_t count[COARSE_CLASSES];
    struct bound_kept *kept = ARENA_ARRAY(a, struct bound_kept, (size_t)s->n_layers);
    struct bound_group_option *options =
        ARENA_ARRAY(a, struct bound_group_option, (size_t)(COARSE_CLASSES * COARSE_DEGREES));
    struct bound_groups b = {s->n_layers, q->n_classes, 0, count, options, s->microbatches, 0};
    (void)bound_kept_of(a, s, kept);
    for (int32_t k = 0; k < q->n_classes; k++) {
        count[k] = q->classes[k].n;
        add_options(q, k, kept, a, &b, options);
    }
    double ns = bound_groups_ns(&b, most_ns, binding);
    arena_free(a);
    return ns;
}

/* Whether this is the first search, which has all GPUs (later ones are of parts of the cluster), and prices of all that the bound needs. */
static bool applies(const struct coarse *q)
{
    int32_t n = 0;
    for (int32_t k = 0; k < q->n_classes; k++) n += q->classes[k].n;
    return n == q->task->cluster->n_devices && !q->task->job->model.measured && q->n_tried > 0;
}

void coarse_class_bound(struct coarse *q)
{
    struct search_context *t = q->t;
    if (!q->n_tried || !applies(q) || !t->incumbents.n || search_context_stopped(t)) return;
    const char *binding = "the plan found";
    double ns = INFINITY;
    for (int32_t i = 0; i < t->incumbents.n; i++)
        ns = fmin(ns, (double)t->incumbents.plans[i].iteration_ns);
    for (q->size = 0; q->size < q->n_tried && ns > 0; q->size++) ns = size_ns(q, ns, &binding);
    t->equal_bound_ns = (int64_t)ns;
    t->equal_binding = binding;
}

/* --- measured layers --------------------------------------------------------------------------- */

/* What stages on the given numbers of GPUs take at a microbatch size. */
static enum status offer_measured(struct coarse *q, int32_t size, const int32_t *numbers, int32_t n,
                                  struct bound_any *b, struct error *err)
{
    struct space *s;
    TRY(coarse_priced(q, size, true, &s, err));
    int32_t *gpus = ARENA_ARRAY(q->arena, int32_t, (size_t)q->priced.n_types);
    int32_t *type = ARENA_ARRAY(q->arena, int32_t, (size_t)q->priced.n_types);
    for (int32_t k = 0; k < q->n_classes; k++)
        for (int32_t d = 0; d < q->classes[k].n_degrees; d++) {
            const struct coarse_degree *x = &q->classes[k].degree[d];
            bool priced = x->n == 1 || (s->groups && s->groups[x->type]);
            for (int32_t i = 0; i < n && priced; i++)
                if (x->n == numbers[i]) gpus[x->type] = x->n, type[x->type] = q->classes[k].type;
        }
    bound_cluster_offer(b, s, gpus, type);
    return OK;
}

/* Whether the GPUs of a type, which are count, have prices: those of more than COARSE_CLASSES classes have not. */
static bool has_class(const struct coarse *q, int32_t type, int64_t count)
{
    bool any = !count;
    for (int32_t k = 0; k < q->n_classes; k++) any |= q->classes[k].type == type;
    return any;
}

enum status coarse_measured_bound(struct coarse *q, struct bound_certificate *out, struct error *err)
{
    const struct search_task *t = q->task;
    const struct cluster *c = t->cluster;
    struct arena *a = q->t->arena;
    int32_t numbers[TP_NUMBERS_MAX];
    int32_t n = tp_options_numbers(t->job, c, t->profile, q->t->o->no_sharding, numbers);
    int64_t *count = ARENA_ARRAY(a, int64_t, (size_t)c->n_types);
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    struct bound_any *b = bound_any_new(a, (int32_t)t->job->model.measured->n_layers, c->n_types,
                                        count, t->job->global_batch);
    for (int32_t i = 0; i < t->n_sizes; i++) TRY(offer_measured(q, i, numbers, n, b, err));
    *out = (struct bound_certificate){.binding = "no bound was computed", .class_text = ""};
    for (int32_t i = 0; i < c->n_types; i++)
        if (!has_class(q, i, count[i])) return OK;
    TRY(bound_cluster_cuts(a, b, c, q->cost, err));
    bound_cluster_prices(b, c, incumbents_max_ns(q->t->o));
    TRY(bound_any_solve(b, out, err));
    for (int32_t i = 0; i < n && n > 1; i++)
        out->class_text = arena_printf(a, "%s%s%d", out->class_text,
                                       i ? ", " : "; GPUs a stage: ", (int)numbers[i]);
    return OK;
}
