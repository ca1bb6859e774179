/* planner/fleet/place.h - a mix of templates on GPUs: which of them compute which stage of which replica.
 *
 * GPUs of a pool are handed out in the order of the device graph, where neighbours stand side by side, each stage's on the
 * first node that has enough left; so two walks keep neighbours together: REPLICAS gives each replica all its GPUs before
 * the next one has any (messages of a pipeline stay on a node, gradient all-reduces leave it), STAGES gives a stage of as many
 * replicas as a node holds before their next stage (the other way round). Replicas stand in the order of the mix, so
 * rings pass through neighbours.
 */
#ifndef PLANNER_FLEET_PLACE_H
#define PLANNER_FLEET_PLACE_H

#include "planner/fleet/mix.h"
#include "planner/fleet/tp_options.h"

enum placement_order { PLACEMENT_REPLICAS, PLACEMENT_STAGES, PLACEMENT_COUNT };

struct placed {
    const struct template_maker *maker;
    struct plan plan;      /* a stage's device: its first GPU of the task's cluster */
    int32_t n_stages;      /* of all replicas, in order */
    int32_t *device_class; /* (n_stages) of the maker */
    int32_t **gpus;        /* (n_stages) rows of as many as the class has */
};
/* false where the GPUs that are left stand on too many nodes. O(stages + devices). */
bool place_mix(struct arena *a, const struct template_maker *m, const struct mix *x,
               enum placement_order how, struct placed *out);

/* What the placed mix should take: its slowest replica or its fullest link, whichever is longer, and the gradient all-reduces
 * from link to link as if nothing hid them, each behind those that its members take part in before. Where messages keep both
 * ends busy, replicas that cross nodes are slower than their template: shares are balanced anew.
 * O(replicas · (stages + layers that rings part at)). */
int64_t place_estimate(struct arena *a, struct placed *x, const struct mix *mix);

/* The plan on a cluster of its own, in which each stage's GPUs are one device, and the space that scores it (its own where
 * GPUs are taken together, else the maker's). */
MUST_CHECK enum status place_plan(struct arena *a, const struct tp_options *o,
                                  const struct placed *x, struct plan *out, struct space *space,
                                  struct error *err);
/* Leaves only the device types that the cluster's devices are of, those of one name as one. */
void place_tidy(struct arena *a, struct cluster *c);

#endif
