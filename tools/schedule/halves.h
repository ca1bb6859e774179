/* tools/schedule/halves.h - a pipeline on the same devices with every stage divided in two halves of equal work.
 *
 * A device keeps the costs and memory of its stage as two chunks at different places of the pipeline: V-shaped (down the
 * devices and back, ZB-V; Qi et al., arXiv 2405.15362) or interleaved (down twice; Narayanan et al., SC 2021). All numbers are
 * doubled so that halves of odd numbers are integers: times are in half nanoseconds, sizes in half bytes.
 */
#ifndef TOOLS_SCHEDULE_HALVES_H
#define TOOLS_SCHEDULE_HALVES_H

#include "sim/pipeline/static.h"

struct arena;

/* p: one chunk per device. Messages between halves cross the link of their devices; from the last device to the first
 * (interleaved) they cross all links in sequence, as latency. A fused backward stays fused. */
void schedule_halve(struct arena *a, const struct pipeline *p, bool v_shaped, struct pipeline *out);

/* Lower bound over every order and placement of the halves on the same devices, in halves of p's unit: the maximum of
 *   first gradient  no I begins before all F of its microbatch; until then a device runs only the F that its memory holds:
 *                   Σ F + Σ c + m (F + I + W)_d - min(m, K_d) F_d, K_d microbatches of F (an integer number of halves)
 *   fill            every device but the first waits for half an F of the first: m (F + I + W)_d + ½ F + c
 *   one microbatch  Σ F + Σ I + 2 Σ c + ½ W
 * *term: name of the maximum. A message costs at least the latency of each link between its devices. O(stages²). */
int64_t schedule_halves_bound(const struct pipeline *p, int32_t microbatches, const char **term);

#endif
