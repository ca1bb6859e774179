#include "tests/validate/harp_model.h"

#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/lower/lower.h"
#include "core/sharding/shard.h"
#include "profiles/team.h"
#include "sim/pipeline/static.h"
#include "tests/support/tensor_rules.h"
#include "tests/validate/published.h"
#include "tools/common.h"

#include <string.h>
#include <time.h>

/* --- costs --- */

static struct stage_cost *stage_of(const struct harp_team *t, int32_t node, int32_t first,
                                   int32_t last)
{
    return &t->stage[((int64_t)node * t->n_layers + first) * t->n_layers + last];
}

/* The link of two GPUs; none from a GPU to itself. */
static enum status find_link(const struct harp_team *t, int32_t from, int32_t to,
                             struct cost_link *out, struct error *err)
{
    int32_t direction, link = cluster_link(&t->cluster, from, to, &direction);
    if (link < 0)
        return error_set(err, ERR_INPUT, "no link from %s to %s", t->cluster.devices[from].name,
                         t->cluster.devices[to].name);
    return cost_link(t->cost, link, out, err);
}

/* The training graph of a GPU of a node whose GPUs divide each microbatch's sequences. */
static enum status graph_of_sequences(struct arena *a, const struct harp_team *t,
                                      const struct node_spec *at, const struct lower_options *lower,
                                      struct graph **out, struct error *err)
{
    int64_t sequences = t->job.microbatch_sizes[0] / at->n_devices;
    if (sequences * at->n_devices != t->job.microbatch_sizes[0])
        return error_set(err, ERR_INPUT, "node %s: %d GPUs do not divide a microbatch of %d",
                         at->name, (int)at->n_devices, (int)t->job.microbatch_sizes[0]);
    return lower_training_graph(a, &t->job, sequences, lower, out, err);
}

/* The same if they shard every operator: the first one has the largest share. */
static enum status graph_of_operators(struct arena *a, const struct harp_team *t,
                                      const struct sharding *rules,
                                      const struct lower_options *lower, struct graph **out,
                                      struct error *err)
{
    struct graph *whole;
    TRY(lower_graph(a, &t->job, t->job.microbatch_sizes[0], &whole, err));
    TRY(shard_graph(a, whole, rules, 0, 0, whole->n_layers - 1, out, err));
    *out = graph_fuse(*out, lower->fused, lower->n_fused);
    return gradient_build(*out, (double)t->job.microbatch_sizes[0] / (double)t->job.global_batch,
                          err);
}

static struct cost_link hop(const void *of, int32_t from, int32_t to)
{
    struct cost_link link = {0};
    if (find_link(of, from, to, &link, NULL) != OK) BUG("no link inside a node");
    return link;
}

static const struct stage_group *group_of(struct arena *a, const struct harp_team *t, int32_t node)
{
    const struct node_spec *at = &t->cluster.nodes[node];
    struct stage_group *g = ARENA_ARRAY(a, struct stage_group, 1);
    int32_t *device = ARENA_ARRAY(a, int32_t, (size_t)at->n_devices);
    for (int32_t i = 0; i < at->n_devices; i++) device[i] = at->first_device + i;
    *g =
        (struct stage_group){.sharding = t->rules[node],
                             .device = device,
                             .hop = hop,
                             .of = t,
                             .beside = at->n_devices}; /* one link carries all messages of a node */
    return g;
}

/* Whether the GPUs of a node shard every operator. */
static bool by_operators(const struct harp_team *t, int32_t node)
{
    return t->sharing == HARP_OPERATORS && t->cluster.nodes[node].n_devices > 1;
}

/* Costs of one GPU of a node: its priced training graph. */
static enum status price_node(struct arena *a, struct harp_team *t, int32_t node,
                              const struct lower_options *lower, struct error *err)
{
    const struct node_spec *at = &t->cluster.nodes[node];
    const struct device *gpu = &t->cluster.devices[at->first_device];
    struct cost_link inside;
    struct graph *g;
    for (int32_t i = 1; i < at->n_devices; i++)
        if (gpu[i].type != gpu->type)
            return error_set(err, ERR_INPUT, "node %s: expected GPUs of one type", at->name);
    if (by_operators(t, node)) {
        TRY(find_link(t, at->first_device, at->first_device + 1, &inside, err));
        t->rules[node] = tensor_rules(a, at->n_devices, false);
        TRY(graph_of_operators(a, t, t->rules[node], lower, &g, err));
    } else {
        TRY(graph_of_sequences(a, t, at, lower, &g, err));
    }
    if (!t->stage) {
        size_t n = (size_t)g->n_layers;
        t->n_layers = g->n_layers;
        t->stage = ARENA_ARRAY(a, struct stage_cost, (size_t)t->cluster.n_nodes * n * n);
        t->cut_bytes = ARENA_ARRAY(a, int64_t, n);
    }
    for (int32_t k = 0; k + 1 < g->n_layers; k++)
        t->cut_bytes[k] =
            graph_cut_bytes(g, &g->cut[k]) * (by_operators(t, node) ? 1 : at->n_devices);
    struct stage_table *table = stage_table_new(a, g, t->cost, &t->job.optimizer);
    stage_table_fused(table, lower->fused, lower->n_fused);
    if (by_operators(t, node)) stage_table_group(table, group_of(a, t, node));
    for (int32_t first = 0; first < g->n_layers; first++)
        for (int32_t last = first; last < g->n_layers; last++)
            TRY(stage_table_cost(table, first, last, gpu->type, stage_of(t, node, first, last),
                                 err));
    return OK;
}

