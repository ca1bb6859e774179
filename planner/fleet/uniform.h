/* planner/fleet/uniform.h - uniform replicas: one pipeline over several device classes, repeated as often as the GPUs allow.
 *
 * Replicas with equal cuts all-reduce their gradients stage by stage in parallel; in mixes of unequal replicas the collectives
 * wait for each other. So for every number D of replicas each pool gives floor(N / D) GPUs to a pipeline, and a dynamic program
 * over (GPUs used of each pool, class of the stage) minimises the layers that remain in front, at a given pace; classes may
 * appear in any order and repeatedly. The least pace is found by bisection, and its order of classes is balanced exactly
 * (template_balance). Stages have at most all, a half, a third … of the layers, because shorter stages have shorter gradient
 * all-reduces. All of this is repeated without single GPUs, because wider devices give fewer stages with smaller shards.
 * O(D · caps · bisection steps · states · classes² · log layers), states = Π (GPUs + 1), at most UNIFORM_STATES.
 */
#ifndef PLANNER_FLEET_UNIFORM_H
#define PLANNER_FLEET_UNIFORM_H

#include "planner/fleet/mix.h"

enum { UNIFORM_STATES = 128, UNIFORM_STAGES = 12 };

/* At most `most` mixes of one template each, more replicas first; in the maker's arena. */
void uniform_mixes(struct template_maker *m, int32_t microbatches, int32_t most, struct mix **out,
                   int32_t *n);

#endif
