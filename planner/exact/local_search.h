/* planner/exact/local_search.h - hill climbing over the plans of the exact search's class.
 *
 * Moves: the end of a stage by some layers, in halving steps; microbatches between two replicas, in halving steps; two neighbouring
 * stages exchanged; with `devices`, any two devices exchanged. Equal replicas change together first, then one by one.
 */
#ifndef PLANNER_EXACT_LOCAL_SEARCH_H
#define PLANNER_EXACT_LOCAL_SEARCH_H

#include "planner/exact/candidate.h"

/* The objective. `score` may return INT64_MAX for a candidate that cannot be below best_ns. */
struct local_search_hooks {
    struct search_context *t; /* its budget */
    void *user;
    enum status (*score)(void *user, const struct candidate *x, int64_t best_ns, int64_t *ns,
                         struct error *err);
    bool
        devices; /* moves of devices too: two exchanged, an idle one takes half a stage, one left out */
};
/* Exchanges two devices, of one replica or of two; an idle one replaces the other. False: nothing changes. */
bool local_search_exchange(struct candidate *x, int32_t d, int32_t e);
/* *x and *ns become the local optimum, or the best candidate when the budget ended. */
MUST_CHECK enum status local_search(const struct local_search_hooks *hooks, struct candidate *x,
                                    int64_t *ns, struct error *err);

#endif
