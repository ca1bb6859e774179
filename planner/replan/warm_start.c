#include "planner/replan/warm_start.h"

#include "core/base/arena.h"
#include "planner/bound/cluster.h"
#include "planner/candidate/plan_set.h"
#include "planner/exact/candidate.h"
#include "planner/replan/adapt.h"
#include "planner/replan/balance_layers.h"
#include "planner/local_search/local_search.h"
#include "planner/schedule/plan.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "profiles/team.h"

#include <string.h>

/* Counted work of a re-plan: half of the 0.1 s that 64 devices may take, the rest is for prices. */
enum { BUDGET_US = 50000 };
/* How much slower an adapted plan may be: than the time expected from the old plan, if no search is to follow; by estimate, than the best adapted
 * one, if it is to be simulated. Of GPT-2.6B on 64 GPUs of four types less one, a search from nothing ends at 1.08 to 1.14 times the time
 * expected in 10 to 17 CPU s, a warm start at 1.13 to 1.16 in 0.25. */
#define ENOUGH 1.13

struct variant {
    struct plan plan;
    int64_t estimate_ns;
    bool idle; /* spare devices are idle */
};

struct warm {
    struct search_context *t;
    const struct warm_task *task;
    struct arena *arena; /* owns the space and the candidates */
    const struct plan *from;
    int32_t *where;          /* (devices of the old cluster) -1: lost */
    struct space space, few; /* few: of single sequences, if stages divide microbatches */
    struct warm_prices prices;
    int64_t end, each; /* counted work at which simulations end, and of the last one */
    int32_t n;
    struct variant *variants;
    struct plan_set made;
};

/* --- matching of devices --- */

/* Mostly the same devices in the same order, so the search starts after the previous match. */
static int32_t find(const struct cluster *c, const char *name, int32_t *next)
{
    for (int32_t k = 0; k < c->n_devices && k < 64; k++) {
        int32_t d = (*next + k) % c->n_devices;
        if (!strcmp(c->devices[d].name, name)) return *next = d, d;
    }
    int32_t d = cluster_device(c, name);
    if (d >= 0) *next = d;
    return d;
}

static void find_team(struct warm *q)
{
    const struct cluster *o = &q->from->cluster;
    int32_t next = 0;
    q->where = ARENA_ARRAY(q->arena, int32_t, (size_t)o->n_devices);
    for (int32_t d = 0; d < o->n_devices; d++)
        q->where[d] = find(q->task->cluster, o->devices[d].name, &next);
}

/* The old microbatch size if the job has it, else the nearest one. */
static int64_t size_of(const struct warm *q)
{
    int64_t best = q->task->sizes[0], want = q->from->microbatch;
    for (int32_t i = 1; i < q->task->n_sizes; i++) {
        int64_t x = q->task->sizes[i];
        if ((x > want ? x - want : want - x) < (best > want ? best - want : want - best)) best = x;
    }
    return best;
}

static bool has_shards(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            if (p->replicas[r].stages[i].n_shards) return true;
    return false;
}

/* --- variants --- */

static void add_variant(struct warm *q, enum warm_lost lost, enum warm_spare spare, enum warm_orders orders)
{
    struct variant x;
    if (!adapt_plan(q->arena, &q->prices, q->from, q->where, lost, spare, orders, &x.plan)) return;
    if (!plan_set_add(&q->made, &x.plan)) return;
    x.estimate_ns = balance_layers_estimate(q->arena, &q->prices, &x.plan);
    if (x.estimate_ns == INT64_MAX) return;
    x.idle = spare == SPARE_IDLE;
    int32_t at = q->n++;
    for (; at > 0 && q->variants[at - 1].estimate_ns > x.estimate_ns; at--)
        q->variants[at] = q->variants[at - 1];
    q->variants[at] = x;
}

/* --- simulations --- */

static void insert_plan(struct warm *q, struct warm_plans *out, const struct plan *p, int64_t ns)
{
    struct search_plan x = {.iteration_ns = ns, .cost = plan_cost(p, ns)};
    int32_t at = out->n++;
    x.plan = scorer_copy_plan(q->t->arena, p);
    x.plan.predicted_ns = ns;
    for (; at > 0 && incumbents_better(&q->t->incumbents, &x, &out->plans[at - 1]); at--)
        out->plans[at] = out->plans[at - 1];
    out->plans[at] = x;
}

