/* Conversion of a row to a plan: nodes and links of a data centre, stages of equal numbers of blocks, replicas of equal shares.
 *
 * GPUs are numbered replica by replica inside a stage (Megatron-LM's order of ranks: tensor, data, pipeline); a node has
 * eight. Each communicating pair of GPUs has a link of its own, because switches are non-blocking. Inside a node
 * it is NVLink at the catalogue's rate times the fit's efficiency; between nodes a stage's message uses the ports of all
 * GPUs of the stage (Narayanan et al. 2021, section 4.1, scatter and gather: every rank of the next stage gets the whole
 * activation at the rate of all ports), and a gradient all-reduce those of the GPUs of the node with the same shard, one ring a port.
 */
#include "core/base/arena.h"
#include "core/lower/lower.h"
#include "core/plan/schedule.h"
#include "profiles/team.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"
#include "tests/support/tensor_rules.h"
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
};

static struct layout layout_of(struct arena *a, const struct published_row *row,
                               const struct published_fit *fit, struct plan *p)
{
    return (struct layout){a, row, fit, p};
}

/* The GPU of tensor-parallel rank 0; the others follow. */
static int32_t device_of(const struct layout *l, int64_t replica, int64_t stage)
{
    return (int32_t)((stage * l->row->replicas + replica) * l->row->tp);
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
                                .init_std = 0.02},
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
    int32_t n = (int32_t)(r->tp * r->replicas * r->stages);
    *c = (struct cluster){.name = "published", .n_types = 1, .n_devices = n};
    c->types = ARENA_ARRAY(l->a, struct device_type, 1);
    c->types[0] = (struct device_type){.name = "GPU", .catalogue = gpu};
    c->n_nodes = (n + NODE_GPUS - 1) / NODE_GPUS;
    c->nodes = ARENA_ARRAY(l->a, struct node_spec, (size_t)c->n_nodes);
    c->devices = ARENA_ARRAY(l->a, struct device, (size_t)n);
    for (int32_t i = 0; i < c->n_nodes; i++) {
        int32_t first = i * NODE_GPUS, left = n - first;
        c->nodes[i] = (struct node_spec){.name = arena_printf(l->a, "n%" PRId32, i),
                                         .host = "localhost",
                                         .first_device = first,
                                         .n_devices = left < NODE_GPUS ? left : NODE_GPUS};
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t node = i / NODE_GPUS, index = i % NODE_GPUS;
        c->devices[i] =
            (struct device){.name = arena_printf(l->a, "n%" PRId32 ".%" PRId32, node, index),
                            .node = node,
                            .index = index};
    }
}

static double scale_up_Bps(const struct layout *l)
{
    const struct catalogue_device *d = NULL;
    if (catalogue_find(gpu, &d, NULL) != OK) BUG("no %s in the catalogue", gpu);
    return d->scale_up_Bps.value * l->fit->prior.wire_efficiency;
}

/* Ranks of a tensor-parallel group: a ring's step takes so long that a ring all-reduce has the latency of the prior
 * (profiles/op_prior.h), which was measured. */
static void add_group_links(struct layout *l)
{
    struct cluster *c = &l->p->cluster;
    const struct op_prior *prior = &l->fit->prior;
    double ranks = (double)l->row->tp, steps = 2 * (ranks - 1);
    if (l->row->tp == 1) return;
    struct link inside = {.name = "inside",
                          .bandwidth_Bps = scale_up_Bps(l),
                          .latency_s = (prior->wire_s + prior->wire_rank_s * (ranks - 1)) / steps,
                          .stated = true,
                          .kind = {END_INSIDE, END_INSIDE}};
    struct link across = inside;
    across.name = "across", across.kind[0] = across.kind[1] = END_ACROSS;
    across.bandwidth_Bps = port_Bps, across.latency_s = hop_s;
    c->links[c->n_links++] = inside, c->links[c->n_links++] = across;
}

