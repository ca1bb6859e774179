/* planner/local_search/local_search.h - local search from a good plan with simulated neighbours, for any number of devices.
 *
 * Replicas with equal layers on equal device types form a group and change together, so that the neighbours of a plan are as many for
 * 10 as for 10,000 devices. The moves are the rows of one table (planner/local_search/moves.c): gradient buckets, schedules, warm-up
 * counts, microbatches between two groups, layers over a stage boundary, the bucket of a stage, the schedule of a group. The variants of a
 * move are scored LOCAL_SEARCH_BATCH at a time, in parallel if the score is; the best of a batch is taken if it shortens the iteration, and
 * repeated where the table says so. The batch has a constant size, so the result does not depend on the number of threads. No plan is scored
 * twice. The search ends at a local optimum of all moves or when a budget is spent.
 */
#ifndef PLANNER_LOCAL_SEARCH_LOCAL_SEARCH_H
#define PLANNER_LOCAL_SEARCH_LOCAL_SEARCH_H

#include "planner/candidate/plan_set.h"
#include "planner/candidate/search_context.h"

enum { LOCAL_SEARCH_BATCH = 4 };

/* Times of n plans in ns, INT64_MAX for one that does not fit; the plans are modified until they fit. NULL: search_context_score one by
 * one, whose plans become incumbents. */
struct local_search_score {
    enum status (*of_plans)(void *of, struct plan *plans, int32_t n, int64_t *ns,
                            struct error *err);
    void *of;
};

struct local_search_task {
    struct search_context *t;
    const struct space *s;
    int64_t evaluations; /* limit of plans scored, beside t's budgets */
    bool orders_only;    /* a single pass over the table's first moves: buckets and schedules of all stages */
    bool named;          /* schedules are varied too; not those of measured layers, which do not divide the backward */
    struct plan_set *tried; /* of other searches with the same score; NULL: none */
    struct local_search_score score;
};

/* *plan and *iteration_ns become the best found. */
MUST_CHECK enum status local_search_plan(const struct local_search_task *task, struct plan *plan,
                                         int64_t *iteration_ns, struct error *err);

#endif
