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
/* Whether two devices have equally many members along each axis, on nodes alike. */
bool lower_same_teams(const struct lowering *l, const struct stage_build *a,
                      const struct stage_build *b);
/* Nodes (n) of the device's team along an axis; NULL: all on one, or no hierarchical collectives. n 0: no team. */
const int32_t *lower_team_tiers(const struct stage_build *b, int32_t axis, int32_t *n);
/* (n) The collectives of a lowered stage's operators, as they were made. */
int32_t *lower_collectives_of(const struct stage_build *b, int32_t *n);
/* Those of a lowered stage, in `a`, for stages that are equal to it. */
struct kept_collectives {
    int32_t n;
    const struct collective_use *uses; /* (n) */
};
struct kept_collectives lower_keep_collectives(struct arena *a, const struct stage_build *b);
/* Makes those of a stage that is equal to it. */
void lower_copy_collectives(struct lowering *l, const struct kept_collectives *kept, struct stage_build *b);

#endif
