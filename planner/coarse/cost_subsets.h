/* planner/coarse/cost_subsets.h - search on subsets of the cluster, for objectives that contain the price of GPUs.
 *
 * A search for the least time uses every GPU that helps at all. The cheapest iteration, or the fastest one within a budget,
 * often leaves out device types or most nodes. So subsets of the nodes are estimated (planner/coarse/coarse.h), every GPU of a subset paid for,
 * and those of best estimates are searched, until one brings no better plan. Subsets: each type alone; the types of least estimated cost together,
 * for every number of types; of each of these a half, a quarter … of the nodes of every type, as long as the estimate is better.
 */
#ifndef PLANNER_COARSE_COST_SUBSETS_H
#define PLANNER_COARSE_COST_SUBSETS_H

#include "planner/candidate/search_context.h"

/* Adds to t->incumbents; spends t's budgets. O(types · log nodes) estimates. */
MUST_CHECK enum status cost_subsets_search(struct search_context *t, const struct search_task *task,
                                           struct error *err);

#endif
