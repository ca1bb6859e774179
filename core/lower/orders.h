/* core/lower/orders.h - the order of a stage's calls, and the phases that they run. */
#ifndef CORE_LOWER_ORDERS_H
#define CORE_LOWER_ORDERS_H

#include "core/lower/stages.h"

/* The parts of one microbatch's life on a stage, in order. Where the backward is fused, BACK is B
 * and WEIGHT is the same procedure; where it is split, BACK is I and WEIGHT is W. */
enum graph_part { PART_FORWARD, PART_BACK, PART_WEIGHT, PART_COUNT };

struct stage_order {
    bool split, apart;   /* I and W; gradients kept per microbatch */
    int64_t last_weight; /* position in the lane of the call that completes the step's gradients */
    struct stage_calls *calls; /* orders.c's own */
};

/* ERR_RESOURCE: too many calls; ERR_INPUT: what plan_schedule finds. O(calls). */
MUST_CHECK enum status lower_orders(struct lowering *l, struct error *err);
/* Buffers of the stage's rings, once its rings and all orders stand. */
void lower_ring_counts(struct lowering *l, struct stage_build *b);
/* The program's lanes and orders, once all procedures stand. */
void lower_share_orders(struct lowering *l);

static inline char part_letter(const struct stage_build *b, enum graph_part p)
{
    return p == PART_FORWARD ? 'F' : !b->order->split ? 'B' : p == PART_BACK ? 'I' : 'W';
}
/* The part that runs a gradient operator; WEIGHT only where it is a procedure of its own. */
static inline enum graph_part op_part(const struct stage_build *b, const struct graph_op *op)
{
    return op->phase == PHASE_F                      ? PART_FORWARD
           : b->order->split && op->phase == PHASE_W ? PART_WEIGHT
                                                     : PART_BACK;
}

#endif
