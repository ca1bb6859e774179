/* planner/multi_device/multi_device_stage.h - local search over plans whose stages are on several devices of any types and
 * nodes.
 *
 * Starts: the incumbents, and on few devices pipelines of such stages (planner/multi_device/pipelines). Neighbourhoods:
 *   small moves   a layer over a boundary, a sequence between two devices of a stage, a microbatch between two replicas, as
 *                 long as one improves;
 *   large moves   (planner/multi_device/moves) stages merged and split, devices added, moved and removed, replicas joined and
 *                 divided, other microbatch sizes; the few best neighbours are improved by small moves before they are compared.
 * Every neighbour is lowered, fitted and simulated, so collectives, slices and messages of such stages have their simulated
 * cost. A neighbour is pruned if one of its devices alone is busy for as long as the best plan's iteration.
 * Deterministic. Ends at a local optimum or at the end of the budget of simulations.
 */
#ifndef PLANNER_MULTI_DEVICE_MULTI_DEVICE_STAGE_H
#define PLANNER_MULTI_DEVICE_MULTI_DEVICE_STAGE_H

#include "planner/candidate/search_context.h"

/* Adds refined plans (planner/schedule/refine.h) to t->incumbents. spaces: (n_spaces) one per microbatch size, all of one
 * cluster; incumbents of other clusters or sizes are not used as starts. evaluations: limit of simulations, from t's budget. */
MUST_CHECK enum status multi_device_search(struct search_context *t, const struct space *spaces,
                                           int32_t n_spaces, int64_t evaluations,
                                           struct error *err);
/* The same beside a search of many devices, from its best plan without sharded stages, at its microbatch size and the adjacent ones;
 * their spaces are made in `a`. */
MUST_CHECK enum status multi_device_beside(struct search_context *t, const struct search_task *task,
                                           struct arena *a, struct error *err);
/* Makes the graphs of all batch shards of a plan's stages in `a` and keeps them in the space for every plan lowered with it. */
MUST_CHECK enum status multi_device_graphs(struct arena *a, const struct lower_options *o,
                                           struct space *s, const struct plan *p,
                                           struct error *err);

#endif
