/* planner/bound/refute.h - the longest makespan that can be shown to be too short.
 *
 * Windows of time (planner/bound/windows.h) that become empty refute a makespan. Where they lie still without that, cases
 * are told apart: one F or I begins in the first half of its window or in the second; if both halves are refuted, by windows
 * or by cases again, so is the makespan. The operation chosen has the window that is narrowest against its own length
 * among those longer than it: there the halves differ in what comes before it, and few cases settle it. (Chosen among
 * widest, narrowest and earliest windows by trial: it proves most with least.)
 * Where a schedule is known, a nanosecond less is tried first by windows, then what lies between by bisection, then a nanosecond
 * less by cases, then bisection by cases, each try with a part of the steps that are left. Whatever lies still may show a
 * shorter schedule (planner/bound/witness.h), which then takes the place of the known one.
 */
#ifndef PLANNER_BOUND_REFUTE_H
#define PLANNER_BOUND_REFUTE_H

#include "planner/bound/witness.h"

/* Makespan that no schedule undercuts, >= low, which is one already. best_ns: of a known schedule, 0: none; never exceeded.
 * witness: with the same best_ns, NULL: no schedules are looked for. *steps is lowered by the points visited, and little is begun
 * once it is 0. *stage: where the last proof ended; -1 where heads and tails gave it; untouched where it stays `low`. */
int64_t bound_refute(struct arena *a, const struct bound_line *l, int64_t low, int64_t best_ns,
                     struct bound_witness *witness, int64_t *steps, int32_t *stage);

#endif
