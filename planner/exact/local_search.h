/* planner/exact/local_search.h - first-improvement local search (hill climbing) over the plans of the exact search's class.
 *
 * Moves: a stage boundary by some layers, in halving steps; microbatches between two replicas, in halving steps; exchange of
 * two neighbouring stages; with `devices`, exchange of any two devices. Equal replicas change together first, then one by one.
 */
#ifndef PLANNER_EXACT_LOCAL_SEARCH_H
#define PLANNER_EXACT_LOCAL_SEARCH_H

#include "planner/exact/candidate.h"

/* The objective function. `score` may return INT64_MAX for a candidate whose bound is not below best_ns. */
struct local_search_hooks {
    struct search_context *t; /* budgets */
    void *user;
    enum status (*score)(void *user, const struct candidate *x, int64_t best_ns, int64_t *ns,
                         struct error *err);
    bool
        devices; /* moves of devices too: exchange of two, half a stage to an idle one, one dropped */
};
/* Exchanges devices d and e, in one replica or between two; an idle device replaces the other. False: no change. */
bool local_search_exchange(struct candidate *x, int32_t d, int32_t e);
/* *x and *ns become the local optimum, or the best candidate at the end of the budget. */
MUST_CHECK enum status local_search(const struct local_search_hooks *hooks, struct candidate *x,
                                    int64_t *ns, struct error *err);

#endif
