/* Conversion of a row to a plan: nodes and links of a data centre, stages of equal numbers of blocks, replicas of equal shares.
 *
 * Devices are numbered replica by replica inside a stage (Megatron-LM's order of ranks: tensor, data, pipeline); a node has
 * eight GPUs. Each communicating pair of devices has a link of its own, because switches are non-blocking. Inside a node
 * it is NVLink at the catalogue's rate times the fit's efficiency; between nodes a stage's message uses the ports of all
 * GPUs of a device (Narayanan et al. 2021, section 4.1, scatter and gather), and a gradient all-reduce those of the GPUs of
 * the node with the same shard, one ring a port.
 */
#include "core/base/arena.h"
#include "core/lower/lower.h"
#include "core/plan/schedule.h"
#include "profiles/team.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"
#include "tests/validate/published_internal.h"
#include "tools/common.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NODE_GPUS = 8, SEQUENCE_MAX = 1 << 20 };
static const char *const gpu = "A100-SXM4-80";
static const double port_Bps =
    25e9; /* 200 Gb/s HDR InfiniBand, one port a GPU (Narayanan et al. 2021, section 5) */
static const double hop_s =
    8e-6; /* of a ring's step: between NVLink's 4 and the network's 14 (NCCL's own figures) */

struct layout {
    struct arena *a;
    const struct published_row *row;
    const struct published_fit *fit;
    struct plan *p;
    int32_t per_node; /* devices */
};

static struct layout layout_of(struct arena *a, const struct published_row *row,
                               const struct published_fit *fit, struct plan *p)
{
    return (struct layout){a, row, fit, p,
                           row->tp < NODE_GPUS ? (int32_t)(NODE_GPUS / row->tp) : 1};
}

static int32_t device_of(const struct layout *l, int64_t replica, int64_t stage)
{
    return (int32_t)(stage * l->row->replicas + replica);
}

static void make_job(const struct published_row *r, struct job *j)
{
    *j = (struct job){.model = {.name = r->name,
                                .family = "gpt2",
                                .layers = r->layers,
                                .hidden = r->hidden,
                                .heads = r->heads,
                                .kv_heads = r->heads,
                                .head_dim = r->hidden / r->heads,
                                .intermediate = 4 * r->hidden,
                                .vocabulary = r->vocabulary,
                                .max_positions = r->sequence,
                                .tied = true,
                                .attention_bias = true,
                                .mlp_bias = true,
                                .eager = true,
                                .norm_eps = 1e-5,
                                .init_std = 0.02,
                                .tensor_parallel = (int32_t)r->tp,
                                .sequence_parallel = r->sequence_parallel},
                      .sequence_length = r->sequence,
                      .global_batch = r->global_batch,
                      .n_microbatches_sizes = 1,
                      .microbatch_sizes = {r->microbatch},
                      .precision = DTYPE_fp16,
                      .optimizer = {.kind = OPTIMIZER_ADAMW,
                                    .lr = 1e-4,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .eps = 1e-8,
                                    .weight_decay = 0.01}};
}

void published_fused(struct lower_options *o)
{
    static const enum op_kind fused[] = {OP_bias_gelu, OP_swiglu, OP_flat_adamw, OP_flat_sgd};
    o->fused = fused, o->n_fused = (int32_t)(sizeof fused / sizeof *fused);
}

/* --- cluster --- */

static void make_devices(struct layout *l)
{
    const struct published_row *r = l->row;
    struct cluster *c = &l->p->cluster;
    int32_t n = (int32_t)(r->replicas * r->stages);
    *c = (struct cluster){.name = "published", .n_types = 1, .n_devices = n};
    c->types = ARENA_ARRAY(l->a, struct device_type, 1);
    c->types[0] = (struct device_type){.name = "GPU",
                                       .catalogue = gpu,
                                       .tensor_parallel = (int32_t)r->tp,
                                       .sequence_parallel = r->sequence_parallel};
    c->n_nodes = (n + l->per_node - 1) / l->per_node;
    c->nodes = ARENA_ARRAY(l->a, struct node_spec, (size_t)c->n_nodes);
    c->devices = ARENA_ARRAY(l->a, struct device, (size_t)n);
    for (int32_t i = 0; i < c->n_nodes; i++) {
        int32_t first = i * l->per_node, left = n - first;
        c->nodes[i] = (struct node_spec){.name = arena_printf(l->a, "n%" PRId32, i),
                                         .host = "localhost",
                                         .first_device = first,
                                         .n_devices = left < l->per_node ? left : l->per_node};
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t node = i / l->per_node, index = i % l->per_node;
        c->devices[i] =
            (struct device){.name = arena_printf(l->a, "n%" PRId32 ".%" PRId32, node, index),
                            .node = node,
                            .index = index};
    }
}

/* ports: ports of a node that this pair uses. */
static void add_link(struct layout *l, int32_t from, int32_t to, int64_t ports, double latency_s)
{
    struct cluster *c = &l->p->cluster;
    bool inside = c->devices[from].node == c->devices[to].node;
    const struct catalogue_device *d = NULL;
    int32_t low = from < to ? from : to, high = from < to ? to : from;
    if (from == to) return;
    for (int32_t i = 0; i < c->n_links; i++)
        if (c->links[i].end[0] == low && c->links[i].end[1] == high) return;
    if (catalogue_find(gpu, &d, NULL) != OK) BUG("no %s in the catalogue", gpu);
    c->links[c->n_links++] = (struct link){
        .name = arena_printf(l->a, "%s-%s", c->devices[low].name, c->devices[high].name),
        .bandwidth_Bps =
            inside ? d->scale_up_Bps.value * l->fit->prior.wire_efficiency : port_Bps * (double)ports,
        .latency_s = latency_s,
        .stated = true,
        .n_ends = 2,
        .end = {low, high},
        .kind = {END_DEVICE, END_DEVICE}};
}

