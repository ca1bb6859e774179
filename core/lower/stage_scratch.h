/* core/lower/stage_scratch.h - working state of the current stage while its slots and procedures are made.
 *
 * One object serves all stages of a call in turn: stage_scratch_begin clears it. Arrays by tensor, parameter use and operator are
 * indexed as in the stage's view. Its contents end with the stage.
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
    /* of the current stage: growing arrays, and tables that its steps need */
    struct arena *work;
    /* uses.c */
    uint8_t *uses_forward, *uses_back; /* (n_tensors) bits 1 << part of its readers */
    bool *
        rerun; /* (n_ops): forward operators to recompute in the backward; procedures.c clears those it has emitted */
    int32_t *block; /* (n_forward) number of the operator's block, -1: in none; only of a stage that recomputes blocks */
    int32_t kept_from; /* blocks of this number and behind are kept */
    /* slots.c; of ZeRO's flat parameters zero_slots.c */
    int32_t *slot_forward, *slot_back; /* (n_tensors) slot in F and in the backward */
    int32_t *chain_slot,
        *gradient_slot;        /* (n_param_uses): per-microbatch gradient, GRADIENT slot; -1 */
    struct stage_slots *slots; /* slots.c, core/lower/slots.h */
    struct stage_offload *offload; /* offload.c; NULL: the stage offloads nothing */
    struct stage_codes *codes;     /* codes.c: (groups of the stage) */
    struct stage_factors *factors; /* factors.c: likewise */
    struct stage_noise *noise;     /* noise.c */
    struct stage_flats *flat_shards; /* zero_slots.c, core/lower/zero_slots.h */
    /* procedures.c */
    int32_t *done_at; /* (n_param_uses): instruction after which the gradient is complete */
};

/* With room for the largest view. */
struct stage_scratch *stage_scratch_new(struct lowering *l);
void stage_scratch_free(struct stage_scratch *h);
/* O(tensors + operators + parameter uses). */
void stage_scratch_begin(struct stage_scratch *h, struct stage_build *b);
/* Copies the finished stage's lists from `work` to the program's arena, in their exact sizes. */
void stage_scratch_end(struct stage_scratch *h);

#endif
