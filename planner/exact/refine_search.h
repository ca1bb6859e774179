/* planner/exact/refine_search.h - local search whose objective is the iteration time after refinement.
 *
 * The best split for 1F1B is not the best split for the order that refinement finds. So the local search
 * (planner/exact/local_search.h) starts from the best refined plans and refines every neighbour (planner/schedule/refine.h)
 * before it compares them.
 */
#ifndef PLANNER_EXACT_REFINE_SEARCH_H
#define PLANNER_EXACT_REFINE_SEARCH_H

#include "planner/candidate/search_context.h"

enum { REFINE_SEARCH_STARTS = 3 }; /* starts: the best refined plans */
/* Adds to *refined; spends the rest of t's budget. */
MUST_CHECK enum status refine_search(struct search_context *t, const struct space *spaces,
                                     int32_t n_spaces, struct incumbents *refined,
                                     struct error *err);

#endif