static void make_links(struct layout *l)
{
    const struct published_row *r = l->row;
    struct cluster *c = &l->p->cluster;
    int64_t same = l->per_node < r->replicas ? l->per_node : r->replicas;
    c->links = ARENA_ARRAY(l->a, struct link, 3 * (size_t)c->n_devices);
    for (int64_t k = 0; k < r->replicas; k++) {
        for (int64_t s = 0; s + 1 < r->stages; s++)
            add_link(l, device_of(l, k, s), device_of(l, k, s + 1), r->tp, l->fit->message_s);
        /* interleaved chunks wrap around; the embedding's two uses are on this device too */
        add_link(l, device_of(l, k, r->stages - 1), device_of(l, k, 0), r->tp,
                 r->chunks > 1 ? l->fit->message_s : hop_s);
        for (int64_t s = 0; s < r->stages; s++)
            add_link(l, device_of(l, k, s), device_of(l, (k + 1) % r->replicas, s), same, hop_s);
    }
}

/* --- stages --- */

/* last[i]: the layer that ends block i. */
static enum status find_blocks(struct layout *l, int32_t *last, int32_t *n_layers,
                               struct error *err)
{
    struct graph *g;
    int64_t block = 0;
    TRY(lower_graph(l->a, &l->p->job, l->p->microbatch, &g, err));
    for (int32_t i = 0; i < g->n_ops && block < l->row->layers; i++) {
        char name[48];
        snprintf(name, sizeof name, "h.%" PRId64 ".mlp.residual", block);
        if (!strcmp(g->ops[i].name, name)) last[block++] = g->ops[i].layer;
    }
    *n_layers = g->n_layers;
    return OK;
}

static enum status make_replicas(struct layout *l, struct error *err)
{
    const struct published_row *r = l->row;
    struct plan *p = l->p;
    int32_t *last = ARENA_ARRAY(l->a, int32_t, (size_t)r->layers), n_layers;
    int64_t n = r->stages * r->chunks, blocks = r->layers / n;
    TRY(find_blocks(l, last, &n_layers, err));
    p->n_replicas = (int32_t)r->replicas;
    p->replicas = ARENA_ARRAY(l->a, struct plan_replica, (size_t)r->replicas);
    for (int64_t k = 0; k < r->replicas; k++) {
        struct plan_replica *q = &p->replicas[k];
        q->microbatches = (int32_t)(r->global_batch / r->microbatch / r->replicas);
        q->n_stages = (int32_t)n;
        q->stages = ARENA_ARRAY(l->a, struct plan_stage, (size_t)n);
        q->schedule = r->chunks > 1 ? schedule_name(SCHEDULE_INTERLEAVED) : NULL;
        for (int64_t s = 0; s < n; s++)
            q->stages[s] = (struct plan_stage){.first_layer = s ? last[s * blocks - 1] + 1 : 0,
                                               .last_layer = s + 1 < n ? last[(s + 1) * blocks - 1]
                                                                       : n_layers - 1,
                                               .device = device_of(l, k, s % r->stages),
                                               .recompute = r->recompute,
                                               .receive_ahead = 2};
    }
    return OK;
}

enum status published_plan(struct arena *a, const struct published_row *row,
                           const struct published_fit *fit, struct plan *out, struct error *err)
{
    struct layout l = layout_of(a, row, fit, out);
    *out = (struct plan){.name = row->name, .microbatch = row->microbatch, .steps = 1, .seed = 1};
    make_job(row, &out->job);
    make_devices(&l);
    make_links(&l);
    TRY(team_complete(&out->cluster, err));
    return make_replicas(&l, err);
}

enum status published_case(struct arena *a, const struct published_row *row,
                           const struct published_fit *fit, struct published_case *out,
                           struct error *err)
{
    struct lower_options o = {.check_memory = false};
    *out = (struct published_case){.row = row, .measured_s = row->measured_s};
    TRY(published_plan(a, row, fit, &out->plan, err));
    published_fused(&o);
    return lower_plan(a, &out->plan, &o, &out->program, err);
}

static enum status simulate(struct arena *a, struct published_case *c,
                            const struct published_fit *fit, double *out_s, struct error *err)
{
    struct layout l = layout_of(a, c->row, fit, &c->plan);
    struct op_prior prior = fit->prior;
    struct profile profile;
    struct sim_result r;
    struct cluster whole = c->plan.cluster;
    c->plan.cluster.n_links = 0;
    make_links(&l);
    enum status status = profile_prior(a, &c->plan.cluster, &profile, err);
    profile.n_priors = 1, profile.priors = &prior;
    if (status == OK)
        status = sim_run(a, &c->program, cost_new(a, &profile, &c->plan.cluster),
                         &(struct sim_options){0}, &r, err);
    c->plan.cluster = whole; /* whose links outlive the scratch */
    if (status == OK) *out_s = (double)r.iteration_ns / 1e9;
    return status;
}

enum status published_seconds(struct published_case *c, const struct published_fit *fit,
                              double *out_s, struct error *err)
{
    if (c->parts) return published_parts_seconds(c->parts, fit, out_s, err);
    struct arena *scratch = arena_new();
    enum status status = simulate(scratch, c, fit, out_s, err);
    arena_free(scratch);
    return status;
}
