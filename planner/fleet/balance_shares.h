/* planner/fleet/balance_shares.h - shares of the batch rebalanced by the replicas' simulated end times.
 *
 * A mix (planner/fleet/mix.h) divides the batch by the fill, pace and tail of its templates. The simulation also contains
 * contention, buffer limits and overlapped gradient all-reduces. If replica r ends its last backward at e_r and its busiest
 * stage works t_r on a microbatch, it can take (T - e_r) / t_r more until time T. The least T at which all replicas together
 * take the batch gives new shares, and the plan is simulated again.
 */
#ifndef PLANNER_FLEET_BALANCE_SHARES_H
#define PLANNER_FLEET_BALANCE_SHARES_H

#include "planner/candidate/search_context.h"

/* t_r: work of a replica's busiest stage per microbatch, in ns. */
int64_t balance_shares_pace(const struct space *s, const struct plan_replica *r);
/* New shares from end times worked[r]; returns whether any changed. No effect in the cases excluded by balance_shares_plan. */
bool balance_shares(const struct space *s, struct plan *p, const int64_t *worked);
/* Up to `rounds` simulations, each with new shares, as long as the iteration gets shorter; *plan and *iteration_ns become the
 * best. worked: (n_replicas) end times of *plan (scorer_worked); modified. No effect for a single replica, for plans that need
 * equal shares (ZeRO 2 and 3), or with explicit orders. */
MUST_CHECK enum status balance_shares_plan(struct search_context *t, const struct space *s,
                                           struct plan *plan, int64_t *worked,
                                           int64_t *iteration_ns, int32_t rounds,
                                           struct error *err);

#endif
