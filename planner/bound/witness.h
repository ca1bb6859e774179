/* planner/bound/witness.h - a schedule constructed from time windows that could not be refuted (primal heuristic).
 *
 * A fixed point at some makespan (planner/bound/windows.h) may indicate a schedule of that makespan. Each stage orders its
 * operations by the earliest start, the latest start or the middle of their windows, within precedence and memory.
 * sim/pipeline/static computes the makespan, and the shortest schedule is kept. So a failed proof may improve the incumbent.
 */
#ifndef PLANNER_BOUND_WITNESS_H
#define PLANNER_BOUND_WITNESS_H

#include "core/plan/schedule.h"
#include "planner/bound/windows.h"

struct pipeline;

struct bound_witness {
    const struct pipeline *pipeline;
    struct arena *arena, *scratch; /* owners of the schedule and of candidates */
    int64_t best_ns;               /* makespan of the known schedule, or of the one found */
    bool found;
    struct schedule schedule; /* if found: one chunk per device, F, I, W */
};

/* Tries the three orders; returns whether one is shorter than best_ns. O(operations). */
bool bound_witness_try(struct bound_witness *b, const struct bound_line *l,
                       const struct bound_windows *w);

#endif
