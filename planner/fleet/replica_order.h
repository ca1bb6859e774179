/* planner/fleet/replica_order.h - orders of a plan's replicas, found by simulating each distinct one alone.
 *
 * Until their gradient all-reduces, replicas of a large plan meet nowhere but on links. So one of each class (equal types, layers and
 * warm-ups) is lowered and simulated without the others, in every order of a short list: as it is, its backwards whole; 1F1B
 * and eager 1F1B with backwards split; the two handmade zero-bubble orders (Qi et al., arXiv 2401.10241), which keep W
 * for the end of the pipeline as memory allows. The quickest that fits is everybody's of the class. One that fits in no order is changed
 * until it does (scorer_fit), and so are its likes: a plan of a thousand stages is then lowered once.
 * Pipelines of many microbatches are cut off after REPLICA_ORDER_TURNS times their length: from there on each takes the pace of
 * the busiest stage.
 * O(kinds of replicas · orders) simulations of one pipeline.
 */
#ifndef PLANNER_FLEET_REPLICA_ORDER_H
#define PLANNER_FLEET_REPLICA_ORDER_H

#include "planner/candidate/search_context.h"

enum { REPLICA_ORDER_TURNS = 6 };

/* Changes orders, what is computed again, and shares, so that all end together; *end_ns: when that should be, the last
 * backward; INT64_MAX where some replica fits in no way. Replicas with orders of their own stay as they are, and then
 * so does all else. */
MUST_CHECK enum status replica_order_plan(struct search_context *t, const struct space *s,
                                          struct plan *plan, int64_t *end_ns, struct error *err);

#endif
