/* planner/spmd/memory.h - what lowering lays out for a sharded stage, before it is asked to.
 *
 * Each device's own training graph (core/sharding/shard.h, core/graph/gradient.h) says which tensors live from the forward to the backward
 * pass, as often as microbatches are in flight, and which within one of them only; those share bytes by lifetimes, first fit.
 * With parameters, gradients, optimizer state and what collectives stage, that is what core/lower/slots and core/lower/scratch
 * lay out where nothing is fused and one procedure runs the whole backward pass; messages between stages are not in it.
 * Devices of equal types, ratios and counted bytes are looked at once. O(devices that differ · operators · live tensors).
 */
#ifndef PLANNER_SPMD_MEMORY_H
#define PLANNER_SPMD_MEMORY_H

#include "planner/spmd/spmd.h"

/* counted: (n_devices) the answer's bytes; out bytes: (n_devices). s: a plan's sharding of the question's devices, with rules. Errors: those of core/sharding/shard. */
MUST_CHECK enum status spmd_laid_out(struct arena *a, const struct spmd_question *q,
                                     const struct sharding *s, const int64_t *counted,
                                     int64_t *bytes, struct error *err);

#endif
