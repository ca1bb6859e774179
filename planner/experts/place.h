/* planner/experts/place.h - experts of a plan's sharded stages placed by the popularity that its job states.
 *
 * Of each block with `tokens` (core/model/model.h, struct expert_block) whose experts a stage shards, the experts get an order, and the
 * stage's operators of the block ratios of their own: whole experts for each device, so that the longest device is shortest
 * (planner/experts/assign.h). A device's time for a token and for an expert's slots is that of the block's operators with all experts on
 * its type. Further replicas have the same order and cut it where it suits their devices. Devices that the experts do not fit on get
 * fewer, by the bytes of an expert that lowering finds. The plan is changed only if its simulation is faster.
 */
#ifndef PLANNER_EXPERTS_PLACE_H
#define PLANNER_EXPERTS_PLACE_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "planner/candidate/search_context.h"

bool experts_known(const struct job *j); /* whether it states the popularity of any block */
/* The job with the popularity of its blocks only, without the orders of an old plan. */
const struct job *experts_unplaced(struct arena *a, const struct job *j);
/* *p and *ns: a plan and its simulated time, INT64_MAX: unknown; what replaces them is in t's arena. Unchanged, at no cost: without
 * popularity, or no stage shards experts. Cost: a few lowerings and simulations. */
MUST_CHECK enum status experts_place(struct search_context *t, struct cost *k, const struct cluster *c, struct plan *p, int64_t *ns,
                                     struct error *err);
/* The same of every incumbent, and of the plans of t->even that shard experts, which become incumbents. */
MUST_CHECK enum status experts_place_incumbents(struct search_context *t, const struct job *j, const struct cluster *c, const struct profile *p,
                                                struct error *err);

#endif
