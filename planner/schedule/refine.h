/* planner/schedule/refine.h - other warm-up counts, gradient buckets and named schedules of a plan.
 *
 * Warm-up rules: 1F1B (default), eager (two more per stage), GPipe, and heterogeneity-aware 1F1B by
 *   w_S = 1, w_i = w_{i+1} + max(1, ceil((t_{i+1} + 2 c_i) / t_max))   (t: F+B of a stage, c: transfer in one direction)
 * which derives HARP's thresholds (arXiv 2509.24859 and its public code) from the steady period t_max.
 */
#ifndef PLANNER_SCHEDULE_REFINE_H
#define PLANNER_SCHEDULE_REFINE_H

#include "planner/candidate/space.h"

/* Sets the warm-up counts of every replica by rule 0 … REFINE_WARMUPS - 1: heterogeneity-aware, eager, GPipe. */
enum { REFINE_WARMUPS = 3 };
void refine_warmups(const struct space *s, struct plan *p, int rule);
/* The eager rule for one replica. */
void refine_eager(struct plan_replica *r);
/* Buckets of a stage's gradients that searches try, in this order: parts of all of them. */
enum refine_buckets { REFINE_QUARTERS, REFINE_HALVES, REFINE_EIGHTHS, REFINE_ONE_SUM, REFINE_BUCKETS };
extern const int64_t refine_bucket_parts[REFINE_BUCKETS];
/* Gradient buckets of 1 / parts of each stage's parameters; parts 0: one sum after the last backward. */
void refine_buckets(const struct space *s, struct plan *p, int64_t parts);
/* Makes the replica's schedule the k-th of 0 … REFINE_SCHEDULES - 1 and drops its warm-up counts; 0: none, with the warm-up counts there are.
 * false: the replica has orders of its own. */
enum { REFINE_SCHEDULES = 5 };
bool refine_schedule(struct plan_replica *r, int k);

#endif
