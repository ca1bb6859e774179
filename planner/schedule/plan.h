/* planner/schedule/plan.h - search for the order of every stage of a plan (planner/schedule/find.h), kept if the plan gets
 * faster.
 *
 * Each replica becomes an abstract pipeline (sim/pipeline/static.h): stage and message times from planner/candidate/space,
 * memory held between F, I and W from the buffer rings of the lowered program. planner/schedule/find orders it with separate
 * input and weight gradients within the peaks of these rings, the orders are written into the plan's stages, and the whole plan is lowered
 * and simulated, which decides. If the program needs more memory nevertheless, the limits are tightened and the search is repeated. The
 * first orders are those without recomputation. If they fill the memory of a stage, everything is repeated with ZeRO 1 where the plan has none,
 * and with those stages recomputing as in the plan, if no orders fit with their backward undivided, and as a whole, if its work then still is less than the best iteration. Equal replicas are ordered once.
 */
#ifndef PLANNER_SCHEDULE_PLAN_H
#define PLANNER_SCHEDULE_PLAN_H

#include "planner/candidate/scorer.h"

#include <signal.h>

/* *plan and *iteration_ns become those with searched orders if faster. No change to plans of so many operations (F, I and W of all
 * stages) that as many orders as a search keeps cannot be timed, to plans with several stages per device, to replicas of one stage, and to measured layers, whose backward is fused. Spends one evaluation per
 * simulation, at most four. Orders are texts in the arena. */
MUST_CHECK enum status schedule_plan(struct arena *a, struct scorer *w, const struct space *s,
                                     struct plan *plan, int64_t *iteration_ns,
                                     int64_t *evaluations_left,
                                     const volatile sig_atomic_t *stop, struct error *err);

#endif
