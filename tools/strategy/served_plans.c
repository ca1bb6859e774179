#include "tools/strategy/served_plans.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/sharding/sharding.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"
#include "tools/common.h"
#include "tools/team/replan.h"

#include <inttypes.h>
#include <math.h>

enum {
    SERVERS_MAX = 8,     /* tried; each worker sends to and receives from all */
    WORKERS_EACH = 4,    /* several servers only for more workers than this for each: 2 servers from 9 workers on */
    SIZES = 3,           /* microbatch sizes: the plan's, a half, a quarter */
    WORKERS_MIN = 2,     /* one alone is never stale */
};

struct serving {
    struct island_task *f;
    const struct plan *sync;
    const struct parameter_server *rule;
    double *speed;          /* (n_replicas) microbatches per ns of computation */
    int32_t *order;         /* (n_replicas) replicas, the fastest first, ties to the earlier */
    int32_t *idle, n_idle;  /* devices, the fastest first */
    struct plan *plans;
    int32_t n;
};

enum server_rate served_plans_rate(const struct optimizer *o) { return o->kind == OPTIMIZER_SGD ? SERVER_CONSTANT : SERVER_INVERSE; }

double served_plans_progress(const struct parameter_server *rule, int32_t n_workers, const struct server_counts *counts)
{
    if (!parameter_server_by_arrival(rule) || counts->pushes <= 0) return 1;
    double mean = (double)counts->staleness / (double)counts->pushes;
    return fmin(1, n_workers * sin(acos(-1) / (2 * (2 * mean + 1))));
}

/* Descending by value, ties to the earlier. */
static void sort_by(const double *value, int32_t *x, int32_t n)
{
    for (int32_t i = 1; i < n; i++)
        for (int32_t k = i; k > 0 && value[x[k]] > value[x[k - 1]]; k--) {
            int32_t swapped = x[k];
            x[k] = x[k - 1], x[k - 1] = swapped;
        }
}

static enum status find_speeds(struct serving *v, const char **why, struct error *err)
{
    const struct plan *p = v->sync;
    struct sim_result result;
    struct program program;
    struct error refused = {0};
    v->speed = ARENA_ARRAY(v->f->a, double, (size_t)p->n_replicas + 1);
    v->order = ARENA_ARRAY(v->f->a, int32_t, (size_t)p->n_replicas + 1);
    enum status st = common_simulate(v->f->a, p, v->f->profile, &(struct sim_options){.fold = true}, &result, &program, &refused);
    if (st == ERR_INFEASIBLE || st == ERR_INPUT) *why = arena_strdup(v->f->a, refused.text);
    if (*why) return OK;
    if (st != OK) return error_set(err, st, "%s", refused.text);
    v->f->evaluated++;
    for (int32_t i = 0; i < program.n_devices; i++) {
        int32_t r = program.stages[program.lanes[i].stages[0]].replica;
        v->speed[r] = p->replicas[r].microbatches / (double)units_max(result.devices[i].busy_ns, 1);
    }
    for (int32_t r = 0; r < p->n_replicas; r++) v->order[r] = r;
    sort_by(v->speed, v->order, p->n_replicas);
    return OK;
}

static void find_idle(struct serving *v)
{
    const struct cluster *c = &v->sync->cluster;
    bool *used = ARENA_ARRAY(v->f->a, bool, (size_t)c->n_devices + 1);
    double *peak = ARENA_ARRAY(v->f->a, double, (size_t)c->n_devices + 1);
    v->idle = ARENA_ARRAY(v->f->a, int32_t, (size_t)c->n_devices + 1);
    replan_mark(v->sync, used);
    for (int32_t d = 0; d < c->n_devices; d++) {
        const struct device_type *t = &c->types[c->devices[d].type];
        peak[d] = team_peak_flops(t, v->sync->job.precision) / (t->slowdown > 0 ? t->slowdown : 1);
        if (!used[d]) v->idle[v->n_idle++] = d;
    }
    sort_by(peak, v->idle, v->n_idle);
}

