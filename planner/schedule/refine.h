/* planner/schedule/refine.h - refinement of a good plan: other warm-up counts, buffer rings, gradient buckets and searched
 * orders.
 *
 * Warm-up rules: 1F1B (default), eager (two more per stage), GPipe, and heterogeneity-aware 1F1B by
 *   w_S = 1, w_i = w_{i+1} + max(1, ceil((t_{i+1} + 2 c_i) / t_max))   (t: F+B of a stage, c: transfer in one direction)
 * which derives HARP's thresholds (arXiv 2509.24859 and its public code) from the steady period t_max. Last, orders of F, I
 * and W by search (planner/schedule/plan.h).
 */
#ifndef PLANNER_SCHEDULE_REFINE_H
#define PLANNER_SCHEDULE_REFINE_H

#include "planner/candidate/scorer.h"

#include <signal.h>

/* Sets the warm-up counts of every replica by rule 0 … REFINE_WARMUPS - 1: heterogeneity-aware, eager, GPipe. */
enum { REFINE_WARMUPS = 3 };
void refine_warmups(const struct space *s, struct plan *p, int rule);
/* Gradient buckets of 1 / parts of each stage's parameters; parts 0: one sum after the last backward. */
void refine_buckets(const struct space *s, struct plan *p, int64_t parts);
/* Makes the replica's schedule the k-th of 0 … REFINE_SCHEDULES - 1 and drops its warm-up counts; 0: none, with the warm-up counts there are.
 * false: the replica has orders of its own. */
enum { REFINE_SCHEDULES = 5 };
bool refine_schedule(struct plan_replica *r, int k);

/* *plan and *iteration_ns become those of the best variant if it is faster. Spends evaluations; ends early if *stop is set
 * (NULL: never) or scorer_work exceeds work_end (0: never). */
MUST_CHECK enum status refine_plan(struct arena *a, struct scorer *w, const struct space *s,
                                   struct plan *plan, int64_t *iteration_ns,
                                   int64_t *evaluations_left, int64_t work_end,
                                   const volatile sig_atomic_t *stop, struct error *err);

#endif
