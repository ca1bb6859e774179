/* planner/replan/adapt.h - the layout of an old plan on the remaining devices, by fixed repair rules.
 *
 * Rules for a stage that lost its device, or some of several devices:
 *   LEVEL       the rest of the replica shares all layers anew, with a minimal slowest stage; a sharded stage keeps its rules and
 *               ratios on its remaining devices
 *   SPARES      idle devices replace the lost ones, those of the same type first
 *   STAGE       as LEVEL without the stage, whose remaining devices become spare
 *   REPLICA     the replica is dropped, its devices become spare, its microbatches go to the others
 * Rules for devices that then have no stage:
 *   IDLE        stay idle
 *   JOIN        share a stage with a device of their node, or of their type, where a replica is slowest
 *   REPLICAS    become replicas with the shape of the smallest one; the last few form one more
 * Changed replicas get 1F1B orders with warm-ups for unequal stages (planner/schedule/refine.h), or with ORDERS_KEPT the old replica's named schedule (zb-h1
 * for orders with separate weight gradients), and no recomputation until scorer_fit adds it; the others are unchanged. Microbatches are shared to minimise the slowest replica (integer
 * water-filling). Times are estimates of planner/replan/balance_layers; they shape plans, the simulator compares them.
 */
#ifndef PLANNER_REPLAN_ADAPT_H
#define PLANNER_REPLAN_ADAPT_H

#include "core/plan/plan.h"
#include "planner/replan/balance_layers.h"

enum warm_lost { LOST_LEVEL, LOST_SPARES, LOST_STAGE, LOST_REPLICA, LOST_COUNT };
enum warm_spare { SPARE_IDLE, SPARE_JOIN, SPARE_REPLICAS, SPARE_COUNT };
enum warm_orders { ORDERS_DEFAULT, ORDERS_KEPT, ORDERS_COUNT };
enum { WARM_VARIANTS = LOST_COUNT * SPARE_COUNT * ORDERS_COUNT };

/* Applies one pair of rules, with one for orders, to `from`. where: (devices of from's cluster) index of the device in the space w->whole, -1: lost.
 * The microbatch size becomes the space's. false: a rule is not applicable (no spare device, no replica left, no schedule to keep) or gives no
 * valid plan. The plan's lists are in `a`. O(stages · layers · log time + microbatches · replicas). */
bool adapt_plan(struct arena *a, const struct warm_prices *w, const struct plan *from,
                const int32_t *where, enum warm_lost lost, enum warm_spare spare, enum warm_orders orders, struct plan *out);

#endif