/* One for each rank of the group. ports: ports of a node that this pair uses. */
static void add_links(struct layout *l, int32_t from, int32_t to, int64_t ports, double latency_s)
{
    struct cluster *c = &l->p->cluster;
    for (int32_t rank = 0; rank < l->row->tp; rank++) {
        int32_t x = from + rank, y = to + rank, low = x < y ? x : y, high = x < y ? y : x;
        bool inside = c->devices[low].node == c->devices[high].node;
        c->links[c->n_links++] = (struct link){
            .name = arena_printf(l->a, "%s-%s", c->devices[low].name, c->devices[high].name),
            .bandwidth_Bps = inside ? scale_up_Bps(l) : port_Bps * (double)ports,
            .latency_s = latency_s,
            .stated = true,
            .n_ends = 2,
            .end = {low, high},
            .kind = {END_DEVICE, END_DEVICE}};
    }
}

static void make_links(struct layout *l)
{
    const struct published_row *r = l->row;
    struct cluster *c = &l->p->cluster;
    int64_t per_node = r->tp < NODE_GPUS ? NODE_GPUS / r->tp : 1,
            same = per_node < r->replicas ? per_node : r->replicas;
    c->links = ARENA_ARRAY(l->a, struct link, 3 * (size_t)c->n_devices + 2);
    add_group_links(l);
    for (int64_t k = 0; k < r->replicas; k++) {
        for (int64_t s = 0; s + 1 < r->stages; s++)
            add_links(l, device_of(l, k, s), device_of(l, k, s + 1), r->tp, l->fit->message_s);
        /* interleaved chunks wrap around; the embedding's two uses are on this device too */
        if (r->stages > 2)
            add_links(l, device_of(l, k, 0), device_of(l, k, r->stages - 1), r->tp,
                      r->chunks > 1 ? l->fit->message_s : hop_s);
        int64_t next = (k + 1) % r->replicas;
        for (int64_t s = 0; s < r->stages && next != k && next != k - 1; s++)
            add_links(l, device_of(l, k, s), device_of(l, next, s), same, hop_s);
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

static void on_ranks(struct layout *l, const struct sharding *rules, struct plan_stage *s)
{
    int32_t *devices = ARENA_ARRAY(l->a, int32_t, (size_t)l->row->tp);
    for (int32_t rank = 0; rank < l->row->tp; rank++) devices[rank] = s->device + rank;
    s->devices = devices, s->n_shards = (int32_t)l->row->tp, s->sharding = rules;
}

static enum status make_replicas(struct layout *l, struct error *err)
{
    const struct published_row *r = l->row;
    struct plan *p = l->p;
    int32_t *last = ARENA_ARRAY(l->a, int32_t, (size_t)r->layers), n_layers;
    int64_t n = r->stages * r->chunks, blocks = r->layers / n;
    const struct sharding *rules = tensor_rules(l->a, (int32_t)r->tp, r->sequence_parallel);
    TRY(find_blocks(l, last, &n_layers, err));
    p->n_replicas = (int32_t)r->replicas;
    p->replicas = ARENA_ARRAY(l->a, struct plan_replica, (size_t)r->replicas);
    for (int64_t k = 0; k < r->replicas; k++) {
        struct plan_replica *q = &p->replicas[k];
        q->microbatches = (int32_t)(r->global_batch / r->microbatch / r->replicas);
        q->n_stages = (int32_t)n;
        q->stages = ARENA_ARRAY(l->a, struct plan_stage, (size_t)n);
        q->schedule = r->chunks > 1 ? schedule_name(SCHEDULE_INTERLEAVED) : NULL;
        for (int64_t s = 0; s < n; s++) {
            q->stages[s] = (struct plan_stage){.first_layer = s ? last[s * blocks - 1] + 1 : 0,
                                               .last_layer = s + 1 < n ? last[(s + 1) * blocks - 1]
                                                                       : n_layers - 1,
                                               .device = device_of(l, k, s % r->stages),
                                               .recompute = r->recompute,
                                               .receive_ahead = 2};
            if (r->tp > 1) on_ranks(l, rules, &q->stages[s]);
        }
    }
    return OK;
}

enum status published_plan(struct arena *a, const struct published_row *row,
                           const struct published_fit *fit, struct plan *out, struct error *err)
{
    struct layout l = layout_of(a, row, fit, out);
    if (row->heads % row->tp)
        return error_set(err, ERR_INPUT,
                         "model %s: tensor parallelism %" PRId64 " does not divide its %" PRId64
                         " heads",
                         row->name, row->tp, row->heads);
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
    struct lower_options o = {.check_memory = false, .timed_only = true};
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
                         &(struct sim_options){.fold = true, .detail = SIM_STAGE}, &r, err);
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
