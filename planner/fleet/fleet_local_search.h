/* planner/fleet/fleet_local_search.h - local search from a good plan with simulated neighbours, for any number of devices.
 *
 * Replicas that differ only in their devices change together. Moves: gradient buckets, warm-up counts, layers over one stage
 * boundary, microbatches between two groups of equal replicas; with the caller's own score also schedules. A move that shortens the iteration is kept and repeated.
 */
#ifndef PLANNER_FLEET_FLEET_LOCAL_SEARCH_H
#define PLANNER_FLEET_FLEET_LOCAL_SEARCH_H

#include "planner/candidate/search_context.h"

/* The time of a plan in ns, INT64_MAX if it does not fit; *p is modified until it fits. NULL: search_context_score, whose plans become
 * incumbents. */
struct fleet_local_search_score {
    enum status (*of_plan)(void *of, struct plan *p, int64_t *ns, struct error *err);
    void *of;
};

/* *plan and *iteration_ns become the best found within `evaluations` simulations, taken from q's budget. */
MUST_CHECK enum status fleet_local_search_plan(struct search_context *q, const struct space *s,
                                               struct plan *plan, int64_t *iteration_ns,
                                               int64_t evaluations,
                                               struct fleet_local_search_score score,
                                               struct error *err);

#endif
