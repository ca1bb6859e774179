/* planner/fleet/fleet_local_search.h - a good plan changed little by little, each change simulated, for fleets of any size.
 *
 * Replicas that are alike but for their devices change together. Tried are: gradient buckets, warm-up counts, layers moved
 * over one boundary, microbatches moved from one kind of replica to another. A change that helps is kept and tried again.
 */
#ifndef PLANNER_FLEET_FLEET_LOCAL_SEARCH_H
#define PLANNER_FLEET_FLEET_LOCAL_SEARCH_H

#include "planner/candidate/search_context.h"

/* *plan and *iteration_ns become the best found with at most `evaluations` simulations of q's budget. */
MUST_CHECK enum status fleet_local_search_plan(struct search_context *q, const struct space *s,
                                               struct plan *plan, int64_t *iteration_ns,
                                               int64_t evaluations, struct error *err);

#endif
