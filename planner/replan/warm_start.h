/* planner/replan/warm_start.h - warm starts: what becomes of an old plan on a team that has changed.
 *
 * Devices of both teams are the same where their names are; where the old plan took GPUs together as one device
 * (core/cluster/group), so does the new one with those of the node that are left, half as many where they do not suffice.
 * The old layout is carried over in a few ways (planner/replan/adapt), those that should be fastest are simulated, and the best
 * is changed little by little (planner/fleet/fleet_local_search). What that may cost is counted in stages lowered and calls simulated: about a
 * tenth of a second for 64 devices.
 * Where the old microbatch size is not the job's, the layout is carried over to the job's nearest one.
 * A plan with sharded stages (core/sharding/sharding.h) is carried over as it is where all its devices are left and the job
 * has its microbatch size; that is never enough, a search goes on.
 */
#ifndef PLANNER_REPLAN_WARM_START_H
#define PLANNER_REPLAN_WARM_START_H

#include "planner/candidate/search_context.h"

struct bound_certificate;

struct warm_task {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) of microbatches */
    int32_t n_sizes;
};
/* Plans like t->o->from, best first, at most WARM_PLANS_MAX; none where nothing of it can be kept or fits. bound: NULL, or
 * what no plan of the microbatch size beats. Plans live in t->arena. */
enum { WARM_PLANS_MAX = 4 };
struct warm_plans {
    int32_t n;
    /* The best is about as fast as the old plan was, for the computing power that is left (a tenth slower at most) or has come. Else,
     * and where that cannot be said, a search may find better. */
    bool enough;
    struct search_plan plans[WARM_PLANS_MAX + 1];
};
MUST_CHECK enum status warm_start_search(struct search_context *t, const struct warm_task *task,
                                         struct warm_plans *out, struct bound_certificate *bound,
                                         struct error *err);
/* What is left of them in the class of an exact search: devices, their layers and shares, with no orders or warm-ups of their
 * own; simulated and kept on n spaces. */
MUST_CHECK enum status warm_start_class(struct search_context *t, const struct space *spaces,
                                        int32_t n, const struct warm_plans *from,
                                        struct error *err);

#endif
