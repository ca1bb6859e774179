/* planner/schedule/halves.h - the same devices with every stage cut in two halves of equal work.
 *
 * A device keeps what its stage costs and holds, but as two chunks at different places of the pipeline, so that a
 * microbatch comes by twice: V-shaped (down the devices and back, ZB-V; Qi et al., arXiv 2405.15362) or interleaved (down
 * twice; Narayanan et al., SC 2021). All numbers are doubled so that a half of an odd number stays whole: times are of
 * half nanoseconds and bytes are half bytes.
 */
#ifndef PLANNER_SCHEDULE_HALVES_H
#define PLANNER_SCHEDULE_HALVES_H

#include "sim/pipeline/static.h"

struct arena;

/* p: one chunk a device. Messages between halves cross the link of their devices; from the last device to the first
 * (interleaved) they cross all links, one after the other, as latency. A fused backward stays fused. */
void schedule_halve(struct arena *a, const struct pipeline *p, bool v_shaped, struct pipeline *out);

/* What no order of no placement of the halves on the same devices beats, in halves of p's unit, and by which of
 *   first gradient  no I begins before all F of its microbatch; until then a device has only the F that its memory holds:
 *                   Σ F + Σ c + m (F + I + W)_d - min(m, K_d) F_d, K_d microbatches of F (a whole number of halves)
 *   way in          every device but the first waits for half an F of that one: m (F + I + W)_d + ½ F + c
 *   one microbatch  Σ F + Σ I + 2 Σ c + ½ W
 * *term names it. A message is taken to cost at least the latency of each link between its devices. O(stages²). */
int64_t schedule_halves_bound(const struct pipeline *p, int32_t microbatches, const char **term);

#endif
