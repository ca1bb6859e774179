/* core/lower/scale.h - loss scaling in fp16: its collectives, after all gradient groups; its slots, last in
 * their regions; its instructions in the update (core/lower/writer.h). */
#ifndef CORE_LOWER_SCALE_H
#define CORE_LOWER_SCALE_H

#include "core/lower/lowering.h"

struct stage_scratch;

/* Whether the program has a loss scale. */
static inline bool lower_scales(const struct lowering *l) { return l->p->loss_scale.initial > 0; }
MUST_CHECK enum status lower_scale_groups(struct lowering *l, struct error *err);
/* Returns the slot of the overflow flag. */
int32_t lower_scale_slots(const struct stage_scratch *h);
/* The only segment of such a group. */
void lower_scale_segment(const struct stage_scratch *h, struct collective_member *m);
/* Whether updates take two calls, because the overflow flags of all chunks must be known before one chunk is updated, or because what
 * updates sum (second factors of PowerSGD, codes between nodes, squares for the noise scale) is summed in one order before any exchange of
 * tied gradients. */
static inline bool lower_checks_separately(const struct lowering *l, const struct lane_build *lane)
{
    const struct compressor *x = &l->plan->compression.gradients;
    bool first = x->kind == COMPRESSION_POWER_SGD || (x->between && plan_compressor_codes(x)) || l->plan->gradient_noise_scale;
    return (lower_scales(l) || first) && lane->n_stages > 1;
}

#endif
