#include "planner/fleet/fleet_internal.h"

#include "core/base/arena.h"
#include "planner/bound/cluster.h"
#include "planner/candidate/parallel_score.h"
#include "planner/fleet/balance_shares.h"
#include "planner/local_search/local_search.h"
#include "planner/schedule/plan.h"

enum {
    BATCH_MAX = 16, /* candidates simulated in parallel */
    /* Default budget of simulation: microseconds in total, and per GPU. */
    BUDGET_US = 700000,
    BUDGET_GPU_US = 500,
    /* The first applies where estimates are accurate: dedicated links, measured layers. */
    BUDGET_CLOSED_US = 440000,
    BUDGET_DEDICATED_US =
        1300, /* per GPU with dedicated links, where more candidates can be distinguished */
    IMPROVED_MAX = 3
};

static void keep_best(struct fleet *q, const struct fleet_plan *x, struct fleet_plan *best,
                      int32_t *n)
{
    int32_t at = *n < IMPROVED_MAX ? (*n)++ : IMPROVED_MAX;
    incumbents_add(&q->t->incumbents, &x->plan, x->ns);
    for (; at > 0 && best[at - 1].ns > x->ns; at--)
        if (at < IMPROVED_MAX) best[at] = best[at - 1];
    if (at < IMPROVED_MAX) best[at] = *x;
}

/* Simulates the selected candidates. */
static enum status simulate_batch(struct fleet *q, struct fleet_plan *chosen, int32_t n,
                                  struct fleet_plan *best, int32_t *n_best, struct error *err)
{
    struct parallel_score_item items[BATCH_MAX];
    for (int32_t i = 0; i < n; i++)
        items[i] = (struct parallel_score_item){
            .plan = chosen[i].plan, .space = chosen[i].space, .quick = chosen[i].quick};
    TRY(parallel_score(q->t, q->task->profile, items, n, err));
    for (int32_t i = 0; i < n; i++) {
        chosen[i].plan = items[i].plan, chosen[i].ns = items[i].ns;
        if (chosen[i].ns < INT64_MAX) keep_best(q, &chosen[i], best, n_best);
    }
    return OK;
}

/* Estimates of large plans are usually 1/30 too low. */
static bool hopeless(int64_t estimate_ns, int64_t best_ns)
{
    return estimate_ns + estimate_ns / 32 >= best_ns;
}

static enum status simulate_large(struct fleet *q, struct fleet_plan *x, struct fleet_plan *best,
                                  int32_t *n_best, struct error *err)
{
    x->worked = ARENA_ARRAY(q->arena, int64_t, (size_t)x->plan.n_replicas);
    scorer_quick(q->t->scorer, true);
    TRY(search_context_score(q->t, &x->space, &x->plan, &x->ns, err));
    if (x->ns == INT64_MAX) return OK;
    if (!scorer_worked(q->t->scorer, &x->plan, x->worked)) x->quick = false;
    keep_best(q, x, best, n_best);
    return OK;
}

/* The first candidate regardless of cost, unless one is cheaper; others within the budget. One at a time until one fits,
 * then in batches, whose composition does not depend on the number of threads. */
static enum status simulate_candidates(struct fleet *q, struct fleet_plan *best, int32_t *n_best,
                                       struct error *err)
{
    struct fleet_plan chosen[BATCH_MAX];
    int64_t least = INT64_MAX, half = q->left_us / 2;
    int32_t n = 0;
    *n_best = 0;
    for (int32_t i = 0; i < q->n_candidates; i++)
        if (q->candidates[i].cost_us < least) least = q->candidates[i].cost_us;
    for (int32_t i = 0; i < q->n_candidates && !search_context_over(q->t); i++) {
        const struct fleet_candidate *c = &q->candidates[i];
        if (i && c->estimate_ns == c[-1].estimate_ns && c->size == c[-1].size) continue;
        if (q->dedicated_links && *n_best == IMPROVED_MAX &&
            q->t->incumbents.n == q->t->incumbents.most &&
            c->estimate_ns - best[0].ns > best[0].ns / 5)
            break; /* beyond the error of the estimates */
        bool quick = c->placed.n_stages > FLEET_QUICK_LANES;
        if (*n_best && (quick || best[0].quick) && hopeless(c->estimate_ns, best[0].ns)) continue;
        /* Half of the budget is reserved for local search, except for the largest plans, for which it is too expensive. */
        int64_t spare = quick ? 0 : half;
        if (q->left_us - c->cost_us < spare && (*n_best || c->cost_us > least)) continue;
        struct fleet_plan *x = &chosen[n];
        fleet_plan_of(q, c, x);
        q->left_us -= c->cost_us;
        if (quick) {
            TRY(simulate_large(q, x, best, n_best, err));
            continue;
        }
        n++;
        if (*n_best && n < BATCH_MAX && n < q->t->evaluations_left) continue;
        TRY(simulate_batch(q, chosen, n, best, n_best, err));
        n = 0;
    }
    return n ? simulate_batch(q, chosen, n, best, n_best, err) : OK;
}

