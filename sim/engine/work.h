/* sim/engine/work.h - cost model of the CPU time of a simulation. Budgets of searches count it instead of a clock, so that they repeat.
 *
 * In ns on one core of machine M1 (docs/measurements.md, 11-27). Fitted to 3,000 simulations of sixteen questions of 8 to 10,240 GPUs; the
 * counted time of a question's simulations is 0.7 to 1.3 times the measured one.
 */
#ifndef SIM_ENGINE_WORK_H
#define SIM_ENGINE_WORK_H

#include "core/program/program.h"

/* Preparation of a program before its first event: prices of its instructions, folding. O(procedures). */
int64_t work_setup_ns(const struct program *p);
/* One event of a simulation of so many devices. The time grows by a constant for each doubling beyond 32 devices, because their state no longer
 * fits in the caches of the processor. */
int64_t work_event_ns(int32_t lanes);

#endif
