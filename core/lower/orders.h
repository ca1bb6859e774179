/* core/lower/orders.h - the order of a stage's calls, and their phases. */
#ifndef CORE_LOWER_ORDERS_H
#define CORE_LOWER_ORDERS_H

#include "core/lower/stages.h"

struct stage_order {
    bool split, apart;   /* separate I and W; gradients kept per microbatch */
    int32_t ahead; /* without a flush: the step's first forwards, which are called in front of the update of the step before */
    bool ascending;      /* weight gradients in the order of microbatches */
    int64_t last_weight; /* position in the lane of the call that completes the step's gradients */
    struct stage_calls *calls; /* orders.c's own */
};

/* ERR_RESOURCE: too many calls; ERR_INPUT: what plan_schedule finds. O(calls). */
MUST_CHECK enum status lower_orders(struct lowering *l, struct error *err);
/* Numbers of buffers of the stage's rings. Requires its rings and all orders. */
void lower_buffer_ring_counts(struct lowering *l, struct stage_build *b);
/* Of a copied stage: the rings whose numbers depend on the other end of a channel. */
void lower_sent_ring_counts(struct lowering *l, struct stage_build *b);
/* The program's lanes and orders. Requires all procedures. */
void lower_share_orders(struct lowering *l);

/* The phase of the procedure that executes F, I or W: with a fused backward, B executes both I and W. */
static inline enum phase orders_stage_phase(const struct stage_build *b, enum phase p)
{
    return p == PHASE_F || b->order->split ? p : PHASE_B;
}
/* The phase that executes a gradient operator; W only if it is a separate procedure. */
static inline enum phase orders_op_phase(const struct stage_build *b, const struct graph_op *op)
{
    return op->phase == PHASE_F                      ? PHASE_F
           : b->order->split && op->phase == PHASE_W ? PHASE_W
                                                     : PHASE_I;
}

#endif
