/* sim/engine/work.h - the CPU time of a simulation, counted instead of measured, so that a search that stops by it repeats.
 *
 * A law in ns of one core of machine M1 (docs/measurements.md, 11-27), fitted to 3,000 simulations of sixteen questions of 8 to 10,240 GPUs:
 * 0.7 to 1.3 of the measured time of a question's simulations.
 */
#ifndef SIM_ENGINE_WORK_H
#define SIM_ENGINE_WORK_H

#include "core/program/program.h"

/* Of a program before its first event: prices of its instructions, folding. O(procedures). */
int64_t work_setup_ns(const struct program *p);
/* Of an event among so many simulated devices. Their state leaves the caches of the processor as their number grows: each doubling beyond 32
 * takes as much more. */
int64_t work_event_ns(int32_t lanes);

#endif
