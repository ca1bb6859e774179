/* planner/exact/refine_search.h - refined plans changed further, each change refined as well.
 *
 * The best split for 1F1B is not the best one for the order that refinement finds: from the best of the refined plans this
 * climbs (planner/exact/local_search.h) by what a plan takes after its own refinement (planner/schedule/refine.h).
 */
#ifndef PLANNER_EXACT_REFINE_SEARCH_H
#define PLANNER_EXACT_REFINE_SEARCH_H

#include "planner/candidate/search_context.h"

enum { REFINE_SEARCH_STARTS = 3 }; /* as many of the best */
/* What is found goes to *refined; spends what t has left. */
MUST_CHECK enum status refine_search(struct search_context *t, const struct space *spaces, int32_t n_spaces,
                              struct incumbents *refined, struct error *err);

#endif
