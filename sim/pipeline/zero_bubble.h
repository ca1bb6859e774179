/* sim/pipeline/zero_bubble.h - the zero-bubble authors' automatic scheduler: an order from times and memory limits.
 *
 * Qi et al., arXiv 2401.10241, §3.1, with the decisions that their published scheduler takes (sail-sg, read, not copied).
 * It plays the pipeline greedily, microbatch by microbatch, keeping for every device when it is free, what it holds and
 * how long it has idled since its first forward:
 *   filling   every device takes F0; then, from the last device up, as many forwards as memory allows until its first
 *             gradient comes (*spill*: the last of them may run past that moment), fewer than the device before it;
 *   round i   every device takes one more forward and then I of microbatch i, from the last device up. While the input of
 *             either is still in flight, W that end before it comes are done; one that would end later is done where the
 *             wait exceeds what the worst device has idled more than this one, or always (*greedy*). Memory that is short is
 *             made by W. With *gradients first* a device leaves its forward out where that would delay the next I of the
 *             device after it, unless waiting costs more than its idle time may grow;
 *   emptying  the first device does its W before the I once all forwards are taken; the others what is left at the end.
 * All eight combinations are played and the one that takes the shortest by its own reckoning is kept. The scheduler knows
 * one transfer time for all links: it is asked with the mean and with the largest, and with each stage's times and with
 * their medians; the best of these four by sim/pipeline/static is the answer. So done it reproduces the makespans stated for the
 * authors' scheduler in all 154 cases of tests/data/schedules, and the bubble rates of ZB-1p and ZB-2p that the paper
 * prints. One chunk a device.
 */
#ifndef SIM_PIPELINE_ZERO_BUBBLE_H
#define SIM_PIPELINE_ZERO_BUBBLE_H

#include "sim/pipeline/static.h"

/* The shortest of the orders above under the limits of p. thorough: each of the 32 orders is timed by sim/pipeline/static, so that
 * none is lost to the reckoning with one transfer time. ERR_INFEASIBLE: none fits the memory. ERR_INPUT: counts, prices.
 * O(stages · microbatches), some microseconds a hundred operations. */
MUST_CHECK enum status zero_bubble_make(struct arena *a, const struct pipeline *p,
                                        int32_t microbatches, bool thorough, struct schedule *out,
                                        int64_t *makespan_ns, struct error *err);

#endif
