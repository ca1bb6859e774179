/* sim/collective/ways.h - the ways between devices of a cluster, as links of a program that the network can carry.
 *
 * A collective is made for devices and not from a plan, so nobody has lowered its links. The first n_links of the program are the
 * cluster's, in its order.
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
/* Link and direction for network_join; from and to the same: link -1. false: nothing joins them. */
bool collective_routes_find(struct collective_routes *w, int32_t from, int32_t to, int32_t *link,
                    int32_t *direction);
/* Links of all ways asked for so far; valid until the next is asked for. */
const struct program *collective_routes_program(const struct collective_routes *w);
/* What a message between two devices meets where nobody else is on the way. ERR_INPUT: nothing joins them, or a link without cost. */
MUST_CHECK enum status collective_routes_cost(struct collective_routes *w, struct cost *k, int32_t from,
                                           int32_t to, struct cost_link *out, struct error *err);

#endif
