/* planner/replan/balance_layers.h - layers dealt out to the stages of a replica, messages and memory looked at; estimates that shape plans.
 *
 * A stage takes forward and backward of a microbatch on its slowest device, with what is computed again where the microbatches in flight (stages behind it + 1) do not fit. A boundary takes
 * as long as the whole activation from one device to the other: a cut where logits cross is none.
 * Of some of a microbatch's sequences a device takes what lies on the line through few and all (a GPU with few sequences is
 * the slower for each), and holds a proportional part of the activations.
 */
#ifndef PLANNER_REPLAN_BALANCE_LAYERS_H
#define PLANNER_REPLAN_BALANCE_LAYERS_H

#include "core/plan/plan.h"
#include "planner/candidate/space.h"

/* few: the space of the fewest sequences; NULL: times are proportional. */
struct warm_prices {
    const struct space *whole, *few;
};

/* Stage i of the replica, its message behind it where that is longer; INT64_MAX where it cannot be. */
int64_t balance_layers_stage_ns(const struct warm_prices *w, const struct plan_replica *r,
                                int32_t i);
/* Slowest of them; *fill: NULL, or the sum of the others. INT64_MAX where one cannot be. */
int64_t balance_layers_replica_ns(const struct warm_prices *w, const struct plan_replica *r,
                                  int64_t *fill);
/* Boundaries such that the slowest stage is as fast as it gets, to a thousandth; false where none fits: then layers are as they were. Sequences
 * stay. O(stages · layers · log time). */
bool balance_layers(const struct warm_prices *w, struct plan_replica *r);
/* What a plan should take: its slowest replica, and the slowest gradient all-reduce as if nothing hid it, rings of one node's devices
 * side by side in flight. INT64_MAX where a stage cannot be. */
int64_t balance_layers_estimate(struct arena *a, const struct warm_prices *w, const struct plan *p);

#endif
