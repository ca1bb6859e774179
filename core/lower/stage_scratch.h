/* core/lower/stage_scratch.h - what is known of the stage at hand while its slots and procedures are made.
 *
 * One for all stages of a call, in turn: stage_scratch_begin empties it. Arrays by tensor, parameter use and operator are those of the
 * stage's view. Nothing of it is read once the next stage begins.
 */
#ifndef CORE_LOWER_STAGE_SCRATCH_H
#define CORE_LOWER_STAGE_SCRATCH_H

#include "core/lower/param_uses.h"
#include "core/lower/stages.h"

struct stage_scratch {
    /* borrowed */
    struct lowering *l;
    struct stage_build *b;
    const struct lower_view *v; /* b's */
    /* uses.c */
    uint8_t *uses_forward, *uses_back; /* (n_tensors) bits 1 << part: who reads it */
    bool *
        rerun; /* (n_ops): forward operators that the backward runs again; procedures.c clears those that it has */
    /* slots.c, of divided parameters zero_slots.c */
    int32_t *slot_forward, *slot_back; /* (n_tensors) as F and as the backward know it */
    int32_t *chain_slot,
        *gradient_slot;        /* (n_param_uses): per-microbatch gradient, GRADIENT slot; -1 */
    struct stage_slots *slots; /* slots.c, core/lower/slots.h */
    struct stage_flats *flat_shards; /* zero_slots.c, core/lower/zero_slots.h */
    /* procedures.c */
    int32_t *done_at; /* (n_param_uses): instruction after which the gradient is complete */
};

/* Room for the largest view. */
struct stage_scratch *stage_scratch_new(struct lowering *l);
/* O(tensors + operators + parameter uses). */
void stage_scratch_begin(struct stage_scratch *h, struct stage_build *b);

#endif
