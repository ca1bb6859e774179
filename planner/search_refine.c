#include "planner/search_refine.h"

#include "planner/exact/candidate.h"
#include "planner/schedule/plan.h"

/* Whether its busiest device alone, a lower bound for every order, makes a plan too slow to be returned or refined. */
static bool hopeless(const struct search_context *t, const struct search_plan *x,
                     const struct space *s, const struct incumbents *refined)
{
    struct candidate trial;
    int32_t among = t->o->top > 1 ? t->o->top : 1;
    bool free = t->o->objective == OBJECTIVE_TIME && !(t->o->min_rate > 0) && !(t->o->max_cost > 0);
    if (!free || refined->n < among) return false;
    return candidate_of(&x->plan, s, &trial) &&
           candidate_work(&trial) >= refined->plans[among - 1].iteration_ns;
}

static bool has_orders(const struct plan *p)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (p->replicas[r].stages[0].order) return true;
    return false;
}

/* s: of its microbatch size; NULL: that of a baseline, which was not searched. */
static enum status refine_one(struct search_context *t, const struct search_plan *x,
                              const struct space *s, struct incumbents *refined, struct error *err)
{
    struct plan better = x->plan;
    int64_t ns = x->iteration_ns;
    if (!search_context_over(t) && s && !has_orders(&better) && !hopeless(t, x, s, refined))
        TRY(schedule_plan(scorer_arena(t->scorer), t->scorer, s, &better, &ns,
                          &t->evaluations_left, t->o->stop, err));
    incumbents_add(refined, &better, ns);
    search_context_report(t);
    return OK;
}

enum status search_refine(struct search_context *t, const struct cluster *c,
                          const struct space *spaces, int32_t n, struct error *err)
{
    struct incumbents refined;
    incumbents_init(&refined, t->arena, t->incumbents.most, t->o, c);
    refined.also = t->incumbents.also;
    for (int32_t i = 0; i < t->incumbents.n; i++) {
        const struct search_plan *x = &t->incumbents.plans[i];
        int32_t s = 0;
        while (s < n && spaces[s].microbatch != x->plan.microbatch) s++;
        TRY(refine_one(t, x, s < n ? &spaces[s] : NULL, &refined, err));
    }
    t->incumbents = refined;
    return OK;
}
