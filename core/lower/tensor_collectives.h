/* core/lower/tensor_collectives.h - collectives inside the calls of sharded stages. */
#ifndef CORE_LOWER_TENSOR_COLLECTIVES_H
#define CORE_LOWER_TENSOR_COLLECTIVES_H

#include "core/lower/stages.h"

/* The links between members; checks the plan's algorithms. ERR_INPUT. */
MUST_CHECK enum status lower_shard_teams(struct lowering *l, struct error *err);
/* The collective of an operator of the stage's view, with this device's operand slots. again: recomputed
 * by the backward. Returns its group. */
int32_t lower_shard_collective(struct lowering *l, struct stage_build *b, int32_t op, bool again,
                            const char *name, int32_t in, int32_t out);

#endif
