/* planner/replan/warm_start.h - warm start: an old plan adapted to a changed cluster.
 *
 * Devices are matched by name. The old layout is adapted by several
 * rules (planner/replan/adapt), those with the best estimates are simulated, and the best is improved by local search
 * (planner/local_search/local_search). The cost is limited in counted work: 0.13 to 0.2 CPU s for 64
 * devices. If the job does not have the old microbatch size, the layout is carried over to the job's nearest one, without the rules of
 * sharded stages.
 */
#ifndef PLANNER_REPLAN_WARM_START_H
#define PLANNER_REPLAN_WARM_START_H

#include "planner/candidate/search_context.h"
#include "planner/replan/adapt.h"

struct bound_certificate;

struct warm_task {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) of microbatches */
    int32_t n_sizes;
};
/* Plans derived from t->o->from, best first; none if nothing of it can be kept or fits. bound: NULL,
 * or a lower bound of all plans of the microbatch size. Plans live in t->arena. */
struct warm_plans {
    int32_t n;
    /* The best plan is at most 16 % slower than the old one after scaling by the change of computing power. If not, or if this
     * is unknown, a search may find a better plan. */
    bool enough;
    struct search_plan plans[WARM_VARIANTS + 1]; /* of each pair of rules, and the best of them improved */
};
MUST_CHECK enum status warm_start_search(struct search_context *t, const struct warm_task *task,
                                         struct warm_plans *out, struct bound_certificate *bound,
                                         struct error *err);
/* Projects the plans to the exact search's class (devices, layers and shares without explicit orders and warm-ups), simulates
 * them and adds them to t->incumbents. n spaces, one per microbatch size. */
MUST_CHECK enum status warm_start_class(struct search_context *t, const struct space *spaces,
                                        int32_t n, const struct warm_plans *from,
                                        struct error *err);

#endif
