/* sim/collective/routes.h - routes between devices of a cluster, as links of a program that sim/network can carry.
 *
 * Needed for a collective over devices without a plan, because lowering has not created its links. The first n_links of the
 * program are the cluster's, in the cluster's order.
 */
#ifndef SIM_COLLECTIVE_ROUTES_H
#define SIM_COLLECTIVE_ROUTES_H

#include "core/cluster/cluster.h"
#include "core/program/program.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct collective_routes; /* opaque; keeps a pointer to the cluster */

struct collective_routes *collective_routes_new(struct arena *a, const struct cluster *c);
/* Link and direction for network_join; from == to: link -1. false: no route. */
bool collective_routes_find(struct collective_routes *w, int32_t from, int32_t to, int32_t *link,
                    int32_t *direction);
/* Links of all routes requested so far; valid until the next request. */
const struct program *collective_routes_program(const struct collective_routes *w);
/* Bandwidth and latency of an idle route between two devices. ERR_INPUT: no route, or a link without cost. */
MUST_CHECK enum status collective_routes_cost(struct collective_routes *w, struct cost *k, int32_t from,
                                           int32_t to, struct cost_link *out, struct error *err);

#endif
