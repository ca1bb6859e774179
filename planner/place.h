/* planner/place.h - a mix of templates on devices: which device computes which stage of which replica.
 *
 * Devices of a kind are handed out in the order of the device graph, where neighbours stand side by side, so two walks keep
 * neighbours together: REPLICAS gives each replica all its devices before the next one has any (messages of a pipeline
 * stay on a node, sums of gradients leave it), STAGES gives a stage of as many replicas as a node has devices of the kind
 * before their next stage (the other way round). Replicas stand in the order of the mix, so rings pass through neighbours.
 */
#ifndef PLANNER_PLACE_H
#define PLANNER_PLACE_H

#include "planner/mix.h"

enum placement { PLACEMENT_REPLICAS, PLACEMENT_STAGES, PLACEMENT_COUNT };

/* The plan, in a. O(stages). */
void place_plan(struct arena *a, const struct template_maker *m, const struct mix *x,
                enum placement how, struct plan *out);
/* What it should take: the mix's time, and the sums of gradients through the links that nodes share, where they are not hidden. */
int64_t place_estimate(const struct template_maker *m, const struct mix *x, enum placement how);

#endif
