/* planner/fleet/robust.h - of plans that prediction cannot tell apart, the one that is least hurt where prediction is too kind.
 *
 * For jobs of measured layers, by time alone. Fifteen plans really run by the framework that the tables come from
 * (docs/measurements.md) are predicted to 4.4 % in the mean, and two runs of one plan differ by 5.0 %: so plans within
 * ROBUST_PERCENT of the fastest are as good as each other, and the first one handed out is the one whose step is shortest when
 *   - every device stands on a node of its own (on clusters whose links are all of every two devices): who shares a node with
 *     whom is not what plans in others' words say;
 *   - no gradient all-reduce begins before the last backward of the whole team has ended;
 *   - and sums take twice as long as curves of messages between two devices say: in those runs they took 1.6 times and more.
 * Both parts are simulated: the end of the last backward, from rest, and a step with nothing to compute, twice.
 * On Sailor's cases that costs 0 to 5 % of the predicted time, 2 % in the mean.
 */
#ifndef PLANNER_FLEET_ROBUST_H
#define PLANNER_FLEET_ROBUST_H

#include "planner/candidate/search_context.h"

enum { ROBUST_PERCENT = 5, ROBUST_SUMS = 2, ROBUST_PLANS_MAX = 16 };

/* The step of a plan as above; INT64_MAX where it cannot be lowered so. O(a simulation and a half). */
MUST_CHECK enum status robust_ns(const struct search_context *t, const struct profile *p,
                                 const struct plan *plan, int64_t *out_ns, struct error *err);
/* Puts that plan first of those kept; the others stay in order. Looks at ROBUST_PLANS_MAX at most, the fastest. *moved: it is
 * not the fastest. */
MUST_CHECK enum status robust_first(struct search_context *t, const struct profile *p, bool *moved,
                                    struct error *err);

#endif
