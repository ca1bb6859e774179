/* planner/polish.h - refined plans changed further, each change refined as well.
 *
 * The best split for 1F1B is not the best one for the order that refinement finds: from the best of the refined plans this
 * climbs (planner/climb.h) by what a plan takes after its own refinement (planner/refine.h).
 */
#ifndef PLANNER_POLISH_H
#define PLANNER_POLISH_H

#include "planner/tries.h"

enum { POLISH_STARTS = 3 }; /* as many of the best */
/* What is found goes to *refined; spends what t has left. */
MUST_CHECK enum status polish(struct tries *t, const struct space *spaces, int32_t n_spaces,
                              struct kept *refined, struct error *err);

#endif
