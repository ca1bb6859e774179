/* core/lower/scale.h - a loss scale in fp16: its groups, behind all that are summed; a stage's slots, behind all others of
 * their regions; its instructions in the update are in core/lower/writer.h. */
#ifndef CORE_LOWER_SCALE_H
#define CORE_LOWER_SCALE_H

#include "core/lower/lowering.h"

struct stage_scratch;

/* Whether there is one. */
static inline bool lower_scales(const struct lowering *l) { return l->p->loss_scale.initial > 0; }
MUST_CHECK enum status lower_scale_groups(struct lowering *l, struct error *err);
/* Returns the slot of whether gradients are finite. */
int32_t lower_scale_slots(const struct stage_scratch *h);
/* The one segment of a group. */
void lower_scale_segment(const struct stage_scratch *h, struct collective_member *m);
/* Its updates come in two calls: whether gradients are finite must be known of all chunks before one of them is updated. */
static inline bool lower_checks_separately(const struct lowering *l, const struct lane_build *lane)
{
    return lower_scales(l) && lane->n_stages > 1;
}

#endif
