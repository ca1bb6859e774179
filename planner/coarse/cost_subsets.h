/* planner/coarse/cost_subsets.h - search on subsets of the cluster, for objectives that contain the price of GPUs.
 *
 * A search for the least time uses every GPU that helps at all. The cheapest iteration, or the fastest one within a budget,
 * often leaves out device classes or most nodes. So the search is repeated on subsets: the nodes of up to
 * COST_SUBSETS_TYPES_MAX types, all of them or a half, a quarter, an eighth. All plans go to one list of incumbents, ordered
 * by the objective. Only for clusters with dedicated links between every two devices, because nodes can be removed there
 * without changes to other routes.
 */
#ifndef PLANNER_COARSE_COST_SUBSETS_H
#define PLANNER_COARSE_COST_SUBSETS_H

#include "planner/candidate/search_context.h"

enum { COST_SUBSETS_TYPES_MAX = 3, COST_SUBSETS_PARTS = 4 };

/* Adds to t->incumbents; spends t's budgets. */
MUST_CHECK enum status cost_subsets_search(struct search_context *t, const struct search_task *task,
                                           struct error *err);

#endif
