/* planner/fleet/fleet.h - the search for any number of devices.
 *
 * For each microbatch size, and for stages of ever fewer layers: templates over device classes, which may be several GPUs
 * (planner/fleet/tp_options), and a mix of them (planner/fleet/mix), placed in two ways (planner/fleet/place). Candidates are ranked
 * by what they should take; the best are lowered and simulated, which alone decides. The best of those is then changed
 * little by little (planner/fleet/fleet_local_search), each change simulated, as long as evaluations are left.
 * So the cost of all but the simulations grows with classes, not with devices.
 * Plans of very many lanes are compared by the first step of a run; the winner alone is simulated to its steady step, and
 * even it is not where that would cost more than is left. What simulations may cost is counted in calls and messages, never in
 * seconds of a clock, so that a search repeats.
 */
#ifndef PLANNER_FLEET_FLEET_H
#define PLANNER_FLEET_FLEET_H

#include "planner/bound/any.h"
#include "planner/candidate/search_context.h"

struct fleet_task {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) of microbatches */
    int32_t n_sizes;
};
/* Every two devices have links of their own: nobody shares one. */
bool fleet_has_dedicated_links(const struct cluster *c);
/* Fills t->incumbents, and bound, unless it is NULL, with what no plan beats: of the tensor-parallel degrees that the options offer, and of
 * those that baselines were priced with as well. ERR_INFEASIBLE is left to the caller, who sees nothing kept. */
MUST_CHECK enum status fleet_search(struct search_context *t, const struct fleet_task *task,
                                    struct bound_certificate bound[2], struct error *err);

#endif
