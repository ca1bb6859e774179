/* planner/kept.h - the best plans found so far, each layout once.
 *
 * A layout is what a plan computes where: microbatch size, and the set of its replicas with their devices, layers and
 * shares. Of plans that differ in less (recompute, warm-ups, buckets, order of replicas) the fastest stays.
 */
#ifndef PLANNER_KEPT_H
#define PLANNER_KEPT_H

#include "core/plan.h"
#include "planner/search.h"

struct kept {
    struct arena *arena; /* of the copies */
    int32_t n, most;
    struct search_plan *plans; /* best first; ties: who came first */
    uint64_t *layout;
};

void kept_init(struct kept *k, struct arena *a, int32_t most);
/* What a plan must be faster than to be kept; INT64_MAX while there is room. */
int64_t kept_limit(const struct kept *k);
void kept_add(struct kept *k, const struct plan *p, int64_t iteration_ns);

#endif
