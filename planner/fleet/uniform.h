/* planner/fleet/uniform.h - replicas that are all alike: one pipeline over several device classes, as often as the GPUs allow.
 *
 * Replicas cut in the same places sum their gradients stage by stage, beside each other; mixes of unlike ones wait ring for
 * ring. So for every number D of replicas each pool gives floor(N / D) GPUs to a pipeline, and a dynamic program over
 * (GPUs taken of each pool, class of the stage) keeps the fewest layers left in front at a pace: every class may come in any order
 * and again. The least pace is found by bisection, the order it takes is balanced exactly (template_balance). Stages of at
 * most all, a half, a third … of the layers: shorter stages have shorter sums. And all that once more without single GPUs:
 * wider devices are fewer stages with smaller parts to sum.
 * O(D · caps · halvings · states · kinds² · log layers), states = Π (GPUs + 1), at most UNIFORM_STATES.
 */
#ifndef PLANNER_FLEET_UNIFORM_H
#define PLANNER_FLEET_UNIFORM_H

#include "planner/fleet/mix.h"

enum { UNIFORM_STATES = 128, UNIFORM_STAGES = 12 };

/* At most `most` mixes of one template each, more replicas first; in the maker's arena. */
void uniform_mixes(struct template_maker *m, int32_t microbatches, int32_t most, struct mix **out,
                   int32_t *n);

#endif
