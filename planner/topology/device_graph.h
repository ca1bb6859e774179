/* planner/topology/device_graph.h - the cluster's topology for the planner: order of neighbours, devices below each link, and routes.
 *
 * Sites are the units that routes distinguish: a node whose devices have no links of their own is one site, else each device
 * is one. Sites and switches are vertices, links are edges (igraph). Messages are assumed to follow a maximum spanning tree by
 * bandwidth. A depth-first walk of the tree gives `order`, in which nearby devices are adjacent. Routes between sites are looked up
 * on first use and kept: O(classes of devices² + neighbours), never O(devices²).
 */
#ifndef PLANNER_TOPOLOGY_DEVICE_GRAPH_H
#define PLANNER_TOPOLOGY_DEVICE_GRAPH_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct device_graph {
    const struct cluster *cluster;
    int32_t n_devices, n_sites;
    int32_t n_types; /* types of the costs; may exceed the cluster's */
    const int32_t *
        gpus; /* (n_types) GPUs of a stage of this type, which send at once (link_ends); NULL: one */
    int32_t *site_of, *order; /* (n_devices); order: neighbours adjacent */
    int32_t *below; /* (links of the cluster) devices on the smaller side of a link of the tree; 0: others */
    struct device_routes *routes; /* looked up so far */
};

/* Errors of cost_link. O((sites + links) log). */
MUST_CHECK enum status device_graph_new(struct arena *a, const struct cluster *c, struct cost *k,
                                        struct device_graph **out, struct error *err);
/* Route between two devices, priced for the given types; NULL: none. Not thread-safe, because routes are memoised. */
struct device_route {
    struct cost_link link; /* cost of a message */
    bool blocking;         /* messages block both ends' compute streams */
    bool own;              /* dedicated: no other pair of devices uses it */
    int32_t n_hops;
    /* (n_hops) 2 · link of the cluster + direction, from the lower device to the higher */
    const int32_t *hop;
    const double *hop_Bps; /* (n_hops) */
    bool linked;
};
const struct device_route *device_graph_route(const struct device_graph *g, int32_t from,
                                              int32_t to, int32_t from_type, int32_t to_type);
/* Cost of a message between two devices with their own types; NULL: no route. */
const struct cost_link *device_graph_link(const struct device_graph *g, int32_t from, int32_t to);

#endif