/* Whether a variant is left out, because others are faster by estimate, or because its simulation exceeds the budget. Where money counts, a
 * slower variant on fewer devices may be the best one. */
static bool is_left_out(const struct warm *q, const struct variant *x)
{
    if (incumbents_by_money(q->t->o) && x->idle) return false;
    return (double)x->estimate_ns > ENOUGH * (double)q->variants[0].estimate_ns ||
           scorer_work(q->t->scorer) + q->each > q->end;
}

static enum status simulate(struct warm *q, struct warm_plans *out, struct error *err)
{
    for (int32_t i = 0; i < q->n && !search_context_over(q->t); i++) {
        struct plan *p = &q->variants[i].plan;
        int64_t ns;
        if (out->n && is_left_out(q, &q->variants[i])) continue;
        int64_t before = scorer_work(q->t->scorer);
        TRY(space_shard_graphs(q->arena, &q->space, p, err));
        TRY(search_context_score(q->t, &q->space, p, &ns, err));
        q->each = scorer_work(q->t->scorer) - before + 1;
        if (ns < INT64_MAX) insert_plan(q, out, p, ns);
    }
    return OK;
}

/* Searches orders if simulations are cheap. */
static enum status order(struct warm *q, struct search_plan *best, int64_t tries, struct error *err)
{
    int64_t left = tries < q->t->evaluations_left ? tries : q->t->evaluations_left, had = left;
    if (!left) return OK;
    TRY(schedule_plan(q->arena, q->t->scorer, &q->space, &best->plan, &best->iteration_ns, &left,
                      q->t->o->stop, err));
    q->t->evaluations_left -= had - left;
    return OK;
}

static enum status improve(struct warm *q, struct warm_plans *out, struct error *err)
{
    struct search_plan best = out->plans[0];
    int64_t tries = (q->end - scorer_work(q->t->scorer)) / q->each;
    if (tries < 1 || search_context_over(q->t)) return OK;
    struct local_search_task task = {
        .t = q->t, .s = &q->space, .evaluations = tries - tries / 4};
    TRY(local_search_plan(&task, &best.plan, &best.iteration_ns, err));
    TRY(order(q, &best, tries / 4, err));
    if (best.iteration_ns < out->plans[0].iteration_ns)
        insert_plan(q, out, &best.plan, best.iteration_ns);
    return OK;
}

/* Sequences per nanosecond of a device of this type name; 0: the new cluster has none. */
static double power_of(const struct warm *q, int32_t old)
{
    const struct cluster *o = &q->from->cluster, *c = q->task->cluster;
    const char *name = o->types[o->devices[old].type].name;
    for (int32_t t = 0; t < c->n_types; t++) {
        if (strcmp(name, c->types[t].name) != 0) continue;
        const struct stage_cost *x = space_stage_type(&q->space, t, 0, q->space.n_layers - 1);
        return 1 / (double)(x->forward_ns + x->input_ns + x->weight_ns);
    }
    return 0;
}

/* Expected iteration: the old plan's, scaled by the power of its devices to that of the remaining and new ones; 0: unknown. */
static double expected_ns(const struct warm *q)
{
    const struct cluster *o = &q->from->cluster;
    bool *known = ARENA_ARRAY(q->arena, bool, (size_t)q->task->cluster->n_devices);
    double before = 0, now = 0;
    for (int32_t d = 0; d < o->n_devices; d++)
        if (q->where[d] >= 0) known[q->where[d]] = true;
    for (int32_t d = 0; d < q->task->cluster->n_devices; d++)
        if (!known[d]) {
            const struct stage_cost *x =
                space_stage_type(&q->space, q->task->cluster->devices[d].type, 0, q->space.n_layers - 1);
            now += 1 / (double)(x->forward_ns + x->input_ns + x->weight_ns);
        }
    for (int32_t r = 0; r < q->from->n_replicas; r++)
        for (int32_t i = 0; i < q->from->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&q->from->replicas[r].stages[i]); k++) {
                int32_t d = plan_stage_device(&q->from->replicas[r].stages[i], k);
                double power = power_of(q, d);
                if (!(power > 0)) return 0;
                before += power;
                if (q->where[d] >= 0) now += power;
            }
    return now > 0 ? (double)q->from->predicted_ns * before / now : 0;
}

