/* core/lower/scale.h - what all devices agree on before a step's first update: in fp16 whether the step is skipped (loss scaling), and with
 * max_grad_norm the sum of squares of all gradients (core/lower/clip.h). The collectives, after all gradient groups; slots of the loss
 * scale, last in their regions; instructions in the update (core/lower/writer.h). */
#ifndef CORE_LOWER_SCALE_H
#define CORE_LOWER_SCALE_H

#include "core/lower/clip.h"

struct stage_scratch;

/* Whether the program has a loss scale. */
static inline bool lower_scales(const struct lowering *l) { return l->p->loss_scale.initial > 0; }
/* Whether devices agree on anything. */
static inline bool lower_agrees(const struct lowering *l) { return lower_scales(l) || lower_clips(l); }
/* Whether the stage's own slot of the sum of squares has the sum over all devices after the exchange between replicas; all others receive
 * it in a second slot, which is 0 before. */
bool lower_scale_gives_back(const struct lowering *l, const struct stage_build *b);
MUST_CHECK enum status lower_scale_groups(struct lowering *l, struct error *err);
/* Returns the slot of the overflow flag. */
int32_t lower_scale_slots(const struct stage_scratch *h);
/* The segments of such a group: overflow flag, sum of squares. */
void lower_scale_segments(const struct stage_scratch *h, bool back, struct collective_member *m);
/* Whether updates take two calls, because the flags and sums of all chunks must be known before one chunk is updated, or because what
 * updates sum (second factors of PowerSGD, codes between nodes, squares for the noise scale) is summed in one order before any exchange of
 * tied gradients. */
static inline bool lower_checks_separately(const struct lowering *l, const struct lane_build *lane)
{
    const struct compressor *x = &l->plan->compression.gradients;
    bool first = x->kind == COMPRESSION_POWER_SGD || (x->between && plan_compressor_codes(x)) || l->plan->gradient_noise_scale;
    return (lower_agrees(l) || first) && lane->n_stages > 1;
}

#endif
