/* planner/exact/refine_search.h - local search on refined plans; each neighbour is refined too.
 *
 * The best split for 1F1B is not the best one for the order that refinement finds: so the local search
 * (planner/exact/local_search.h) starts from the best refined plans, and its objective is the time of a plan after its own refinement
 * (planner/schedule/refine.h).
 */
#ifndef PLANNER_EXACT_REFINE_SEARCH_H
#define PLANNER_EXACT_REFINE_SEARCH_H

#include "planner/candidate/search_context.h"

enum { REFINE_SEARCH_STARTS = 3 }; /* local searches, from the best refined plans */
/* What is found goes to *refined; spends what t has left. */
MUST_CHECK enum status refine_search(struct search_context *t, const struct space *spaces,
                                     int32_t n_spaces, struct incumbents *refined,
                                     struct error *err);

#endif
