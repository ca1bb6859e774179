/* planner/bound/alone.h - lower bound of one stage with the rest of its pipeline as a delay: token cycles, for any pipeline
 * size.
 *
 * I of microbatch i starts no earlier than the end of its F plus the round trip below the stage. F_i waits for the I and W
 * that free its memory. So K tokens circulate, and m microbatches need about m / K turns. All orders of the stage form one
 * lattice (planner/bound/windows.h), walked by the number of F done, so that the earliest end of the matching F is known at
 * every I. One pass: O(points) time, O(m^2) memory.
 */
#ifndef PLANNER_BOUND_ALONE_H
#define PLANNER_BOUND_ALONE_H

#include "planner/bound/windows.h"

struct bound_alone {
    int64_t head_ns, head_step_ns; /* earliest start of the first F; delay of each further F */
    int64_t trip_ns,
        trip_step_ns; /* least times from the end of F_i to the start of I_i, and between starts of successive I */
};
/* Lower bounds of the end of the last I and of the last operation, in ns. *steps is decreased by the points visited.
 * p->in_flight >= 1. */
void bound_alone_ends(const struct bound_part *p, int32_t m, const struct bound_alone *by,
                      int64_t *last_input_ns, int64_t *last_ns, int64_t *steps);

#endif