static bool enough(const struct warm *q, const struct warm_plans *out)
{
    bool same = q->from->job.global_batch == q->task->job->global_batch &&
                q->from->microbatch == q->space.microbatch;
    return same && (double)out->plans[0].iteration_ns <= ENOUGH * expected_ns(q);
}

/* Whether the plans suffice, and then the bound of their microbatch size. */
static enum status finish(struct warm *q, struct warm_plans *out, struct bound_certificate *bound,
                          struct error *err)
{
    out->enough = out->n && enough(q, out);
    if (!out->n || !bound || (!out->enough && !search_context_stopped(q->t))) return OK;
    const struct space *one = &q->space;
    struct cost *single = cost_new(q->arena, q->task->profile, q->task->cluster);
    double most_ns = incumbents_max_ns(q->t->o);
    enum bound_stages stages = BOUND_STAGES_WHOLE;
    for (int32_t i = 0; i < out->n; i++) {
        enum bound_stages x = spmd_stage_extent(&out->plans[i].plan);
        if (x > stages) stages = x;
    }
    return bound_cluster(q->t->arena, q->task->cluster, single, &one, 1, stages, most_ns, bound,
                         err);
}

static enum status search_old_plan(struct warm *q, struct warm_plans *out,
                                   struct bound_certificate *bound, struct error *err)
{
    find_team(q);
    struct cost *cost = cost_new(q->arena, q->task->profile, q->task->cluster);
    TRY(space_make(q->arena, q->task->job, q->task->cluster, cost, size_of(q), q->t->lower, &q->space, err));
    q->prices = (struct warm_prices){&q->space, NULL};
    if (has_shards(q->from) && q->space.microbatch > 1) {
        TRY(space_make_on(q->arena, q->task->job, q->task->cluster, cost, q->space.devices, 1, q->t->lower,
                          &q->few, err));
        q->prices.few = &q->few;
    }
    q->variants = ARENA_ARRAY(q->arena, struct variant, WARM_VARIANTS);
    q->made = (struct plan_set){.known = {.arena = q->arena}};
    for (int lost = 0; lost < LOST_COUNT; lost++)
        for (int spare = 0; spare < SPARE_COUNT; spare++)
            for (int orders = 0; orders < ORDERS_COUNT; orders++) add_variant(q, (enum warm_lost)lost, (enum warm_spare)spare, (enum warm_orders)orders);
    q->end = scorer_work(q->t->scorer) + INT64_C(1000) * BUDGET_US;
    TRY(simulate(q, out, err));
    if (out->n) TRY(improve(q, out, err));
    return finish(q, out, bound, err);
}

enum status warm_start_search(struct search_context *t, const struct warm_task *task,
                              struct warm_plans *out, struct bound_certificate *bound,
                              struct error *err)
{
    struct warm q = {.t = t, .task = task, .arena = arena_new(), .from = t->o->from};
    out->n = 0, out->enough = false;
    enum status st = search_old_plan(&q, out, bound, err);
    arena_free(q.arena);
    return st;
}

enum status warm_start_class(struct search_context *t, const struct space *spaces, int32_t n,
                             const struct warm_plans *from, struct error *err)
{
    for (int32_t i = 0; i < from->n && !search_context_over(t); i++)
        for (int32_t s = 0; s < n; s++) {
            struct candidate trial;
            struct plan p;
            int64_t ns;
            if (!candidate_of(&from->plans[i].plan, &spaces[s], &trial)) continue;
            candidate_plan(&trial, scorer_arena(t->scorer), &p);
            TRY(search_context_evaluate(t, &spaces[s], &p, &ns, err));
        }
    return OK;
}
