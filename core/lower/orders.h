/* core/lower/orders.h - the order of a stage's calls, and the phases that they run. */
#ifndef CORE_LOWER_ORDERS_H
#define CORE_LOWER_ORDERS_H

#include "core/lower/stages.h"

struct stage_order {
    bool split, apart;   /* I and W; gradients kept per microbatch */
    int64_t last_weight; /* position in the lane of the call that completes the step's gradients */
    struct stage_calls *calls; /* orders.c's own */
};

/* ERR_RESOURCE: too many calls; ERR_INPUT: what plan_schedule finds. O(calls). */
MUST_CHECK enum status lower_orders(struct lowering *l, struct error *err);
/* Buffers of the stage's rings, once its rings and all orders stand. */
void lower_buffer_ring_counts(struct lowering *l, struct stage_build *b);
/* The program's lanes and orders, once all procedures stand. */
void lower_share_orders(struct lowering *l);

/* The phase of the procedure that does the work of F, I or W: where the backward is fused, B does both I and W. */
static inline enum phase orders_stage_phase(const struct stage_build *b, enum phase p)
{
    return p == PHASE_F || b->order->split ? p : PHASE_B;
}
/* The phase that runs a gradient operator; W only where it is a procedure of its own. */
static inline enum phase orders_op_phase(const struct stage_build *b, const struct graph_op *op)
{
    return op->phase == PHASE_F                      ? PHASE_F
           : b->order->split && op->phase == PHASE_W ? PHASE_W
                                                     : PHASE_I;
}

#endif
