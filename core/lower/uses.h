/* core/lower/uses.h - readers of each tensor of the current stage, and the operators that the backward recomputes. */
#ifndef CORE_LOWER_USES_H
#define CORE_LOWER_USES_H

#include "core/lower/stages.h"

struct stage_scratch;

/* Fills uses_forward, uses_back and rerun. */
void lower_find_uses(struct stage_scratch *h);
/* Whether a forward operator is in a block of the model, and two of them in the same one. */
bool lower_in_block(const struct graph *g, int32_t op);
bool lower_in_same_block(const struct graph *g, int32_t op, int32_t other);
/* Whether two forward operators belong to the same block of the model; for a stage that recomputes blocks. */
bool lower_same_block(const struct stage_scratch *h, int32_t op, int32_t other);
/* The first forward operator of the third block behind operator `last`, or the last operator: what is read behind it does not matter for
 * lower_kept of operators up to `last`. */
int32_t lower_third_block(const struct graph *g, int32_t last);
/* Whether the backward finds the tensor as F made it, kept or recomputed. */
bool lower_kept(const struct stage_scratch *h, int32_t tensor);

#endif