enum { LEVEL_ROUNDS = 2, LEVEL_GPU_US = 400 }; /* per GPU, plus the rest of the candidates' budget */

/* Shares of large plans are balanced by the replicas' end times in a few simulations. */
static enum status level(struct fleet *q, struct fleet_plan *x, struct error *err)
{
    int64_t us = q->left_us + LEVEL_GPU_US * (int64_t)q->task->cluster->n_devices;
    int64_t rounds = us / x->cost_us;
    if (!x->quick || x->leveled || rounds < 1) return OK;
    scorer_quick(q->t->scorer, true);
    if (rounds > LEVEL_ROUNDS) rounds = LEVEL_ROUNDS;
    TRY(balance_shares_plan(q->t, &x->space, &x->plan, x->worked, &x->ns, (int32_t)rounds, err));
    q->left_us = us - rounds * x->cost_us;
    incumbents_add(&q->t->incumbents, &x->plan, x->ns);
    return OK;
}

/* Simulates the winner to its steady step after a comparison by first steps. */
static enum status settle(struct fleet *q, struct fleet_plan *x, struct error *err)
{
    struct incumbents full;
    scorer_quick(q->t->scorer, false);
    TRY(search_context_score(q->t, &x->space, &x->plan, &x->ns, err));
    incumbents_init(&full, q->t->arena, q->t->incumbents.most, q->t->o, q->task->cluster);
    incumbents_add(&full, &x->plan, x->ns);
    q->t->incumbents = full;
    return OK;
}

enum { ORDER_OPERATIONS = 1000000 }; /* operations timed for the orders of a replica: about 30 ms */

/* Searches orders for the winner's stages and keeps them if faster. */
static enum status order(struct fleet *q, struct fleet_plan *x, struct error *err)
{
    int64_t left = q->t->evaluations_left;
    TRY(schedule_plan(q->t->arena, q->t->scorer, &x->space, &x->plan, &x->ns, &left,
                      ORDER_OPERATIONS, q->t->o->stop, err));
    q->t->evaluations_left = left;
    incumbents_add(&q->t->incumbents, &x->plan, x->ns);
    return OK;
}

static enum status search_sizes(struct fleet *q, struct error *err)
{
    struct fleet_plan best[IMPROVED_MAX + 1];
    int32_t n_best = 0;
    const struct search_options *o = q->t->o;
    TRY(tp_options_make(q->t, q->t->arena, q->task->job, q->task->cluster, q->task->profile,
                        q->numbers, q->n_numbers, &q->offers, err));
    template_classes_make(q->t->arena, &q->offers, q->numbers, q->n_numbers, &q->classes);
    TRY(fleet_candidates(q, err));
    if (!q->n_candidates) return OK;
    q->left_us =
        o->evaluations > 0
            ? INT64_MAX / 2
            : (q->dedicated_links && q->task->job->model.measured ? BUDGET_CLOSED_US : BUDGET_US) +
                  (q->dedicated_links ? BUDGET_DEDICATED_US : BUDGET_GPU_US) *
                      (int64_t)q->task->cluster->n_devices;
    TRY(fleet_rank_large(q, err));
    TRY(simulate_candidates(q, best, &n_best, err));
    if (n_best) TRY(level(q, &best[0], err));
    for (int32_t i = 0; i < n_best && !search_context_over(q->t); i++) {
        int64_t tries = (q->left_us / (n_best - i) - best[i].settle_us) / best[i].cost_us;
        if (o->evaluations > 0) tries = q->t->evaluations_left / (n_best - i);
        if (tries < 1) continue;
        scorer_quick(q->t->scorer, best[i].quick);
        struct local_search_task task = {.t = q->t, .s = &best[i].space, .evaluations = tries};
        TRY(local_search_plan(&task, &best[i].plan, &best[i].ns, err));
        q->left_us -= tries * best[i].cost_us;
        incumbents_add(&q->t->incumbents, &best[i].plan, best[i].ns);
    }
    int32_t first = 0;
    for (int32_t i = 1; i < n_best; i++)
        if (best[i].ns < best[first].ns) first = i;
    if (n_best && !best[first].quick) return order(q, &best[first], err);
    if (!n_best || best[first].settle_us > q->left_us) return OK;
    return settle(q, &best[first], err);
}

