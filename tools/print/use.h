/* tools/print/use.h - what each device of a simulated plan does: busy share and peak memory. */
#ifndef TOOLS_PRINT_USE_H
#define TOOLS_PRINT_USE_H

#include "core/plan/plan.h"
#include "sim/engine/sim.h"

struct arena;

/* A line a device, a class of equal devices, or a class of replicas (tools/print/classes.h). */
void print_use(struct arena *a, const struct plan *plan, const struct program *p,
               const struct sim_result *r, bool all);

#endif
