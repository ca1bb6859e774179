/* planner/bound/cluster.h - the bound on any plan (planner/bound/any.h) from a search's spaces and a cluster's links.
 *
 * Classes are the cluster's device types. Offers come from the spaces' stage costs, layer by layer; those of updates
 * scaled down by what one update of many layers saves against many of one (see the .c), so that they add up to no more than any
 * stage costs.
 * Cuts: nodes and switches are vertices, links edges (igraph). Links of at least some bandwidth join vertices to clusters,
 * one level after the other from the fastest to the slowest; each such cluster against the rest is a cut. Up to
 * BOUND_VERTICES_MAX vertices those of the Gomory-Hu tree come on top: they contain a least cut of every two vertices.
 * Cuts alike in devices and bandwidth are taken once. Inside a node nothing is cut.
 */
#ifndef PLANNER_BOUND_CLUSTER_H
#define PLANNER_BOUND_CLUSTER_H

#include "core/cluster/cluster.h"
#include "planner/bound/any.h"
#include "planner/candidate/space.h"

enum { BOUND_VERTICES_MAX = 64 };

/* One space more, of this microbatch size, and the parts of a microbatch that the devices of one stage have. GPUs: (n_types
 * of the space) that its types stand for (0: no offer), and device_class: (n_types) which type of the bound's cluster these are; NULL:
 * one each, the same types. O(types · layers) stages priced. */
void bound_cluster_offer(struct bound_any *b, const struct space *s, const int32_t *tp,
                         const int32_t *device_class);

/* The same of a space on another grouping of the cluster's GPUs (core/cluster/group): a device's GPUs are of the type that
 * the cluster's device of its name has. */
void bound_cluster_offer_grouped(struct bound_any *b, const struct cluster *c,
                                 const struct space *s);

/* The cluster's cuts. ERR_INPUT: what cost_link says. O(levels · links). */
MUST_CHECK enum status bound_cluster_cuts(struct arena *a, struct bound_any *b,
                                          const struct cluster *c, struct cost *k,
                                          struct error *err);

/* What a device of each type of the cluster costs, where any has a price (bound_any_prices). */
void bound_cluster_prices(struct bound_any *b, const struct cluster *c, double most_ns);

/* All of it: offers of the spaces, on the cluster or on groupings of its GPUs, its cuts, and the answer. n >= 1. most_ns:
 * of bound_any_prices. What bound_any_solve and bound_cluster_cuts say. */
MUST_CHECK enum status bound_cluster(struct arena *a, const struct cluster *c, struct cost *k,
                                     const struct space *const *spaces, int32_t n, double most_ns,
                                     struct bound_certificate *out, struct error *err);
/* The same for plans with sharded stages too (bound_any_sharded): weaker. */
MUST_CHECK enum status bound_cluster_sharded(struct arena *a, const struct cluster *c,
                                             const struct space *const *spaces, int32_t n,
                                             double most_ns, struct bound_certificate *out,
                                             struct error *err);

#endif
