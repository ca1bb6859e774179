#include "planner/baselines.h"

#include "core/arena.h"
#include "core/program.h"
#include "planner/baseline.h"

#include <stdio.h>
#include <string.h>

/* The baseline over all microbatch sizes seen so far: the best setting of its family. */
enum status baselines_score(struct tries *q, struct arena *scratch, const struct space *s,
                            struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count() && !tries_stopped(q); i++) {
        struct search_baseline *b = &out->baselines[i];
        struct plan p;
        struct error why = {0};
        int64_t iteration_ns = INT64_MAX;
        enum status st = baseline_maker(i)(scorer_arena(q->scorer), s, &p, &why);
        if (st == OK) {
            q->evaluations_left--;
            TRY(scorer_fit(q->scorer, s, &p, &iteration_ns, err));
            if (iteration_ns == INT64_MAX) {
                struct program program;
                st = lower_plan_graph(scratch, &p, s->graph, q->lower, &program, &why);
            }
        }
        if (iteration_ns < b->iteration_ns) {
            b->iteration_ns = iteration_ns;
            b->plan = score_copy_plan(q->arena, &p);
            b->plan.predicted_ns = iteration_ns;
            b->why = NULL;
        } else if (b->iteration_ns == INT64_MAX) {
            b->why = arena_strdup(q->arena, why.text);
        }
        if (iteration_ns != INT64_MAX) kept_add(&q->kept, &p, iteration_ns);
        q->candidates++;
        tries_report(q);
    }
    return OK;
}

enum status baselines_pick(struct tries *q, struct search_result *out, struct error *err)
{
    for (int32_t i = 0; i < baseline_count(); i++) {
        if (strcmp(baseline_name(i), q->o->baseline) != 0) continue;
        struct search_baseline *b = &out->baselines[i];
        if (b->iteration_ns == INT64_MAX)
            return error_set(err, ERR_INFEASIBLE, "baseline %s: %s", b->name,
                             b->why ? b->why : "does not fit");
        q->kept.plans[0] = (struct search_plan){.plan = b->plan,
                                                .iteration_ns = b->iteration_ns,
                                                .cost = plan_cost(&b->plan, b->iteration_ns)};
        q->kept.n = 1;
        return OK;
    }
    char known[200] = "";
    for (int32_t i = 0; i < baseline_count(); i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", baseline_name(i));
    }
    return error_set(err, ERR_USAGE, "unknown baseline '%s'; known: %s", q->o->baseline, known);
}
