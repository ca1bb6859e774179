/* planner/fleet/cost_subsets.h - parts of a team, for objectives that count what GPUs cost.
 *
 * A search for the least time takes all GPUs that help at all; what is cheapest an iteration, or fastest within a budget, often
 * leaves device classes, or most nodes, to others. So the search is made again on parts of the cluster: the nodes of some
 * types, all of them or a half, a quarter, an eighth. All plans meet in one list, which the objective orders (planner/candidate/incumbents.h).
 * Only where every two devices have links of their own: nodes can then be taken away without asking who joined whom.
 */
#ifndef PLANNER_FLEET_COST_SUBSETS_H
#define PLANNER_FLEET_COST_SUBSETS_H

#include "planner/fleet/fleet.h"

enum { COST_SUBSETS_TYPES_MAX = 3, COST_SUBSETS_PARTS = 4 };

/* Adds to t->incumbents. */
MUST_CHECK enum status cost_subsets_search(struct search_context *t, const struct fleet_task *task,
                                           struct error *err);

#endif
