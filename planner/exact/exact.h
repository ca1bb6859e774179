/* planner/exact/exact.h - branch and bound over all plans of up to SEARCH_DEVICES_MAX devices, and over a part of those of up to
 * SPACE_TABLES_MAX.
 *
 * The class: every subset of the devices, every partition of it into replicas, every order of a replica's devices, every
 * contiguous split of the layers, every integer share of the microbatches; 1F1B. A candidate whose lower bound
 * (planner/bound/pipeline_bound.h) is not below the worst incumbent is pruned; the others are lowered and simulated. Symmetry
 * is broken: interchangeable devices are used in index order, interchangeable replicas have shares in falling order. Ties
 * follow the order of enumeration.
 *
 * Partitions of all microbatch sizes are processed by rising bound: first the most promising plan of each within half of the work, so
 * that the incumbent is good if the budget ends early; then all other plans, which completes the proof.
 *
 * With more than SEARCH_DEVICES_MAX devices the partitions are too many to list. Then they are found by a best-first search: from even
 * ones, the neighbours of the partition whose first plan is fastest, by the place of one device or an exchange of two.
 */
#ifndef PLANNER_EXACT_EXACT_H
#define PLANNER_EXACT_EXACT_H

#include "planner/candidate/search_context.h"

/* Searches n spaces, one per microbatch size, of at most SPACE_TABLES_MAX devices each; adds to t->incumbents. lists: scratch
 * arena. Sets t->truncated if the class was not searched completely. */
MUST_CHECK enum status exact_search(struct search_context *t, struct arena *lists,
                                    const struct space *spaces, int32_t n, struct error *err);

#endif