/* The first n_workers of the order, with shares by these ratios. */
static void add_plan(struct serving *v, const int32_t *servers, int32_t n_servers, int32_t n_workers, int64_t microbatch, const double *ratios)
{
    struct arena *a = v->f->a;
    struct plan p = *v->sync;
    int64_t *shares = ARENA_ARRAY(a, int64_t, (size_t)n_workers);
    sharding_extents(p.job.global_batch / microbatch, ratios, n_workers, shares);
    p.microbatch = microbatch, p.n_replicas = n_workers;
    p.replicas = ARENA_ARRAY(a, struct plan_replica, (size_t)n_workers);
    for (int32_t w = 0; w < n_workers; w++) {
        const struct plan_replica *r = &v->sync->replicas[v->order[w]];
        const struct plan_stage *s = r->stages;
        if (!shares[w] || shares[w] > INT32_MAX) return;
        p.replicas[w] = (struct plan_replica){.microbatches = (int32_t)shares[w], .n_stages = 1, .stages = ARENA_ARRAY(a, struct plan_stage, 1)};
        *p.replicas[w].stages = (struct plan_stage){.first_layer = s->first_layer,
                                                    .last_layer = s->last_layer,
                                                    .device = s->device,
                                                    .recompute = s->recompute,
                                                    .recompute_blocks = s->recompute_blocks,
                                                    .offload = s->offload,
                                                    .receive_ahead = s->receive_ahead};
    }
    p.servers = (struct plan_servers){.rule = *v->rule, .devices = servers};
    p.servers.rule.n = n_servers;
    v->plans[v->n++] = p;
}

static void add_plans(struct serving *v, const int32_t *servers, int32_t n_servers, int32_t n_workers)
{
    double *equal = ARENA_ARRAY(v->f->a, double, (size_t)n_workers + 1), *by_speed = ARENA_ARRAY(v->f->a, double, (size_t)n_workers + 1);
    int64_t microbatch = v->sync->microbatch;
    for (int32_t w = 0; w < n_workers; w++) equal[w] = 1, by_speed[w] = v->speed[v->order[w]];
    for (int k = 0; k < SIZES; k++, microbatch /= 2) {
        add_plan(v, servers, n_servers, n_workers, microbatch, equal);
        if (by_speed[0] > by_speed[n_workers - 1]) add_plan(v, servers, n_servers, n_workers, microbatch, by_speed);
        if (microbatch % 2) break;
    }
}

enum status served_plans(struct island_task *f, const struct plan *sync, const struct parameter_server *rule, struct plan **out, int32_t *n,
                         const char **why, struct error *err)
{
    struct serving v = {.f = f, .sync = sync, .rule = rule};
    *n = 0, *why = NULL;
    for (int32_t r = 0; r < sync->n_replicas; r++)
        if (sync->replicas[r].n_stages > 1 || sync->replicas[r].stages[0].n_shards || sync->replicas[r].stages[0].sharding)
            *why = "a replica is a pipeline or shards a stage; a worker is one device with the whole model";
    if (!*why) TRY(find_speeds(&v, why, err));
    if (*why) return OK;
    find_idle(&v);
    v.plans = *out = ARENA_ARRAY(f->a, struct plan, (size_t)SERVERS_MAX * SIZES * 4);
    for (int32_t k = 1; k <= SERVERS_MAX && (k == 1 || WORKERS_EACH * k < sync->n_replicas); k *= 2) {
        int32_t left = sync->n_replicas - k, *slowest = ARENA_ARRAY(f->a, int32_t, (size_t)k);
        if (v.n_idle >= k && sync->n_replicas >= WORKERS_MIN) add_plans(&v, v.idle, k, sync->n_replicas);
        if (left < WORKERS_MIN) continue;
        for (int32_t i = 0; i < k; i++) slowest[i] = sync->replicas[v.order[left + i]].stages[0].device;
        add_plans(&v, slowest, k, left);
    }
    *n = v.n;
    if (!*n)
        *why = arena_printf(f->a, "two workers and a server need three devices and a microbatch for each worker; %" PRId32 " replicas and %" PRId32
                                  " idle devices share a batch of %" PRId64, sync->n_replicas, v.n_idle, sync->job.global_batch);
    return OK;
}
