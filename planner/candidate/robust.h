/* planner/candidate/robust.h - among plans of practically equal predicted time, the one least sensitive to prediction errors.
 *
 * For jobs of measured layers and the objective TIME. Fifteen plans run by the framework of the measured tables
 * (docs/measurements.md) are predicted with a mean error of 4.4 %, and two runs of one plan differ by 5.0 %. So plans within
 * ROBUST_PERCENT of the fastest are equivalent, and the plan returned first is the one with the shortest step under pessimism:
 *   - every device is on a node of its own (on clusters with dedicated links between every two devices), because plans in other
 *     frameworks' formats do not state which devices share a node;
 *   - no gradient all-reduce begins before the last backward of the whole plan has ended;
 *   - gradient all-reduces take ROBUST_SUMS times their point-to-point estimate; those runs took 1.6 times and more.
 * Both parts are simulated: the end of the last backward in the first step, and a step without computation, counted twice.
 * On Sailor's cases this costs 0 to 5 % of predicted time, 2 % in the mean.
 */
#ifndef PLANNER_CANDIDATE_ROBUST_H
#define PLANNER_CANDIDATE_ROBUST_H

#include "planner/candidate/search_context.h"

enum { ROBUST_PERCENT = 5, ROBUST_SUMS = 2 };
/* Times up to this one are equivalent to ns. */
static inline int64_t robust_limit_ns(int64_t ns) { return ns + ns / 100 * ROBUST_PERCENT; }

/* The pessimistic step of a plan in ns; INT64_MAX: lowering rejects it under these assumptions. Cost: 1.5 simulations. */
MUST_CHECK enum status robust_ns(const struct search_context *t, const struct profile *p,
                                 const struct plan *plan, int64_t *out_ns, struct error *err);
/* Moves the most robust of the INCUMBENTS_MIN fastest incumbents to the front; the others keep their order. *moved: it is not
 * the fastest. */
MUST_CHECK enum status robust_first(struct search_context *t, const struct profile *p, bool *moved,
                                    struct error *err);

#endif
