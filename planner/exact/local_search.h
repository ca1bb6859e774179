/* planner/exact/local_search.h - a plan of the exact search's class changed step by step, as long as that makes it faster.
 *
 * Moved are the ends of stages, by ever fewer layers; microbatches between replicas, by ever fewer; and stages past their
 * neighbours; any two devices where that is asked for. Replicas that are alike change together, and then apart.
 */
#ifndef PLANNER_EXACT_LOCAL_SEARCH_H
#define PLANNER_EXACT_LOCAL_SEARCH_H

#include "planner/exact/candidate.h"

/* What a plan takes. One that cannot be below best_ns may be said to take INT64_MAX. */
struct local_search_hooks {
    struct search_context *t; /* its budget */
    void *user;
    enum status (*score)(void *user, const struct candidate *x, int64_t best_ns, int64_t *ns,
                         struct error *err);
    bool
        devices; /* any two change places, too, one that computes nothing halves a stage, one leaves */
};
/* Two devices change places, of one replica or of two, or one that computes nothing comes for one that leaves; false: that changes
 * nothing. */
bool local_search_exchange(struct candidate *x, int32_t d, int32_t e);
/* *x and *ns become those of the top reached, or of where the budget ended. */
MUST_CHECK enum status local_search(const struct local_search_hooks *way, struct candidate *x, int64_t *ns,
                             struct error *err);

#endif
