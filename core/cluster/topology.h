/* core/cluster/topology.h - the way of a message through a cluster with switches.
 *
 * The graph: devices and switches are its vertices. A link between a device and a switch, or between two switches, joins
 * those two; one between a node and a switch joins every device of the node to the switch. What joins two devices
 * directly is their one link of core/cluster/cluster.h, as if there were no switches. All other ways go through switches alone:
 * devices pass nothing on, nor does a node.
 * The way is the one of fewest links; among those the one of least latency (as stated; 0 where it is measured), summed;
 * among those the one whose links are met first when links are tried in the order of the file. It is found from the
 * device that stands first, and the return path is the same turned round, so messages in both directions meet the same links.
 * Cost: topology_new O(links); topology_route O(links) where its first device is another than the last time, O(links of
 * the second one) where it is the same.
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
    /* (n_hops): 0 from end[0] of the link to end[1], 1 back; one link: as cluster_link has it */
    int32_t *towards;
};

struct topology *topology_new(struct arena *a, const struct cluster *c);
/* false where nothing joins the two, or they are one. The route lives in the arena. */
bool topology_route(struct topology *t, int32_t from, int32_t to, struct route *out);

#endif
