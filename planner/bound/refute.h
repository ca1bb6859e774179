/* planner/bound/refute.h - the largest makespan that can be refuted (destructive lower bound with branching).
 *
 * An empty window of time (planner/bound/windows.h) refutes a makespan. If propagation reaches a fixed point without one, the
 * search branches: one F or I starts in the first half of its window or in the second; if both branches are refuted, by
 * propagation or by further branching, so is the makespan. The branching operation is the one with the narrowest window
 * relative to its duration, among windows longer than the duration: its halves imply different orders, and few branches
 * suffice. (It proved the most with the fewest branches among widest, narrowest and earliest windows.)
 *
 * With a known schedule of makespan C: first C - 1 by propagation, then bisection by propagation below it, then C - 1 by
 * branching, then bisection by branching, each attempt with a fraction of the remaining steps.
 */
#ifndef PLANNER_BOUND_REFUTE_H
#define PLANNER_BOUND_REFUTE_H

#include "planner/bound/windows.h"

/* Returns a lower bound of the makespan in ns, >= low, a valid bound. best_ns: makespan of a known schedule, 0: none; the
 * result never exceeds it. *steps: budget of lattice points, decreased by those visited. *stage: stage of the last refutation; -1: heads and tails gave the bound; unchanged if
 * the result is `low`. */
int64_t bound_refute(struct arena *a, const struct bound_line *l, int64_t low, int64_t best_ns,
                     int64_t *steps, int32_t *stage);

#endif
