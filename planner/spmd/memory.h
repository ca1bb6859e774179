/* planner/spmd/memory.h - memory of a sharded stage as lowering will lay it out, computed before lowering.
 *
 * Each device's own training graph (core/sharding/shard.h, core/graph/gradient.h) gives the tensors that live from the forward
 * to the backward pass, once per microbatch in flight, and those within one pass, which share bytes by lifetime, first fit.
 * With parameters, gradients, optimizer state and staging of collectives this equals core/lower/slots and core/lower/scratch
 * for a stage without fused operators whose backward pass is one procedure. Messages between stages are not included. Devices
 * of equal type, ratio and counted bytes are computed once. O(distinct devices · operators · live tensors).
 */
#ifndef PLANNER_SPMD_MEMORY_H
#define PLANNER_SPMD_MEMORY_H

#include "planner/spmd/spmd.h"

/* counted: (n_devices) the answer's bytes; bytes: (n_devices) result. s: a plan's sharding of the question's devices, with
 * rules. Errors: those of core/sharding/shard. */
MUST_CHECK enum status spmd_laid_out(struct arena *a, const struct spmd_question *q,
                                     const struct sharding *s, const int64_t *counted,
                                     int64_t *bytes, struct error *err);

#endif
