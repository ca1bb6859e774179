/* sim/pipeline/zero_bubble.h - the automatic zero-bubble scheduler: an order from durations and memory limits.
 *
 * Qi et al., arXiv 2401.10241, §3.1, with the decisions of the authors' published scheduler (sail-sg, read, not copied).
 * A greedy simulation of the pipeline, microbatch by microbatch. Its state per device: when it is free, its memory, and its
 * idle time since its first forward:
 *   filling   every device runs F0; then, from the last device up, as many forwards as memory allows until its first
 *             gradient arrives (*spill*: the last of them may run past that moment), fewer than the previous device;
 *   round i   every device runs one more forward and then I of microbatch i, from the last device up. While the input of
 *             either is in flight, W operations that end before its arrival are run. A W that would end later is run if the
 *             wait exceeds the difference between the largest idle time of all devices and this one's, or always (*greedy*). W
 *             also runs to free memory. With *gradients first* a device omits its forward if that would delay the next I
 *             of the device after it, unless waiting costs more than its idle time may grow;
 *   emptying  after the last forward the first device runs its W before the I; the others run the remaining W at the end.
 * All eight combinations are simulated, and the one that is shortest in this greedy simulation is kept. The scheduler has one
 * transfer time for all links. It therefore runs four times, with the mean and the largest transfer time and with each stage's
 * durations or their medians; sim/pipeline/static selects the best of the four. The result reproduces the stated makespans of
 * the authors' scheduler in all 154 cases of tests/data/schedules, and the printed bubble rates of ZB-1p and ZB-2p. One chunk a
 * device.
 */
#ifndef SIM_PIPELINE_ZERO_BUBBLE_H
#define SIM_PIPELINE_ZERO_BUBBLE_H

#include "sim/pipeline/static.h"

/* The shortest of the orders above under the limits of p. thorough: sim/pipeline/static times each of the 32 orders, so that
 * the single transfer time of the greedy simulation excludes none. ERR_INFEASIBLE: none fits the memory. ERR_INPUT: counts,
 * prices. O(stages · microbatches), some microseconds per hundred operations. */
MUST_CHECK enum status zero_bubble_make(struct arena *a, const struct pipeline *p,
                                        int32_t microbatches, bool thorough, struct schedule *out,
                                        int64_t *makespan_ns, struct error *err);

#endif
