/* planner/topology/device_graph.h - a cluster as the planner sees it: places, zones, device classes, and who is near whom.
 *
 * Sites are what routes tell apart: a node whose devices have no links of their own is one site, else each device is one.
 * Sites and switches are vertices, links edges (igraph). A maximum spanning tree by bandwidth is the way messages would go;
 * the share of an edge is its bandwidth divided by the devices on its smaller side: what each gets when all talk across.
 * Cutting the tree where shares fall by the largest factor (at least ZONE_FACTOR) parts the cluster into zones: single
 * linkage (Gower and Ross 1969) by share instead of distance. A walk of the tree, depth first, puts devices that are near one
 * another side by side: `order`.
 * Devices of one type, in one zone, on nodes with equally many of the type are of one class, which is counted and never
 * enumerated: what plans are made of, so that a hundred thousand devices cost no more than their classes.
 * Routes are looked up between sites when they are asked for, each once: O(kinds² + neighbours), never O(devices²).
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
    int32_t n_types; /* of the costs, which may know more than the cluster has */
    int32_t *site_of, *zone_of, *class_of; /* (n_devices) */
    int32_t *order;                        /* (n_devices) neighbours side by side */
    struct device_class *classes;          /* (n_classes) by their first devices in order */
    double zone_share_Bps;                 /* of the best link between zones; 0: one zone */
    int32_t bottleneck;           /* the cluster's link of least share in the tree; -1: none */
    struct device_routes *routes; /* those asked for so far */
};

/* Where classes would be more than DEVICE_CLASSES_MAX, devices of one type in one zone are one, or all of one type. ERR_INPUT: more types
 * than that are used; what cost_link says. O((sites + links) log). */
MUST_CHECK enum status device_graph_new(struct arena *a, const struct cluster *c, struct cost *k,
                                        struct device_graph **out, struct error *err);
/* The way from one device to another, as between devices of these types; NULL where there is none. One thread at a time:
 * routes are kept. */
struct device_route {
    struct cost_link link; /* what a message takes */
    bool blocking;         /* both ends' compute streams wait for it */
    bool own;              /* nobody else's messages are on it */
    int32_t n_hops;
    /* (n_hops) 2 · link of the cluster + direction, from the lower device to the higher */
    const int32_t *hop;
    int64_t key; /* of the table */
    bool linked;
};
const struct device_route *device_graph_route(const struct device_graph *g, int32_t from,
                                              int32_t to, int32_t from_type, int32_t to_type);
/* What a message takes between two devices of the cluster as they are; NULL where none gets there. */
const struct cost_link *device_graph_link(const struct device_graph *g, int32_t from, int32_t to);

#endif