/* The bound covers only these numbers of GPUs a stage, so its class text names them. */
static const char *class_of(struct fleet *q, const char *text)
{
    for (int32_t i = 0; i < q->n_numbers && q->n_numbers > 1; i++)
        text = arena_printf(q->t->arena, "%s%s%d", text, i ? ", " : "; GPUs a stage: ",
                            (int)q->numbers[i]);
    return text;
}

static enum status certify(struct fleet *q, struct bound_certificate *bound, struct error *err)
{
    const struct cluster *c = q->task->cluster, *priced = &q->offers.priced;
    if (!q->makers[0]) /* stopped after the baselines */
        TRY(template_classes_size(q->arena, &q->classes, &q->offers, q->task->sizes[0],
                                  q->t->lower, &q->spaces[0], &q->makers[0], err));
    int64_t *count = ARENA_ARRAY(q->arena, int64_t, (size_t)c->n_types);
    int32_t *tp = ARENA_ARRAY(q->arena, int32_t, (size_t)priced->n_types); /* 0: not offered */
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    for (int32_t k = 0; k < q->classes.n; k++)
        tp[q->classes.classes[k].type] = q->classes.classes[k].tp;
    struct bound_any *b = bound_any_new(q->t->arena, q->spaces[0].n_layers, c->n_types, count,
                                        q->task->job->global_batch);
    for (int32_t i = 0; i < q->task->n_sizes && q->makers[i]; i++)
        bound_cluster_offer(b, &q->spaces[i], tp, q->offers.base_type);
    TRY(bound_cluster_cuts(q->t->arena, b, c, q->offers.cost, err));
    bound_cluster_prices(b, c, incumbents_max_ns(q->t->o));
    TRY(bound_any_solve(b, bound, err));
    bound->class_text = class_of(q, bound->class_text);
    return OK;
}

static enum status search_numbers(struct search_context *t, const struct search_task *task,
                                  const int32_t *numbers, int32_t n,
                                  struct bound_certificate *bound, struct error *err)
{
    struct fleet q = {
        .t = t, .task = task, .arena = arena_new(), .numbers = numbers, .n_numbers = n};
    q.dedicated_links = cluster_has_dedicated_links(task->cluster);
    enum status st = search_sizes(&q, err);
    if (st == OK && t->incumbents.n && bound) st = certify(&q, bound, err);
    arena_free(q.arena);
    return st;
}

/* Of measured layers the first numbers are searched before all of them, because a template lists only the best labels of all numbers. */
enum status fleet_search(struct search_context *t, const struct search_task *task,
                         struct bound_certificate *bound, struct error *err)
{
    int32_t numbers[TP_NUMBERS_MAX];
    int32_t all = tp_options_numbers(task->job, task->cluster, task->profile, t->o->no_sharding,
                                     numbers);
    struct incumbents found = t->incumbents;
    enum status st = OK;
    for (int32_t n = task->job->model.measured ? 1 : all; n <= all && st == OK; n++) {
        incumbents_init(&t->incumbents, t->arena, found.most, t->o, task->cluster);
        st = search_numbers(t, task, numbers, n, n == all ? bound : NULL, err);
        incumbents_add_all(&found, &t->incumbents);
    }
    t->incumbents = found;
    return st;
}
