/* planner/climb.h - a plan of the exact search's class changed step by step, as long as that makes it faster.
 *
 * Moved are the ends of stages, by ever fewer layers; microbatches between replicas, by ever fewer; and stages past their
 * neighbours. Replicas that are alike change together, and then apart. What the bound says is no faster is not simulated.
 */
#ifndef PLANNER_CLIMB_H
#define PLANNER_CLIMB_H

#include "planner/trial.h"

/* *x and *ns become those of the top reached, or of where the budget ended. */
MUST_CHECK enum status climb(struct trials *q, struct trial *x, int64_t *ns, struct error *err);

#endif
