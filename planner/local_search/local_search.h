/* planner/local_search/local_search.h - local search from a good plan with simulated neighbours, for any number of devices.
 *
 * Replicas with equal layers on equal device types form a group and change together, so that the neighbours of a plan are as many for
 * 10 as for 10,000 devices. The moves are the rows of one table (planner/local_search/moves.c): gradient buckets, schedules, warm-up
 * counts, microbatches between two groups, layers over a stage boundary, the bucket of a stage, the schedule of a group, algorithms of gradient all-reduces; for `stages` also
 * (planner/local_search/stage_rows.c) ZeRO and recomputation, stages merged, split and exchanged, replicas joined and divided, devices and
 * sequences moved. A variant is not built if one of its stages alone computes for as long as the best plan takes. The variants of a move are scored LOCAL_SEARCH_BATCH at a time, in parallel if the score is; the best of a batch is taken if it shortens the iteration, and
 * repeated where the table says so. The batch has a constant size, so the result does not depend on the number of threads. No plan is scored
 * twice. The search ends at a local optimum of all moves or when a budget is spent.
 */
#ifndef PLANNER_LOCAL_SEARCH_LOCAL_SEARCH_H
#define PLANNER_LOCAL_SEARCH_LOCAL_SEARCH_H

#include "planner/candidate/parallel_score.h"
#include "planner/candidate/plan_set.h"
#include "planner/candidate/search_context.h"

enum {
    LOCAL_SEARCH_BATCH = PARALLEL_SCORE_BATCH,
    LOCAL_SEARCH_STAGES_DEVICES = 128 /* of a search with `stages`: with more, making a plan takes longer than simulating it */
};

/* Times of n plans in ns, each with its space; INT64_MAX for one that does not fit; the plans are modified until they fit. NULL:
 * search_context_score one by one, whose plans become incumbents. */
struct local_search_score {
    enum status (*of_plans)(void *of, struct plan *plans, const struct space *const *spaces,
                            int32_t n, int64_t *ns, struct error *err);
    void *of;
};

struct local_search_task {
    struct search_context *t;
    const struct space *s;
    const struct space *sizes; /* (n_sizes) for `stages`: of other microbatch sizes, s among them, rising */
    int32_t n_sizes;
    int64_t evaluations; /* limit of plans scored, beside t's budgets */
    int64_t each_ns; /* counted work of a score, where it may exceed t's budget: no more are made than the budget admits; 0: unknown */
    const bool *idle;    /* (devices of the cluster) not to be used; NULL: all may be */
    bool orders_only;    /* a single pass over the table's first moves: buckets and schedules of all stages */
    bool stages;         /* devices, stages, replicas and memory are varied too: all rows of the table */
    bool named;          /* schedules are varied too; not those of measured layers, which do not divide the backward */
    struct plan_set *tried; /* of other searches with the same score; NULL: none */
    struct local_search_score score;
};

/* *plan and *iteration_ns become the best found; better: by t's objective, and for another score by time. */
MUST_CHECK enum status local_search_plan(const struct local_search_task *task, struct plan *plan,
                                         int64_t *iteration_ns, struct error *err);

/* From the best plans of different numbers of replicas and stages of `from`, with default orders: all rows of the table. Adds to
 * t->incumbents. spaces: (n_spaces) of one cluster, by rising microbatch size; plans of other clusters and sizes are no starts. Within t's
 * budgets. */
MUST_CHECK enum status local_search_incumbents(struct search_context *t,
                                               const struct incumbents *from,
                                               const struct space *spaces, int32_t n_spaces,
                                               struct error *err);

#endif
