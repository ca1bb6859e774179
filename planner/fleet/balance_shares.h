/* planner/fleet/balance_shares.h - shares of the batch by when replicas end in a simulation.
 *
 * A mix divides the batch by what its templates say: fill, pace and tail. A simulation knows better: messages that wait for each
 * other, buffers that are short, gradient all-reduces that overlap. Where replica r ends its last backward at e_r and works on a microbatch
 * every t_r (its busiest stage), it could take (T - e_r) / t_r more until T; the least T at which all together take the batch
 * gives new shares, and the plan is simulated again.
 */
#ifndef PLANNER_FLEET_BALANCE_SHARES_H
#define PLANNER_FLEET_BALANCE_SHARES_H

#include "planner/candidate/search_context.h"

/* Work of a replica's busiest stage on a microbatch. */
int64_t balance_shares_pace(const struct space *s, const struct plan_replica *r);
/* New shares where replicas end when worked says: whether any changed. Nothing where balance_shares_plan would change nothing. */
bool balance_shares(const struct space *s, struct plan *p, const int64_t *worked);
/* Up to `rounds` simulations, each with new shares, as long as they are quicker. *plan and *iteration_ns are changed where a plan
 * is. worked: (n_replicas) when those of *plan ended (scorer_worked); changed. Nothing for one replica, where replicas must have
 * equal shares (ZeRO 2 and 3), or with orders. */
MUST_CHECK enum status balance_shares_plan(struct search_context *t, const struct space *s,
                                           struct plan *plan, int64_t *worked,
                                           int64_t *iteration_ns, int32_t rounds,
                                           struct error *err);

#endif
