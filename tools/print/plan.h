/* tools/print/plan.h - the outcome of a plan search: plans, their metrics, unused devices, baselines, bounds. */
#ifndef TOOLS_PRINT_PLAN_H
#define TOOLS_PRINT_PLAN_H

#include "planner/candidate/types.h"
#include "profiles/profile.h"
#include "sim/metrics.h"
#include "tools/strategy/strategies.h"

struct arena;

struct plan_report {
    const struct cluster *cluster; /* as given; the plans' may have groups of its GPUs as devices */
    const struct search_result *result;
    const struct metrics *metrics; /* (n_plans) */
    const struct profile *profile;
    const char *file; /* that the first plan was written to */
    double search_s, min_rate;
    enum objective objective;
    int64_t evaluations; /* asked for; 0: the default */
    const struct strategies *strategies; /* NULL: none are allowed */
    const struct strategy_plan *preset;  /* the plan is that of a preset of another training; NULL: it is synchronous */
    bool baseline; /* one baseline was made instead of a search */
    bool verbose;  /* reasons of baselines uncut */
    bool timed_out;
};

void print_plan(struct arena *a, const struct plan_report *x);
void print_plan_json(struct arena *a, const struct plan_report *x);

#endif
