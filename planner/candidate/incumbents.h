/* planner/candidate/incumbents.h - the best plans found so far (incumbents), one per layout.
 *
 * A layout is the microbatch size, the set of replicas with their devices, layers and shares, and whether stages shard
 * operators. Of plans with one layout (they differ in recomputation, warm-ups, buckets or replica order) only the fastest is
 * kept.
 */
#ifndef PLANNER_CANDIDATE_INCUMBENTS_H
#define PLANNER_CANDIDATE_INCUMBENTS_H

#include "core/plan/plan.h"
#include "planner/candidate/types.h"

/* Ordered by the objective (planner/candidate/types.h). Plans outside its limits come after all plans inside, the nearest to
 * the limit first, because refinement may bring them inside. */
struct incumbents {
    struct arena *arena; /* owns the copies */
    const struct search_options *o;
    double min_price_per_h; /* least price of any device: converts a time to a lower bound of cost */
    int32_t n, most;
    struct search_plan *plans; /* (n) best first; ties in order of arrival */
    uint64_t *layout;          /* (n) hashes */
    struct incumbents *also;   /* receive every plan too, in the order of their own objective; NULL: none */
};

/* Kept by a search, more if more are asked for. */
enum { INCUMBENTS_MIN = 16 };

void incumbents_init(struct incumbents *k, struct arena *a, int32_t most,
                     const struct search_options *o, const struct cluster *c);
/* A plan must be faster than this to be kept; INT64_MAX while the list has room. */
int64_t incumbents_limit(const struct incumbents *k);
/* The same for the best plan, if the GPUs used cost so much per hour: a plan that takes as long or longer does not precede it. */
int64_t incumbents_reach_ns(const struct incumbents *k, double price_per_h);
/* Longest iteration that satisfies min_rate, in ns; 0: no such limit. */
double incumbents_max_ns(const struct search_options *o);
/* Whether the objective or a limit is money. */
bool incumbents_by_money(const struct search_options *o);
/* Whether x satisfies the limits of rate and cost. */
bool incumbents_inside(const struct incumbents *k, const struct search_plan *x);
/* Whether x precedes y: inside the limits before outside; outside, the nearer one first; then by the objective. */
bool incumbents_better(const struct incumbents *k, const struct search_plan *x,
                       const struct search_plan *y);
void incumbents_add(struct incumbents *k, const struct plan *p, int64_t iteration_ns);
void incumbents_add_all(struct incumbents *k, const struct incumbents *from);

#endif
