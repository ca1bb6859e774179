/* planner/replan/balance_layers.h - layers distributed over the stages of a replica under messages and memory; estimates only.
 *
 * A stage takes F + B of a microbatch on its slowest device, with recomputation if the microbatches in flight (stages behind
 * it + 1) do not fit otherwise. A boundary takes the transfer of its whole activation from one device to the other; a cut that
 * logits cross is not used. The time for some of a microbatch's sequences is interpolated linearly between few and all
 * sequences (a GPU is slower per sequence with few of them); activations are proportional to sequences.
 */
#ifndef PLANNER_REPLAN_BALANCE_LAYERS_H
#define PLANNER_REPLAN_BALANCE_LAYERS_H

#include "core/plan/plan.h"
#include "planner/candidate/space.h"

/* whole: the space of the microbatch size; few: the space of the fewest sequences, NULL: times are proportional to sequences. */
struct warm_prices {
    const struct space *whole, *few;
};

/* Time of stage i of the replica, or of the message behind it if longer, in ns; INT64_MAX: infeasible. */
int64_t balance_layers_stage_ns(const struct warm_prices *w, const struct plan_replica *r,
                                int32_t i);
/* The slowest stage in ns; *fill: NULL, or the sum of the others. INT64_MAX: a stage is infeasible. */
int64_t balance_layers_replica_ns(const struct warm_prices *w, const struct plan_replica *r,
                                  int64_t *fill);
/* Sets boundaries to minimise the slowest stage, to 0.1 %; sequences are unchanged. false: none fits, the replica is unchanged.
 * O(stages · layers · log time). */
bool balance_layers(const struct warm_prices *w, struct plan_replica *r);
/* Estimated iteration in ns: the slowest replica plus the slowest gradient all-reduce without overlap, rings of one node's
 * devices in parallel. INT64_MAX: a stage is infeasible. */
int64_t balance_layers_estimate(struct arena *a, const struct warm_prices *w, const struct plan *p);

#endif
