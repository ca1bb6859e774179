/* tools/strategy/islands.h - divisions of a cluster into islands: nodes that faster links join than those between the islands.
 *
 * Nodes and switches are joined in the order of their links' bandwidth, the fastest first (single-linkage clustering, Kruskal 1956).
 * Before the links of each smaller bandwidth the connected nodes are a division, if there are 2 to ISLANDS_MAX of them. A node is never
 * divided. Links that state no bandwidth join nothing: team_state_links fills in measured ones.
 */
#ifndef TOOLS_STRATEGY_ISLANDS_H
#define TOOLS_STRATEGY_ISLANDS_H

#include "core/cluster/cluster.h"

#include <stdbool.h>

struct arena;

enum { ISLANDS_MAX = 64 };
struct islands {
    int32_t n;
    const int32_t *of;  /* (n_devices) island of each, numbered by their first devices */
    double between_Bps; /* bandwidth of the fastest link between two islands */
};

/* Divisions, that of the fastest links between islands first. Returns their number. O(links (log links + nodes)). */
int32_t islands_divisions(struct arena *a, const struct cluster *c, struct islands **out);
/* One island as a cluster, without the switches' links that lead to no node of it. */
void islands_part(struct arena *a, const struct cluster *c, const struct islands *x, int32_t island, struct cluster *out);
/* Whether two clusters are alike but for names: equal devices in the same order on alike nodes, alike links. */
bool islands_alike(struct arena *scratch, const struct cluster *x, const struct cluster *y);

#endif
