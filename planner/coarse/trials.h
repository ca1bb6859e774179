/* planner/coarse/trials.h - trials of the coarse search: candidates with their plans and times. */
#ifndef PLANNER_COARSE_TRIALS_H
#define PLANNER_COARSE_TRIALS_H

#include "planner/candidate/parallel_score.h"
#include "planner/candidate/plan_set.h"
#include "planner/coarse/internal.h"

/* Fraction of the work for each of: improvements by every move, plans simulated whole, their neighbours, orders; and for all of it where other
 * searches follow. */
enum { COARSE_PART = 2 };

struct trial {
    const struct coarse_candidate *candidate;
    struct plan plan; /* whole; of those that were tried */
    struct space space;
    int32_t offer;
    int64_t estimate_ns, ns;
    struct parallel_score_item
        listed;    /* as it was before local search; ns INT64_MAX: not improved */
    bool improved; /* by every move */
};

/* Counted work of the trials, and again of the local searches. */
int64_t coarse_work_ns(const struct coarse *q);

/* Whether trial i is within COARSE_FAR of the best, x[0]. */
bool coarse_near_best(const struct trial *x, int32_t i);

/* About the time that a plan takes with orders: it lies between that of its slowest stage and that of its trial. Plans without orders: the
 * trial's. */
int64_t coarse_expected_ns(const struct coarse *q, const struct trial *x);

/* Local search from a trial's plan, which becomes the best one found. orders_only: one pass over buckets and schedules. whole: its plans are
 * simulated with all replicas and microbatches. tried: plans that are not tried again. */
MUST_CHECK enum status coarse_improve(struct coarse *q, struct trial *x, bool orders_only,
                                      bool whole, struct plan_set *tried, struct error *err);

/* Simulates the best of n sorted trials whole, improves the fastest and searches orders of their stages; keeps all of them. */
MUST_CHECK enum status coarse_whole(struct coarse *q, const struct trial *x, int32_t n,
                                    struct error *err);

#endif