enum status harp_team_read(struct arena *a, const char *job, const char *cluster,
                           enum harp_sharing sharing, double pace, struct harp_team *out,
                           struct error *err)
{
    struct harp_team *t = out;
    struct lower_options lower = {0};
    *t = (struct harp_team){.sharing = sharing};
    TRY(job_read(a, job, &t->job, err));
    TRY(cluster_read(a, cluster, &t->cluster, err));
    TRY(team_complete(&t->cluster, err));
    for (int32_t i = 0; i < t->cluster.n_types; i++) /* HARP ran on another executor */
        t->cluster.types[i].context_bytes = -1;
    TRY(team_precision(&t->cluster, t->job.precision, err));
    if (t->job.n_microbatches_sizes != 1 || t->job.global_batch / t->job.microbatch_sizes[0] > 4096)
        return error_set(err, ERR_INPUT, "%s: expected one microbatch size, at most 4096 of a step",
                         job);
    if (t->cluster.n_nodes > HARP_STAGES_MAX)
        return error_set(err, ERR_INPUT, "%s: %d nodes, expected at most %d", cluster,
                         (int)t->cluster.n_nodes, HARP_STAGES_MAX);
    TRY(profile_prior(a, &t->cluster, &t->profile, err));
    published_fused(&lower);
    t->profile.pace = pace;
    struct harp_team *kept = ARENA_ARRAY(a, struct harp_team, 1); /* *t may move */
    *kept = *t;
    t->cost = cost_new(a, &kept->profile, &kept->cluster);
    t->microbatches = (int32_t)(t->job.global_batch / t->job.microbatch_sizes[0]);
    for (int32_t node = 0; node < t->cluster.n_nodes; node++)
        TRY(price_node(a, t, node, &lower, err));
    return OK;
}

/* --- time --- */

/* All sequences cross the single link between the nodes; GPUs that shard operators each receive all of them. */
static enum status link_between(const struct harp_team *t, int32_t from, int32_t to, int32_t cut,
                                struct pipeline_link *out, struct error *err)
{
    const struct node_spec *nodes = t->cluster.nodes;
    int32_t ends[2] = {to, from};
    struct cost_link l;
    TRY(find_link(t, nodes[from].first_device, nodes[to].first_device, &l, err));
    for (int g = 0; g < 2; g++) {
        int64_t copies = by_operators(t, ends[g]) ? nodes[ends[g]].n_devices : 1;
        out->occupancy_ns[g] = copies * cost_occupancy_ns(&l, t->cut_bytes[cut]);
        out->latency_ns[g] = l.latency_ns;
    }
    return OK;
}

/* A ring over the GPUs of a node whose one link carries all its messages: 2 (n - 1) times the gradients (Patarasuk and
 * Yuan 2009). */
static enum status sum_ns(const struct harp_team *t, int32_t node, int64_t bytes, int64_t *out,
                          struct error *err)
{
    const struct node_spec *at = &t->cluster.nodes[node];
    struct cost_link l;
    *out = 0;
    if (at->n_devices == 1 || by_operators(t, node)) return OK; /* a GPU has its own shards */
    TRY(find_link(t, at->first_device, at->first_device + 1, &l, err));
    *out = cost_occupancy_ns(&l, bytes * 2 * (at->n_devices - 1)) +
           l.latency_ns * 2 * (at->n_devices - 1);
    return OK;
}

struct priced {
    struct pipeline_stage stages[HARP_STAGES_MAX];
    struct pipeline_link links[HARP_STAGES_MAX];
    int64_t update_ns; /* the longest gradient all-reduce and update */
};

/* Recomputation by blocks (core/plan/plan.h, BLOCKS): of each block the tensors that its backward reads; not the embedding, not the
 * head. Layer 0 is the embedding, then two a block; a cut may divide a block. */
