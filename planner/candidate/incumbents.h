/* planner/candidate/incumbents.h - the best plans found so far, each layout once.
 *
 * A layout is what a plan computes where: microbatch size, and the set of its replicas with their devices, layers and
 * shares, and whether they shard operators. Of plans that differ in less (recompute, warm-ups, buckets, order of replicas) the fastest stays.
 */
#ifndef PLANNER_CANDIDATE_INCUMBENTS_H
#define PLANNER_CANDIDATE_INCUMBENTS_H

#include "core/plan/plan.h"
#include "planner/candidate/types.h"

/* Better is what the objective says (planner/candidate/types.h). Plans outside its limits stand behind all inside, the nearest first:
 * what is refined may come inside. */
struct incumbents {
    struct arena *arena; /* of the copies */
    bool coarse;         /* a layout is the devices and their order alone, whatever they compute */
    const struct search_options *o;
    double min_price_per_h; /* of any device: what a time says of a cost */
    int32_t n, most;
    struct search_plan *plans; /* best first; ties: who came first */
    uint64_t *layout;
};

void incumbents_init(struct incumbents *k, struct arena *a, int32_t most,
                     const struct search_options *o, const struct cluster *c);
/* What a plan must be faster than to be kept; INT64_MAX while there is room. */
int64_t incumbents_limit(const struct incumbents *k);
/* How long an iteration of min_rate takes, 0 where there is none. */
double incumbents_max_ns(const struct search_options *o);
/* The limits of rate and cost. */
bool incumbents_inside(const struct incumbents *k, const struct search_plan *x);
/* Whether x goes before y: inside the limits before outside, there the nearer one; then by the objective. */
bool incumbents_better(const struct incumbents *k, const struct search_plan *x,
                       const struct search_plan *y);
/* Whether there is one of its layout. */
bool incumbents_has(const struct incumbents *k, const struct plan *p);
void incumbents_add(struct incumbents *k, const struct plan *p, int64_t iteration_ns);

#endif
