/* planner/coarse/whole.c - the best trials, simulated whole.
 *
 * The fastest of them, and those whose slowest stages leave room for a better time, then receive orders of their stages' F, I and W, which
 * use the memory there is (planner/schedule/plan.h).
 */
#include "planner/coarse/trials.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/local_search/local_search.h"
#include "planner/schedule/plan.h"

#include <string.h>

/* Orders of F, I and W for the stages of a plan, as many microbatches in flight as memory admits; once for each plan. */
static enum status order_stages(struct coarse *q, const struct parallel_score_item *x,
                                struct error *err)
{
    if (x->ns == INT64_MAX || search_context_stopped(q->t) || !plan_set_add(&q->ordered, &x->plan))
        return OK;
    struct plan plan = scorer_copy_plan(q->t->arena, &x->plan);
    int64_t ns = x->ns, left = q->t->evaluations_left;
    TRY(schedule_plan(q->t->arena, q->t->scorer, &x->space, &plan, &ns, &left, q->t->o->stop, err));
    q->t->evaluations_left = left;
    if (ns < x->ns) incumbents_add(&q->t->incumbents, &plan, ns);
    return OK;
}

/* The fastest of n plans simulated whole, improved by neighbours simulated whole, because trials err by up to a few percent; then with
 * orders, as each of the n has been: what gains with a named schedule may lose with orders. */
static enum status polish(struct coarse *q, const struct parallel_score_item *items, int32_t n,
                          struct error *err)
{
    struct search_context *t = q->t;
    struct plan_set tried = {.known = {.arena = q->arena}};
    struct parallel_score_item better;
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (items[i].ns < items[best].ns) best = i;
    if (!n || items[best].ns == INT64_MAX) return OK;
    struct trial x = {.plan = items[best].plan, .space = items[best].space, .ns = items[best].ns};
    int64_t end = t->work_end;
    t->work_end = scorer_work(t->scorer) + coarse_work_ns(q) / COARSE_PART;
    enum status st = coarse_improve(q, &x, false, true, &tried, err);
    t->work_end = end;
    if (st != OK || x.ns >= items[best].ns) return st;
    better = (struct parallel_score_item){.plan = x.plan, .space = x.space};
    TRY(parallel_score(t, q->task->profile, &better, 1, err)); /* with all replicas */
    if (better.ns >= items[best].ns) return OK;
    incumbents_add(&t->incumbents, &better.plan, better.ns);
    return order_stages(q, &better, err);
}

/* Orders for plans that are slower than the best one with named schedules, because of their fill and their messages, but whose slowest
 * stages leave room for a better time, by the time expected. */
static enum status order_busiest(struct coarse *q, const struct trial *x, int32_t n,
                                 struct error *err)
{
    int64_t *expected = ARENA_ARRAY(q->arena, int64_t, (size_t)n + 1),
            best = q->t->incumbents.plans[0].iteration_ns,
            end = scorer_work(q->t->scorer) + coarse_work_ns(q) / COARSE_PART;
    for (int32_t i = 0; i < n; i++)
        expected[i] = x[i].ns < INT64_MAX && group_busiest_ns(&x[i].space, &x[i].plan) < best
                          ? coarse_expected_ns(q, &x[i])
                          : INT64_MAX;
    while (n && scorer_work(q->t->scorer) < end) {
        int32_t at = 0;
        for (int32_t i = 1; i < n; i++)
            if (expected[i] < expected[at]) at = i;
        if (expected[at] == INT64_MAX) break;
        struct parallel_score_item y = {.plan = x[at].plan, .space = x[at].space, .ns = x[at].ns};
        TRY(order_stages(q, &y, err));
        expected[at] = INT64_MAX;
    }
    return OK;
}

/* If the improved plan takes longer in whole than its sample did before, it also comes as it was. Returns the number of items. */
static int32_t add_listed(const struct trial *x, struct parallel_score_item *items, int32_t n)
{
    if (!n || items[0].ns <= x->listed.ns) return n;
    if (n < PARALLEL_SCORE_BATCH) n++;
    memmove(items + 2, items + 1, (size_t)(n - 2) * sizeof *items);
    items[1] = x->listed;
    return n;
}

/* Simulates n plans, but for those that an earlier call did. */
static enum status simulate(struct coarse *q, struct parallel_score_item *items, int32_t n,
                            struct error *err)
{
    struct parallel_score_item new[PARALLEL_SCORE_BATCH];
    int32_t of[PARALLEL_SCORE_BATCH], n_new = 0;
    for (int32_t i = 0; i < n; i++) {
        items[i].ns = *plan_set_number(&q->simulated, &items[i].plan);
        if (!items[i].ns) of[n_new] = i, new[n_new++] = items[i];
    }
    TRY(parallel_score(q->t, q->task->profile, new, n_new, err));
    for (int32_t i = 0; i < n_new; i++) {
        items[of[i]] = new[i];
        if (new[i].tried) *plan_set_number(&q->simulated, &new[i].plan) = new[i].ns; /* as fitted */
    }
    return OK;
}

enum status coarse_whole(struct coarse *q, const struct trial *x, int32_t n, struct error *err)
{
    struct parallel_score_item items[PARALLEL_SCORE_BATCH];
    int32_t taken = 0;
    for (int32_t i = 0; i < n && taken < PARALLEL_SCORE_BATCH; i++)
        if (coarse_near_best(x, i) && (!i || x[i].ns != x[i - 1].ns))
            items[taken++] = (struct parallel_score_item){.plan = x[i].plan, .space = x[i].space};
    int64_t before = scorer_work(q->t->scorer);
    TRY(simulate(q, items, taken ? 1 : 0, err));
    int64_t each = scorer_work(q->t->scorer) - before;
    if (!each) each = q->t->whole_ns; /* of the call that simulated it */
    q->t->whole_ns = each;
    taken = (int32_t)units_min(add_listed(x, items, taken),
                               coarse_work_ns(q) / COARSE_PART / (each + 1) + 1);
    if (taken > 1) TRY(simulate(q, items + 1, taken - 1, err));
    for (int32_t i = 0; i < taken; i++)
        if (items[i].ns < INT64_MAX) incumbents_add(&q->t->incumbents, &items[i].plan, items[i].ns);
    for (int32_t i = 0; i < taken; i++) TRY(order_stages(q, &items[i], err));
    if (LOCAL_SEARCH_BATCH * each <= coarse_work_ns(q) / COARSE_PART)
        TRY(polish(q, items, taken, err));
    if (q->t->incumbents.n && !q->task->job->model.measured && q->t->o->objective == OBJECTIVE_TIME)
        TRY(order_busiest(q, x, n, err));
    return OK;
}