static int64_t again_ns(const struct harp_team *t, int32_t node, int32_t first, int32_t last)
{
    int64_t sum = 0;
    for (int32_t block = 0; block < t->job.model.layers; block++) {
        int32_t from = 2 * block + 1, to = from + 1;
        if (from < first) from = first;
        if (to > last) to = last;
        if (from <= to) sum += stage_of(t, node, from, to)->recompute_ns;
    }
    return sum;
}

static enum status price(const struct harp_team *t, const struct harp_pipeline *p,
                         struct priced *out, struct error *err)
{
    out->update_ns = 0;
    for (int32_t s = 0, first = 0; s < p->n; s++) {
        const struct stage_cost *c = stage_of(t, p->node[s], first, p->last[s]);
        int64_t ns;
        out->stages[s] = (struct pipeline_stage){
            .forward_ns = c->forward_ns,
            .fused_ns = again_ns(t, p->node[s], first, p->last[s]) + c->input_ns + c->weight_ns};
        TRY(sum_ns(t, p->node[s], c->gradient_bytes, &ns, err));
        ns += c->update_ns;
        if (ns > out->update_ns) out->update_ns = ns;
        first = p->last[s] + 1;
        if (s + 1 < p->n)
            TRY(link_between(t, p->node[s], p->node[s + 1], p->last[s], &out->links[s], err));
    }
    return OK;
}

static void warm_up(const struct harp_team *t, enum schedule_kind rule, const struct priced *x,
                    struct harp_pipeline *p)
{
    double time[HARP_STAGES_MAX], transfer[HARP_STAGES_MAX];
    for (int32_t s = 0; s < p->n; s++) {
        time[s] = (double)(x->stages[s].forward_ns + x->stages[s].fused_ns);
        transfer[s] = (double)(x->links[s].occupancy_ns[0] + x->links[s].latency_ns[0]);
    }
    struct schedule_spec spec = {.kind = rule,
                                 .n_devices = p->n,
                                 .n_microbatches = t->microbatches,
                                 .time = time,
                                 .transfer = transfer};
    schedule_warmup(&spec, p->warmup);
}

/* Cache of schedules by warm-up counts, because many pipelines share few of them. */
struct timers {
    struct arena *a;
    size_t n, capacity;
    struct known {
        int32_t n, warmup[HARP_STAGES_MAX];
        struct static_timer *timer;
    } * known;
};

static enum status find_timer(struct timers *all, const struct harp_team *t,
                              const struct harp_pipeline *p, struct static_timer **out,
                              struct error *err)
{
    size_t bytes = (size_t)p->n * sizeof *p->warmup;
    for (size_t i = 0; i < all->n; i++) {
        *out = all->known[i].timer;
        if (all->known[i].n == p->n && !memcmp(all->known[i].warmup, p->warmup, bytes)) return OK;
    }
    struct schedule *s = ARENA_ARRAY(all->a, struct schedule, 1);
    struct schedule_spec spec = {.kind = SCHEDULE_1F1B,
                                 .n_devices = p->n,
                                 .n_microbatches = t->microbatches,
                                 .warmup = p->warmup};
    all->known = arena_grow(all->a, all->known, all->n, &all->capacity, sizeof *all->known);
    struct known *k = &all->known[all->n];
    k->n = p->n;
    memcpy(k->warmup, p->warmup, bytes);
    TRY(schedule_make(all->a, &spec, s, err));
    TRY(static_new(all->a, s, &k->timer, err));
    all->n++;
    *out = k->timer;
    return OK;
}

static enum status time_with(struct timers *all, const struct harp_team *t, struct priced *x,
                             struct harp_pipeline *p, struct error *err)
{
    struct static_timer *timer;
    struct pipeline pipeline = {
        .n_devices = p->n, .n_stages = p->n, .stages = x->stages, .links = x->links};
    TRY(find_timer(all, t, p, &timer, err));
    if (!static_time(timer, &pipeline, &p->iteration_ns)) BUG("one chunk per device contends");
    p->iteration_ns += x->update_ns;
    return OK;
}

enum status harp_model_time(struct arena *a, const struct harp_team *t, enum schedule_kind rule,
                            bool own_warmup, struct harp_pipeline *p, struct error *err)
{
    struct timers all = {.a = a};
    struct priced x;
    TRY(price(t, p, &x, err));
    if (!own_warmup) warm_up(t, rule, &x, p);
    return time_with(&all, t, &x, p, err);
}

/* --- search --- */

struct walk {
    const struct harp_team *t;
    const struct harp_class *c;
    struct timers all;
    struct harp_result *out;
    struct error *err;
};

/* k: the layer before a cut; groups of equal numbers of layers, up to rounding. */
static bool may_cut(const struct walk *w, int32_t k)
{
    int32_t n = w->t->n_layers;
    if (!w->c->coarse) return true;
    for (int32_t i = 1; i < w->c->coarse; i++)
        if ((i * n + w->c->coarse / 2) / w->c->coarse == k + 1) return true;
    return false;
}

