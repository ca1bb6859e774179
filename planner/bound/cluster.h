/* planner/bound/cluster.h - inputs of the bound on any plan (planner/bound/any.h), from spaces and the cluster's links.
 *
 * Classes are the cluster's device types. Offers are the spaces' stage costs per layer. Those of updates are scaled down by
 * the saving of one update of many layers against many of one (see the .c), so that their sum is at most the cost of any
 * stage. Gradients of a parameter used in several layers count in the first. Cuts: nodes and switches are vertices, links are
 * edges. Thresholds of bandwidth, from the fastest to the slowest, connect vertices to clusters; each cluster against
 * the rest is a cut, and all clusters of one threshold are a family of parts (planner/bound/messages.h). Cuts with equal devices
 * and bandwidth are used once. No cut divides a node. (The cuts of a Gomory-Hu tree, tried beside them, raised the bound in 1 of
 * 3,000 random questions.)
 */
#ifndef PLANNER_BOUND_CLUSTER_H
#define PLANNER_BOUND_CLUSTER_H

#include "core/cluster/cluster.h"
#include "planner/bound/any.h"
#include "planner/candidate/space.h"

/* Adds the offers of a space: its microbatch size and the shards of a microbatch on a stage's devices. tp: (n_types of the
 * space) GPUs per device of the type, 0: no offer; device_class: (n_types) corresponding type of the bound's cluster. NULL:
 * one GPU each, the same types. O(types · layers) stages priced. */
void bound_cluster_offer(struct bound_any *b, const struct space *s, const int32_t *tp,
                         const int32_t *device_class);

/* Adds the cluster's cuts. ERR_INPUT: errors of cost_link. O(bandwidth levels · links). */
MUST_CHECK enum status bound_cluster_cuts(struct arena *a, struct bound_any *b,
                                          const struct cluster *c, struct cost *k,
                                          struct error *err);

/* Adds the prices of the cluster's device types, if any has one (bound_any_prices). */
void bound_cluster_prices(struct bound_any *b, const struct cluster *c, double most_ns);

/* Complete bound: offers of n >= 1 spaces on the cluster, cuts, prices and solution. stages: the
 * plans that it covers; most_ns: of bound_any_prices. Errors: those of bound_any_solve and bound_cluster_cuts. */
MUST_CHECK enum status bound_cluster(struct arena *a, const struct cluster *c, struct cost *k,
                                     const struct space *const *spaces, int32_t n,
                                     enum bound_stages stages, double most_ns,
                                     struct bound_certificate *out, struct error *err);

#endif
