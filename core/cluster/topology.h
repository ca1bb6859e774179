/* core/cluster/topology.h - routes of messages through a cluster with switches.
 *
 * The graph: devices and switches are its vertices. A link between a device and a switch, or between two switches, joins
 * those two; one between a node and a switch joins every device of the node to the switch. Two devices with a direct link
 * (core/cluster/cluster.h) use it, as if there were no switches. All other routes pass through switches only:
 * devices and nodes forward nothing.
 * The route is the one with the fewest links; among those, the least sum of latencies (as stated; 0 if measured);
 * among those, the one found first if links are tried in the order of the file. It is computed from the
 * device with the lower index, and the return route is its reverse, so both directions use the same links.
 * Cost: topology_new O(links); topology_route O(links) if its first device differs from the previous call's, else O(links of
 * the second one).
 */
#ifndef CORE_CLUSTER_TOPOLOGY_H
#define CORE_CLUSTER_TOPOLOGY_H

#include "core/cluster/cluster.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct topology; /* opaque; keeps pointers to the cluster */

struct route {
    int32_t n_hops; /* >= 1 */
    int32_t *link;  /* (n_hops) of the cluster, in order of passage */
    /* (n_hops): 0 from end[0] of the link to end[1], 1 back; one link: as cluster_link */
    int32_t *towards;
};

struct topology *topology_new(struct arena *a, const struct cluster *c);
/* The result of cluster_link. O(links of from's node + `every` links). */
int32_t topology_direct(const struct topology *t, int32_t from, int32_t to, int32_t *direction);
/* false: not connected, or the same device. The route is the arena's. */
bool topology_route(struct topology *t, int32_t from, int32_t to, struct route *out);
/* Parts of the cluster that no link joins to each other, over any switches; part: (n_devices) the part of a device, numbered in the
 * order of their first devices. Returns their number. O(devices + links). */
int32_t topology_parts(struct arena *a, const struct cluster *c, int32_t *part);
/* "no link joins p5.0-7 to g60-61.0-7", or "no link joins p5.0-7 to each other" of a node without links inside; NULL: neither. A message for
 * a cluster on which no plan was found. O(devices + links). */
const char *topology_gap(struct arena *a, const struct cluster *c);

#endif
