/* planner/schedule/plan.h - the order of every stage of a plan searched, where that is quicker.
 *
 * Each replica becomes an abstract pipeline (sim/pipeline/static.h): times of its stages and messages from planner/candidate/space, and what a
 * microbatch holds between F, I and W from the program that the plan is lowered to, one buffer ring after the other. planner/schedule/find
 * orders it with separate input and weight gradients, the orders are written into the plan's stages, and the whole plan is
 * lowered and simulated, which alone decides. Where the program needs more memory than the abstraction thought (a ring's
 * buffers are as many as are ever alive at once; a joint peak is less), the limits are tightened and the search is repeated;
 * where memory was short at all, the whole is done again with those stages recomputing.
 * Replicas that are alike are ordered once.
 */
#ifndef PLANNER_SCHEDULE_PLAN_H
#define PLANNER_SCHEDULE_PLAN_H

#include "planner/candidate/scorer.h"

#include <signal.h>

/* Plans of more operations (F, I and W of all stages) than this are left as they are. */
enum { SCHEDULE_PLAN_OPS_MAX = 30000 };

/* *plan and *iteration_ns become those of the plan with searched orders where it is quicker. Plans with a named schedule or
 * several stages a device are left alone, and so are replicas of one stage and measured layers, whose backward is one. Spends an evaluation a simulation, two at most.
 * operations: what the search may time for each replica (planner/schedule/find.h). Orders are texts of the arena. */
MUST_CHECK enum status schedule_plan(struct arena *a, struct scorer *w, const struct space *s,
                                     struct plan *plan, int64_t *iteration_ns,
                                     int64_t *evaluations_left, int64_t operations,
                                     const volatile sig_atomic_t *stop, struct error *err);

#endif
