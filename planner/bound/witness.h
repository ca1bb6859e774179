/* planner/bound/witness.h - a schedule read off windows of time that could not be refuted.
 *
 * Where windows lie still at some makespan (planner/bound/windows.h) there may be a schedule that short. Each stage takes its
 * operations by the earliest start, the latest start, or the middle of their windows, as counts and memory allow; sim/pipeline/static
 * says how long that takes, and the shortest is kept. So a proof that fails may end with what it looked for.
 */
#ifndef PLANNER_BOUND_WITNESS_H
#define PLANNER_BOUND_WITNESS_H

#include "core/plan/schedule.h"
#include "planner/bound/windows.h"

struct pipeline;

struct bound_witness {
    const struct pipeline *pipeline;
    struct arena *arena, *scratch; /* of the schedule; of trials */
    int64_t best_ns;               /* of a schedule that is known, or of the one found */
    bool found;
    struct schedule schedule; /* where found: one chunk a device, F, I, W */
};

/* Three orders and their times; O(operations). Whether one was shorter than best_ns. */
bool bound_witness_try(struct bound_witness *b, const struct bound_line *l,
                       const struct bound_windows *w);

#endif
