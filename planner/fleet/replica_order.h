/* planner/fleet/replica_order.h - schedules of a large plan's replicas, found by simulating each distinct replica alone.
 *
 * Until their gradient all-reduces the replicas of a large plan interact only on links. So one replica of each class (equal
 * types, layers and warm-ups) is lowered and simulated alone in a short list of orders: its own; 1F1B and eager 1F1B with split
 * backwards; the two handcrafted zero-bubble schedules ZB-H1 and ZB-H2 (Qi et al., arXiv 2401.10241), which defer W to the end
 * of the pipeline as memory allows. The fastest order that fits is used for the whole class. A replica that fits in no order is
 * repaired (scorer_fit), and all of its class with it, so that a plan of a thousand stages is then lowered once.
 * Pipelines of many microbatches are simulated for REPLICA_ORDER_TURNS times their length only; after that each advances at the
 * pace of its busiest stage.
 * O(classes of replicas · orders) simulations of one pipeline.
 */
#ifndef PLANNER_FLEET_REPLICA_ORDER_H
#define PLANNER_FLEET_REPLICA_ORDER_H

#include "planner/candidate/search_context.h"

enum { REPLICA_ORDER_TURNS = 6 };

/* Sets orders, recomputation and shares such that all replicas end together. *end_ns: estimated end of the last backward;
 * INT64_MAX: a replica fits in no order. No change to a plan whose replicas have explicit orders. */
MUST_CHECK enum status replica_order_plan(struct search_context *t, const struct space *s,
                                          struct plan *plan, int64_t *end_ns, struct error *err);

#endif
