/* planner/multi_device/multi_device_stage.h - local search for plans whose stages stand on several devices, of any types and hosts.
 *
 * It starts from the incumbents, and on few devices from pipelines of such stages (planner/multi_device/pipelines). Moves:
 *   small changes   a layer over a boundary, a sequence from one device of a stage to another, a microbatch from one replica to
 *                   another, as long as one helps;
 *   large changes   (planner/multi_device/moves) stages merged and split, devices added, moved and left out, replicas joined and
 *                   divided, other microbatch sizes; of them the few best are changed a little in turn before they are
 *                   compared.
 * Every change is lowered, made to fit and simulated: the sums, slices and messages of stages on several devices cost what the simulator
 * says. What cannot win, because some device alone is busy for as long as the best plan takes, is not.
 * Deterministic; ends when no change helps or the simulations are spent.
 */
#ifndef PLANNER_MULTI_DEVICE_MULTI_DEVICE_STAGE_H
#define PLANNER_MULTI_DEVICE_MULTI_DEVICE_STAGE_H

#include "planner/candidate/search_context.h"

/* Adds what it finds to t->incumbents, refined (planner/schedule/refine.h). spaces: (n_spaces) one a microbatch size, all of one cluster; plans of
 * other clusters or sizes are no starts. evaluations: most simulations, of t's budget. */
MUST_CHECK enum status multi_device_search(struct search_context *t, const struct space *spaces,
                                           int32_t n_spaces, int64_t evaluations,
                                           struct error *err);
/* The graphs of all shares of a plan's stages, made in `a` and kept in the space, once for all plans that are lowered with it. */
MUST_CHECK enum status multi_device_graphs(struct arena *a, const struct lower_options *o,
                                           struct space *s, const struct plan *p,
                                           struct error *err);

#endif