static int64_t slowest(const struct priced *x, int32_t n)
{
    int64_t most = 0;
    for (int32_t s = 0; s < n; s++) {
        int64_t ns = x->stages[s].forward_ns + x->stages[s].fused_ns;
        if (ns > most) most = ns;
    }
    return most;
}

static enum status try_pipeline(struct walk *w, struct harp_pipeline *p)
{
    struct priced x;
    struct harp_result *out = w->out;
    out->pipelines++;
    if (price(w->t, p, &x, w->err) != OK) return OK; /* no link: not in the class */
    if (!w->c->exhaustive &&
        slowest(&x, p->n) * w->t->microbatches + x.update_ns >= out->best.iteration_ns)
        return OK;
    warm_up(w->t, w->c->rule, &x, p);
    TRY(time_with(&w->all, w->t, &x, p, w->err));
    out->timed++;
    if (p->iteration_ns < out->best.iteration_ns) out->best = *p;
    return OK;
}

/* Enumerates the last layer of stage s, then of the later stages, for chosen nodes. */
static enum status split(struct walk *w, struct harp_pipeline *p, int32_t s)
{
    int32_t first = s ? p->last[s - 1] + 1 : 0, n = w->t->n_layers;
    if (s + 1 == p->n) {
        p->last[s] = n - 1;
        return try_pipeline(w, p);
    }
    for (int32_t last = first; last + 1 < n; last++) {
        if (!may_cut(w, last)) continue;
        p->last[s] = last;
        TRY(split(w, p, s + 1));
    }
    return OK;
}

static enum status choose(struct walk *w, struct harp_pipeline *p, uint32_t used)
{
    int32_t n = w->t->cluster.n_nodes;
    if (p->n && (w->c->any_order || p->n == n)) TRY(split(w, p, 0));
    for (int32_t d = 0; d < n; d++) {
        if ((used >> d & 1) || (!w->c->any_order && d != p->n)) continue;
        p->node[p->n++] = d;
        TRY(choose(w, p, used | 1u << d));
        p->n--;
    }
    return OK;
}

enum status harp_model_search(struct arena *a, const struct harp_team *t,
                              const struct harp_class *c, struct harp_result *out,
                              struct error *err)
{
    struct walk w = {.t = t, .c = c, .all = {.a = a}, .out = out, .err = err};
    struct harp_pipeline p = {0};
    *out = (struct harp_result){.best.iteration_ns = INT64_MAX};
    clock_t begin = clock();
    TRY(choose(&w, &p, 0));
    out->cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (out->best.iteration_ns < INT64_MAX) return OK;
    return error_set(err, ERR_INFEASIBLE, "no pipeline: nodes without links");
}

static void on_gpus(struct arena *a, const struct harp_team *t, int32_t node,
                    struct plan_stage *out)
{
    const struct node_spec *at = &t->cluster.nodes[node];
    size_t n = (size_t)at->n_devices;
    int32_t *devices = ARENA_ARRAY(a, int32_t, n);
    out->device = at->first_device;
    if (n == 1) return;
    for (int32_t i = 0; i < at->n_devices; i++) devices[i] = at->first_device + i;
    out->n_shards = at->n_devices, out->devices = devices;
    if (by_operators(t, node)) {
        out->sharding = t->rules[node];
        return;
    }
    int64_t *sequences = ARENA_ARRAY(a, int64_t, n);
    for (int32_t i = 0; i < at->n_devices; i++)
        sequences[i] = t->job.microbatch_sizes[0] / at->n_devices;
    out->sequences = sequences, out->zero = 1;
}

void harp_model_plan(struct arena *a, const struct harp_team *t, const struct harp_pipeline *p,
                     struct plan *out)
{
    *out = (struct plan){.name = "harp",
                         .seed = t->job.seed,
                         .microbatch = t->job.microbatch_sizes[0],
                         .steps = 1,
                         .n_replicas = 1,
                         .job = t->job,
                         .cluster = t->cluster};
    out->replicas = ARENA_ARRAY(a, struct plan_replica, 1);
    out->replicas[0] = (struct plan_replica){.microbatches = t->microbatches, .n_stages = p->n};
    out->replicas[0].stages = ARENA_ARRAY(a, struct plan_stage, (size_t)p->n);
    for (int32_t s = 0; s < p->n; s++) {
        struct plan_stage *stage = &out->replicas[0].stages[s];
        *stage = (struct plan_stage){.first_layer = s ? p->last[s - 1] + 1 : 0,
                                     .last_layer = p->last[s],
                                     .warmup = p->warmup[s],
                                     .recompute = RECOMPUTE_BLOCKS,
                                     .receive_ahead = 2};
        on_gpus(a, t, p->node[s], stage);
    }
}
