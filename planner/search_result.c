#include "planner/search_result.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/cluster/topology.h"
#include "planner/baseline/baseline.h"
#include "planner/baseline/baselines.h"
#include "planner/experts/place.h"
#include "planner/search_check.h"
#include "planner/spmd_stage/spmd_stage.h"

#include <math.h>

void search_result_begin(struct arena *a, struct search_result *out)
{
    *out = (struct search_result){.n_baselines = baseline_count()};
    out->baselines = ARENA_ARRAY(a, struct search_baseline, (size_t)out->n_baselines);
    for (int32_t i = 0; i < out->n_baselines; i++)
        out->baselines[i] =
            (struct search_baseline){.name = baseline_name(i),
                                     .iteration_ns = INT64_MAX,
                                     .why = "the search was stopped before this baseline"};
}

bool search_result_outside(const struct search_result *out, enum bound_stages stages)
{
    bool found = false;
    for (int32_t i = 0; i < out->n_plans; i++)
        found |= spmd_stage_extent(&out->plans[i].plan) > stages;
    for (int32_t i = 0; i < out->n_baselines; i++)
        found |= out->baselines[i].iteration_ns < out->lower_bound_ns;
    return found;
}

enum status search_result_conclude(struct search_context *q, const struct job *j, const struct cluster *c, const struct profile *p,
                                   struct search_result *out, struct error *err)
{
    if (q->o->baseline) TRY(baselines_pick(q, out, err));
    TRY(experts_place_incumbents(q, j, c, p, err));
    out->plans = q->incumbents.plans;
    while (out->n_plans < q->incumbents.n &&
           incumbents_inside(&q->incumbents, &q->incumbents.plans[out->n_plans]))
        out->n_plans++;
    if (q->o->top > 0 && out->n_plans > q->o->top) out->n_plans = q->o->top;
    out->candidates = q->candidates;
    out->evaluated = scorer_runs(q->scorer);
    out->budget = llround(q->budget * SEARCH_EVALUATIONS);
    out->next_budget = out->budget < SEARCH_EVALUATIONS ? SEARCH_EVALUATIONS : 2 * out->budget;
    out->exact =
        !q->interrupted && !q->exhausted && !q->worked_out && !q->truncated && !q->o->baseline;
    out->stopped = q->interrupted  ? "interrupted"
                   : q->exhausted || q->left_by_evaluations ? "evaluations"
                   : q->worked_out || q->left_by_work       ? "work"
                                                            : "end";
    out->sampled = q->sampled_ns && out->n_plans && out->plans[0].iteration_ns == q->sampled_ns;
    for (int32_t i = 0; i < out->n_plans; i++) {
        out->plans[i].plan.profile_id = p->id;
        out->plans[i].plan.deterministic |= q->o->deterministic;
        if (!q->o->baseline)
            out->plans[i].plan.name = i ? arena_printf(q->arena, "found-%d", (int)i + 1) : "found";
    }
    for (int32_t i = 0; i < out->n_baselines; i++) out->baselines[i].plan.profile_id = p->id;
    if (out->n_plans) return OK;
    if (q->interrupted) return search_context_unfound(err);
    if (q->incumbents.n) {
        const struct search_plan *x = &q->incumbents.plans[0];
        return error_set(err, ERR_INFEASIBLE,
                         "no plan within the limits: the nearest takes %.4g s%s per iteration",
                         units_s_from_ns(x->iteration_ns),
                         x->cost > 0 ? arena_printf(q->arena, " and costs %.4g", x->cost) : "");
    }
    return error_set(err, ERR_INFEASIBLE, SEARCH_NO_PLAN "%s%s", scorer_why(q->scorer), search_check_offload_hint(c));
}

const char *search_result_why(struct arena *a, const struct cluster *c, enum status st,
                              const char *text)
{
    const char *gap = st == ERR_INFEASIBLE ? topology_gap(a, c) : NULL;
    return gap ? arena_printf(a, "%s; %s", text, gap) : text;
}
