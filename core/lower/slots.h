/* core/lower/slots.h - slots and buffer rings of the current stage. */
#ifndef CORE_LOWER_SLOTS_H
#define CORE_LOWER_SLOTS_H

#include "core/lower/stage_scratch.h"

enum { SLOT_ALIGN = 64 };
static inline int64_t slot_align(int64_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* Operands of an update: parameter, gradient, m, v, and the fp32 master of a half-precision parameter; local SGD's anchor, velocity, and
 * sum of changes; the version before the update. */
enum {
    UPDATE_P,
    UPDATE_G,
    UPDATE_M,
    UPDATE_V,
    UPDATE_MASTER,
    UPDATE_ANCHOR,
    UPDATE_VELOCITY,
    UPDATE_SUM,
    UPDATE_PREVIOUS,
    UPDATE_SLOTS
};

struct stage_slots {
    int32_t run[2][UPDATE_SLOTS]; /* flat runs, with weight decay and without; -1 */
    int32_t overflow;             /* slot of the overflow flag; -1 without a loss scale */
    int32_t squares, squares_back; /* of core/lower/clip.h: the stage's sum, the sum over all devices; -1: the optimizer does not clip */
    bool looked;                   /* an operator has set the stage's sum */
    struct slot_room *room;       /* private to slots.c */
};

/* The stage has no slots yet; lower_slots begins itself. */
void lower_slots_begin(struct stage_scratch *h);
/* All slots of the stage except those that instructions add (core/lower/scale.c). */
void lower_slots(struct stage_scratch *h);
int32_t lower_add_slot(const struct stage_scratch *h, struct slot s);
/* Behind all slots of its class, which is not BUFFER_RING or SCRATCH. */
int32_t lower_last_slot(const struct stage_scratch *h, struct slot s);
/* Of an activation in the ring with this lifetime; group >= 0: of gradients that wait for this group, else a number that parts rings of
 * one lifetime. */
int32_t lower_ring_slot(struct stage_scratch *h, int32_t tensor, struct buffer_ring life, int32_t group);
struct slot lower_slot_like(const struct stage_scratch *h, int32_t tensor, enum slot_class class);
/* Bytes of a gradient or state element for a parameter of this type. */
int64_t lower_wide(enum dtype t);
/* Whether updates operate on flat runs. */
bool lower_runs_flat(const struct lowering *l);

#endif
