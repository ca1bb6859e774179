#include "tools/harp_model.h"

#include "core/arena.h"
#include "core/gradient.h"
#include "core/lower.h"
#include "profiles/team.h"
#include "sim/static.h"

#include <string.h>
#include <time.h>

/* --- costs --- */

static const struct stage_cost *stage_of(const struct harp_team *t, int32_t device, int32_t first,
                                         int32_t last)
{
    int32_t type = t->cluster.devices[device].type;
    return &t->stage[((int64_t)type * t->n_layers + first) * t->n_layers + last];
}

/* Each type's share of the training graph, priced. */
static enum status price_stages(struct arena *a, struct harp_team *t, struct error *err)
{
    struct lower_options lower = {0};
    struct lower_graphs graphs = {0};
    TRY(team_fused(a, &t->cluster, &lower, err));
    TRY(lower_graphs_make(a, &t->job, &t->cluster, t->job.microbatch_sizes[0], &lower, &graphs,
                          err));
    const struct graph *g = graphs.graphs[0];
    size_t n = (size_t)g->n_layers;
    t->n_layers = g->n_layers;
    t->stage = ARENA_ARRAY(a, struct stage_cost, (size_t)t->cluster.n_types * n * n);
    t->cut_bytes = ARENA_ARRAY(a, int64_t, n);
    for (int32_t k = 0; k + 1 < g->n_layers; k++) {
        const struct tensor *cut = &g->tensors[g->cut[k]];
        t->cut_bytes[k] = shape_elements(&cut->shape) * dtype_bytes(cut->dtype);
    }
    struct stage_table *table = stage_table_new(a, g, t->cost, &t->job.optimizer);
    stage_table_graphs(table, &graphs);
    stage_table_fused(table, lower.fused, lower.n_fused);
    for (int32_t type = 0; type < t->cluster.n_types; type++)
        for (int32_t first = 0; first < g->n_layers; first++)
            for (int32_t last = first; last < g->n_layers; last++)
                TRY(sim_stage(table, first, last, type,
                              &t->stage[((size_t)type * n + (size_t)first) * n + (size_t)last],
                              err));
    return OK;
}

enum status harp_team_read(struct arena *a, const char *job, const char *cluster, double pace,
                           struct harp_team *out, struct error *err)
{
    struct harp_team *t = out;
    *t = (struct harp_team){0};
    TRY(job_read(a, job, &t->job, err));
    TRY(cluster_read(a, cluster, &t->cluster, err));
    TRY(team_complete(&t->cluster, err));
    TRY(team_precision(&t->cluster, t->job.precision, err));
    if (t->job.n_microbatches_sizes != 1 || t->job.global_batch / t->job.microbatch_sizes[0] > 4096)
        return error_set(err, ERR_INPUT, "%s: expected one microbatch size, at most 4096 of a step",
                         job);
    if (t->cluster.n_devices > HARP_STAGES_MOST)
        return error_set(err, ERR_INPUT, "%s: %d devices, expected at most %d", cluster,
                         (int)t->cluster.n_devices, HARP_STAGES_MOST);
    TRY(profile_prior(a, &t->cluster, &t->profile, err));
    team_share(&t->cluster, &t->job.model);
    t->profile.pace = pace;
    t->cost = cost_new(a, &t->profile, &t->cluster);
    t->microbatches = (int32_t)(t->job.global_batch / t->job.microbatch_sizes[0]);
    return price_stages(a, t, err);
}

/* --- time --- */

static enum status way(const struct harp_team *t, int32_t from, int32_t to, int32_t cut,
                       struct pipeline_link *out, struct error *err)
{
    int32_t direction, link = cluster_link(&t->cluster, from, to, &direction);
    struct cost_link l;
    if (link < 0)
        return error_set(err, ERR_INPUT, "no link from %s to %s", t->cluster.devices[from].name,
                         t->cluster.devices[to].name);
    TRY(cost_link(t->cost, link, &l, err));
    int64_t ns = cost_occupancy_ns(&l, t->cut_bytes[cut]);
    *out = (struct pipeline_link){{ns, ns}, {l.latency_ns, l.latency_ns}};
    return OK;
}

struct priced {
    struct pipeline_stage stages[HARP_STAGES_MOST];
    struct pipeline_link links[HARP_STAGES_MOST];
    int64_t update_ns;
};

static enum status price(const struct harp_team *t, const struct harp_pipeline *p,
                         struct priced *out, struct error *err)
{
    out->update_ns = 0;
    for (int32_t s = 0, first = 0; s < p->n; s++) {
        const struct stage_cost *c = stage_of(t, p->device[s], first, p->last[s]);
        out->stages[s] = (struct pipeline_stage){
            .forward_ns = c->forward_ns,
            .fused_ns = c->recompute_ns + c->input_ns + c->weight_ns};
        if (c->update_ns > out->update_ns) out->update_ns = c->update_ns;
        first = p->last[s] + 1;
        if (s + 1 < p->n)
            TRY(way(t, p->device[s], p->device[s + 1], p->last[s], &out->links[s], err));
    }
    return OK;
}

static void warm_up(const struct harp_team *t, enum schedule_kind rule, const struct priced *x,
                    struct harp_pipeline *p)
{
    double time[HARP_STAGES_MOST], transfer[HARP_STAGES_MOST];
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

/* Schedules by their warm-up counts: many pipelines share few. */
struct timers {
    struct arena *a;
    size_t n, capacity;
    struct known {
        int32_t n, warmup[HARP_STAGES_MOST];
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
    if (!static_time(timer, &pipeline, &p->iteration_ns)) BUG("one chunk a device contends");
    p->iteration_ns += x->update_ns;
    return OK;
}

enum status harp_time(struct arena *a, const struct harp_team *t, enum schedule_kind rule,
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

/* k: the layer before a cut; groups of equally many layers, as near as whole layers come. */
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

/* Every last layer of stage s, then of those behind it; the devices are chosen. */
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
    int32_t n = w->t->cluster.n_devices;
    if (p->n && (w->c->any_order || p->n == n)) TRY(split(w, p, 0));
    for (int32_t d = 0; d < n; d++) {
        if ((used >> d & 1) || (!w->c->any_order && d != p->n)) continue;
        p->device[p->n++] = d;
        TRY(choose(w, p, used | 1u << d));
        p->n--;
    }
    return OK;
}

enum status harp_search(struct arena *a, const struct harp_team *t, const struct harp_class *c,
                        struct harp_result *out, struct error *err)
{
    struct walk w = {.t = t, .c = c, .all = {.a = a}, .out = out, .err = err};
    struct harp_pipeline p = {0};
    *out = (struct harp_result){.best.iteration_ns = INT64_MAX};
    clock_t begin = clock();
    TRY(choose(&w, &p, 0));
    out->cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    if (out->best.iteration_ns < INT64_MAX) return OK;
    return error_set(err, ERR_INFEASIBLE, "no pipeline: devices without links");
}

void harp_plan(struct arena *a, const struct harp_team *t, const struct harp_pipeline *p,
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
    for (int32_t s = 0; s < p->n; s++)
        out->replicas[0].stages[s] = (struct plan_stage){.first_layer = s ? p->last[s - 1] + 1 : 0,
                                                         .last_layer = p->last[s],
                                                         .device = p->device[s],
                                                         .warmup = p->warmup[s],
                                                         .recompute = RECOMPUTE_BLOCKS,
                                                         .receive_ahead = 2};
}
