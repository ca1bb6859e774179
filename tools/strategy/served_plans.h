/* tools/strategy/served_plans.h - plans with a parameter server, made from a synchronous plan, and the progress of stale gradients.
 *
 * Workers are the replicas of a synchronous plan, each one unsharded stage on one device; its ZeRO is left out. Servers are idle devices, by peak
 * FLOP/s, or the slowest workers in a simulation of that plan. One server is tried, and 2, 4, 8 beyond four times as many workers. Each is tried
 * with equal shares of the batch, with shares by speed, and with the plan's microbatch size, a half and a quarter of it.
 */
#ifndef TOOLS_STRATEGY_SERVED_PLANS_H
#define TOOLS_STRATEGY_SERVED_PLANS_H

#include "core/program/server_order.h"
#include "tools/strategy/island_plans.h"

/* *n plans, 0: none, for *why. A plan may yet not fit into memory. Cost: one simulation of `sync`. */
MUST_CHECK enum status served_plans(struct island_task *f, const struct plan *sync, const struct parameter_server *rule, struct plan **out,
                                    int32_t *n, const char **why, struct error *err);
/* Adam, LAMB and LARS normalise the gradient, so a push of one of n workers would change the parameters as much as a whole step: lr /
 * (staleness + 1). SGD's pushes are weighted by their share of the batch, and a step of all workers changes them as much as a synchronous one. */
enum server_rate served_plans_rate(const struct optimizer *o);
/* The assumed progress of a sample: n sin(π / (2 (2 τ + 1))), at most 1, with n workers and a mean staleness of τ updates. It is the
 * largest stable rate of gradients τ updates late, each with an n-th of the rate, over that of synchronous ones (Giladi et al. 2020, "At
 * Stability's Edge", arXiv 1909.12340, without momentum). 1 with BSP. About π/4 for many workers that never wait. */
double served_plans_progress(const struct parameter_server *rule, int32_t n_workers, const struct server_counts *counts);

#endif
