/* planner/exact/exact.h - branch and bound over all plans of up to 8 devices, and local search over those of up to 12.
 *
 * The class: every choice of devices, every way to part them into replicas, every order of the devices of a replica,
 * every contiguous split of the layers over them, every integer share of the microbatches; 1F1B orders. What cannot beat
 * the worst kept plan by a lower bound (planner/bound/pipeline_bound.h) is never built; what survives is lowered and simulated.
 * Interchangeable devices are used in index order, interchangeable replicas share in falling order; ties are broken by the
 * order of enumeration.
 *
 * Partitions of all microbatch sizes take turns by their bound: first the most promising plan of each, then a local search from the
 * best of those (planner/exact/local_search.h), so that the best known is good when the budget ends; last all the others, which
 * completes the proof.
 *
 * With more than SPACE_DEVICES_MAX devices partitions are too many for that. A walk over them comes first (planner/exact/exact_walk.c), from
 * those of the kept plans and from even ones; up to 10 devices those that can still be better are then listed and take turns as
 * above. Local searches also exchange any two devices, and restart from the best plan with some devices changed at random
 * (counter-based, the same each time) until the work is done.
 */
#ifndef PLANNER_EXACT_EXACT_H
#define PLANNER_EXACT_EXACT_H

#include "planner/candidate/search_context.h"

/* All plans of n spaces, one for each microbatch size, of at most SPACE_TABLES_MAX devices each; lists: scratch, filled. Sets
 * truncated where the class was not searched to its end. */
MUST_CHECK enum status exact_search(struct search_context *t, struct arena *lists,
                                    const struct space *spaces, int32_t n, struct error *err);

#endif
