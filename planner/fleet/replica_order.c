#include "planner/fleet/replica_order.h"

#include "core/base/arena.h"
#include "planner/fleet/balance_shares.h"
#include "planner/schedule/refine.h"

#include <string.h>

struct replica_order {
    struct search_context *t;
    const struct space *s;
    struct arena *arena; /* of one class of replicas */
    const struct plan *plan;
    int32_t first, turns; /* of the class; its microbatches when simulated */
    struct plan_replica best;
    int64_t best_ns;
};

static bool same_replica(const struct plan *p, const struct plan_replica *a,
                         const struct plan_replica *b)
{
    if (a->n_stages != b->n_stages) return false;
    for (int32_t i = 0; i < a->n_stages; i++) {
        const struct plan_stage *x = &a->stages[i], *y = &b->stages[i];
        if (x->last_layer != y->last_layer || x->warmup != y->warmup ||
            x->recompute != y->recompute || x->n_shards != y->n_shards ||
            p->cluster.devices[x->device].type != p->cluster.devices[y->device].type)
            return false;
    }
    return true;
}

static bool ordered(const struct plan_replica *r)
{
    bool any = r->schedule || r->orders;
    for (int32_t i = 0; i < r->n_stages; i++) any |= r->stages[i].order || r->stages[i].sequences;
    return any;
}

/* The replica alone, with enough microbatches to measure its pace. */
static struct plan alone(const struct replica_order *q, int order)
{
    struct plan p = *q->plan;
    p.replicas = &q->plan->replicas[q->first], p.n_replicas = 1;
    p = scorer_copy_plan(q->arena, &p);
    struct plan_replica *r = p.replicas;
    r->microbatches = q->turns;
    p.job.global_batch = q->turns * p.microbatch;
    (void)refine_schedule(r, order); /* it has no orders of its own: `ordered` */
    for (int32_t i = 0; i < r->n_stages; i++)
        if (r->stages[i].warmup > q->turns) r->stages[i].warmup = q->turns;
    return p;
}

static enum status try_order(struct replica_order *q, int order, bool fit, struct error *err)
{
    struct scorer *w = q->t->scorer;
    struct plan p = alone(q, order);
    int64_t ns, end;
    struct error why;
    enum status st = fit ? scorer_fit(w, q->s, &p, &ns, &why) : scorer_run(w, q->s, &p, &ns, &why);
    if (st == ERR_INPUT || (st == OK && ns == INT64_MAX)) return OK;
    if (st != OK) return error_set(err, st, "%s", why.text);
    if (!scorer_worked(w, &p, &end)) return OK;
    if (end >= q->best_ns) return OK;
    q->best = p.replicas[0], q->best_ns = end;
    return OK;
}

static enum status find_order(struct replica_order *q, struct error *err)
{
    const struct plan_replica *r = &q->plan->replicas[q->first];
    bool halves = r->n_stages > 1 && !q->s->job->model.measured;
    q->best_ns = INT64_MAX;
    q->turns = r->microbatches;
    if (q->turns > REPLICA_ORDER_TURNS * r->n_stages) q->turns = REPLICA_ORDER_TURNS * r->n_stages;
    for (int k = 0; k < (halves ? REFINE_SCHEDULES : 1) && !search_context_over(q->t); k++)
        TRY(try_order(q, k, false, err));
    if (q->best_ns == INT64_MAX) TRY(try_order(q, 0, true, err));
    return OK;
}

/* Copies the result of one replica to another of its class. */
static void follow(const struct replica_order *q, struct plan_replica *r)
{
    r->schedule = q->best.schedule, r->split = q->best.split;
    for (int32_t i = 0; i < r->n_stages; i++) {
        struct plan_stage *x = &r->stages[i];
        const struct plan_stage *y = &q->best.stages[i];
        x->recompute = y->recompute, x->receive_ahead = y->receive_ahead;
        if (r->schedule || y->warmup < q->turns) x->warmup = y->warmup;
        if (x->warmup > r->microbatches) x->warmup = r->microbatches;
    }
}

/* The class whose first replica is r: sets ends[] of all its members; if no order fits, done[] is unchanged. */
static enum status take_class(struct replica_order *q, int32_t r, struct plan *plan, int64_t *ends,
                              bool *done, struct error *err)
{
    const struct plan_replica *first = &q->plan->replicas[r];
    q->first = r;
    TRY(find_order(q, err));
    for (int32_t k = r; k < plan->n_replicas; k++) {
        struct plan_replica *x = &plan->replicas[k];
        if (done[k] || !same_replica(plan, first, &q->plan->replicas[k])) continue;
        done[k] = true, ends[k] = q->best_ns;
        if (q->best_ns == INT64_MAX) continue;
        follow(q, x);
        ends[k] += (x->microbatches - q->turns) * balance_shares_pace(q->s, x);
    }
    return OK;
}

/* Shares for a common end time, and the last end. */
static int64_t share(const struct space *s, struct plan *plan, const int64_t *ends,
                     struct arena *scratch)
{
    int64_t last = 0;
    for (int32_t r = 0; r < plan->n_replicas; r++)
        if (ends[r] == INT64_MAX) return INT64_MAX;
    struct plan before = scorer_copy_plan(scratch, plan);
    (void)balance_shares(s, plan, ends);
    for (int32_t r = 0; r < plan->n_replicas; r++) {
        int32_t more = plan->replicas[r].microbatches - before.replicas[r].microbatches;
        int64_t end = ends[r] + more * balance_shares_pace(s, &plan->replicas[r]);
        if (end > last) last = end;
    }
    return last;
}

enum status replica_order_plan(struct search_context *t, const struct space *s, struct plan *plan,
                               int64_t *end_ns, struct error *err)
{
    struct replica_order q = {.t = t, .s = s, .arena = arena_new()};
    struct plan before = scorer_copy_plan(q.arena, plan);
    bool *done = ARENA_ARRAY(q.arena, bool, (size_t)plan->n_replicas), own = false;
    int64_t *ends = ARENA_ARRAY(q.arena, int64_t, (size_t)plan->n_replicas);
    enum status st = OK;
    q.plan = &before, *end_ns = INT64_MAX;
    for (int32_t r = 0; r < plan->n_replicas; r++) own |= ordered(&plan->replicas[r]);
    for (int32_t r = 0; r < plan->n_replicas && !own && st == OK; r++)
        if (!done[r]) st = take_class(&q, r, plan, ends, done, err);
    if (st == OK && !own) *end_ns = share(s, plan, ends, q.arena);
    arena_free(q.arena);
    return st;
}
