/* planner/replan/adapt.h - the layout of an old plan on the devices that are left, in a few ways.
 *
 * What became of a stage that lost its device, or some of several:
 *   LEVEL       the rest of the replica shares all layers anew, its slowest stage as fast as it gets
 *   NEIGHBOURS  the stages before and behind take its layers, nobody else changes
 *   SPARES      devices that no stage has stand in, of the same type first
 *   MESHES      the same, but devices left of a stage of several become stages of as many of them as divide a microbatch
 *               evenly: of seven four, two and one
 *   STAGE       what is left of the stage is spare too
 *   REPLICA     the replica is given up, its devices are spare, its microbatches go to the others
 * And the devices that no stage has then:
 *   IDLE        stay so
 *   JOIN        share a stage with one of their node, or of their type, where a replica is slowest
 *   STAGES      each becomes a stage behind such a one
 *   REPLICAS    become replicas shaped like the smallest one; the last few, one of their own
 * Replicas that changed get 1F1B's orders with warm-ups for unequal stages (planner/schedule/refine.h) and compute nothing again until
 * scorer_fit says else; the others stay as they were. Microbatches are shared out so that the slowest replica is as fast as it
 * gets (integer water-filling). Times are balance_layers's: they only shape plans, the simulator tells
 * which is good.
 */
#ifndef PLANNER_REPLAN_ADAPT_H
#define PLANNER_REPLAN_ADAPT_H

#include "core/plan/plan.h"
#include "planner/replan/balance_layers.h"

enum warm_lost {
    LOST_LEVEL,
    LOST_MESHES,
    LOST_STAGE,
    LOST_NEIGHBOURS,
    LOST_SPARES,
    LOST_REPLICA,
    LOST_COUNT
};
enum warm_spare { SPARE_IDLE, SPARE_JOIN, SPARE_STAGES, SPARE_REPLICAS, SPARE_COUNT };

/* where: (devices of from's cluster) the space's (w->whole) devices, -1: lost. from has the space's microbatch size, or it is changed.
 * false: nothing to do in that way (no spare device, no replica left), or the plan cannot be shaped so. The plan's lists are a's.
 * O(stages · layers · log time + microbatches · replicas). */
bool adapt_plan(struct arena *a, const struct warm_prices *w, const struct plan *from,
                const int32_t *where, enum warm_lost lost, enum warm_spare spare, struct plan *out);

#endif
