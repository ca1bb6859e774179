/* planner/bound/alone.h - one stage with the rest of its pipeline as a delay: token cycles for pipelines of any size.
 *
 * I of microbatch i begins no earlier than the end of its F plus the round trip below the stage; F_i waits for the I and W
 * that make room for it. So K tokens go round, and what the stage does meanwhile takes its time: m microbatches need about
 * m / K turns. All orders of the stage are one lattice (planner/bound/windows.h), walked by the number of F so that every I
 * knows when its F can be over; one pass, O(points) time and O(m^2) memory.
 */
#ifndef PLANNER_BOUND_ALONE_H
#define PLANNER_BOUND_ALONE_H

#include "planner/bound/windows.h"

struct bound_alone {
    int64_t head_ns, head_step_ns; /* first F begins no earlier; each further one so much later */
    int64_t trip_ns,
        trip_step_ns; /* from the end of F_i to the start of I_i; between starts of successive I, at least */
};
/* Earliest end of the last I and of the last operation; *steps is lowered by the points visited. p->in_flight >= 1. */
void bound_alone_ends(const struct bound_part *p, int32_t m, const struct bound_alone *by,
                      int64_t *last_input_ns, int64_t *last_ns, int64_t *steps);

#endif
