/* planner/fleet/place.h - placement: the GPUs of every stage of every replica of a mix.
 *
 * The GPUs of a pool are assigned in the order of the device graph, in which neighbours are adjacent; each stage's GPUs are on
 * the first node with enough left. Two orders of assignment: REPLICAS gives a replica all its GPUs before the next one (the
 * pipeline's messages stay on a node, gradient all-reduces leave it); STAGES assigns one stage of as many replicas as fit on a
 * node before their next stage (the reverse). Replicas keep the order of the mix, so rings pass through neighbours.
 */
#ifndef PLANNER_FLEET_PLACE_H
#define PLANNER_FLEET_PLACE_H

#include "planner/fleet/mix.h"
#include "planner/spmd_stage/tp_options.h"

enum placement_order { PLACEMENT_REPLICAS, PLACEMENT_STAGES, PLACEMENT_COUNT };

struct placed {
    const struct template_maker *maker;
    struct plan plan;      /* a stage's device: its first GPU in the task's cluster */
    int32_t n_stages;      /* of all replicas, in order */
    int32_t *device_class; /* (n_stages) of the maker */
    int32_t **gpus;        /* (n_stages) rows of length tp of the class */
};
/* false: the remaining GPUs are spread over too many nodes. O(stages + devices). */
bool place_mix(struct arena *a, const struct template_maker *m, const struct mix *x,
               enum placement_order how, struct placed *out);

/* Estimated iteration in ns: the maximum of the slowest replica and the busiest link, plus the gradient all-reduces without
 * overlap, each after the earlier ones of its members. If messages block compute streams, replicas that span nodes are slower
 * than their template, so shares are rebalanced.
 * O(replicas · (stages + layer boundaries between rings)). */
int64_t place_estimate(struct arena *a, struct placed *x, const struct mix *mix);

/* The plan on the task's cluster, and the space that scores it. */
void place_plan(struct arena *a, const struct tp_options *o, const struct placed *x,
                struct plan *out, struct space *space);

#endif
