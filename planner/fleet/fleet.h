/* planner/fleet/fleet.h - templates over device classes, mixed, placed and simulated; for measured layers on any number of devices, and
 * where the coarse search (planner/coarse/coarse.h) finds no plan.
 *
 * For each microbatch size and several limits of layers per stage: pipeline templates over device classes, whose devices may
 * be several GPUs (planner/fleet/template_classes), a mix of templates by linear program (planner/fleet/mix), and its placement in
 * two orders (planner/fleet/place). Candidates are ranked by an estimate; the best are lowered and simulated, and only the
 * simulated time counts. The best of those is improved by local search (planner/local_search/local_search) until the budget of
 * evaluations is spent. All costs but simulation grow with the number of classes, not of devices.
 * Plans of more than FLEET_QUICK_LANES lanes are compared by the first step of a run. Only the winner is simulated to its
 * steady step, unless that exceeds the rest of the budget. The budget of simulation counts calls and messages, never seconds,
 * so that a search repeats.
 */
#ifndef PLANNER_FLEET_FLEET_H
#define PLANNER_FLEET_FLEET_H

#include "planner/bound/any.h"
#include "planner/candidate/search_context.h"

/* Fills t->incumbents. bound: NULL, or set to a lower bound of the plans with these numbers of GPUs a stage. If no plan fits the
 * incumbents are empty; the caller reports ERR_INFEASIBLE. */
MUST_CHECK enum status fleet_search(struct search_context *t, const struct search_task *task,
                                    struct bound_certificate *bound, struct error *err);

#endif
