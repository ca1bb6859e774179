/* planner/topology/device_graph.h - the cluster's topology for the planner: zones, device classes, neighbourhood order and
 * routes.
 *
 * Sites are the units that routes distinguish: a node whose devices have no links of their own is one site, else each device
 * is one. Sites and switches are vertices, links are edges (igraph). Messages are assumed to follow a maximum spanning tree by
 * bandwidth. The share of an edge is its bandwidth divided by the devices on its smaller side: the bandwidth per device if all
 * of them communicate across it. The tree is cut into zones at the largest factor between successive shares (at least
 * ZONE_FACTOR): single-linkage clustering (Gower and Ross 1969) by share instead of distance. A depth-first walk of the tree
 * gives `order`, in which nearby devices are adjacent. A device class contains the devices of one type and zone on nodes with
 * equally many devices of the type. Plans are made of classes, which are counted and never enumerated, so that the cost of
 * planning grows with classes and not with devices. Routes between sites are looked up on first use and kept: O(classes² +
 * neighbours), never O(devices²).
 */
#ifndef PLANNER_TOPOLOGY_DEVICE_GRAPH_H
#define PLANNER_TOPOLOGY_DEVICE_GRAPH_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

enum { DEVICE_CLASSES_MAX = 64 };

struct device_class {
    int32_t type, zone, per_node; /* per_node: devices of the type on each node */
    int32_t n;
    int32_t *devices; /* (n) in the order of device_graph */
};

struct device_graph {
    const struct cluster *cluster;
    int32_t n_devices, n_sites, n_zones, n_classes;
    int32_t n_types; /* types of the costs; may exceed the cluster's */
    const int32_t *
        gpus; /* (n_types) GPUs of a stage of this type, which send at once (link_ends); NULL: one */
    int32_t *site_of, *zone_of, *class_of; /* (n_devices) */
    int32_t *order;                        /* (n_devices) neighbours adjacent */
    struct device_class *classes;          /* (n_classes) by their first devices in order */
    double zone_share_Bps;                 /* of the best link between zones; 0: one zone */
    int32_t *below; /* (links of the cluster) devices on the smaller side of a link of the tree; 0: others */
    int32_t bottleneck;           /* the cluster's link of least share in the tree; -1: none */
    struct device_routes *routes; /* looked up so far */
};

/* Above DEVICE_CLASSES_MAX classes, classes are merged per type and zone, then per type. ERR_INPUT: more types than that are
 * in use; errors of cost_link. O((sites + links) log). */
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
    int64_t key; /* in the table of routes */
    bool linked;
};
const struct device_route *device_graph_route(const struct device_graph *g, int32_t from,
                                              int32_t to, int32_t from_type, int32_t to_type);
/* Cost of a message between two devices with their own types; NULL: no route. */
const struct cost_link *device_graph_link(const struct device_graph *g, int32_t from, int32_t to);

#endif
