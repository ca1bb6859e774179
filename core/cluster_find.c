/* core/cluster_find.c - questions to a cluster that has been read. */
#include "core/cluster.h"

#include <string.h>

const char *cluster_link_end(const struct cluster *c, const struct link *l, int i)
{
    return l->kind[i] == END_DEVICE   ? c->devices[l->end[i]].name
           : l->kind[i] == END_SWITCH ? c->switches[l->end[i]]
                                      : c->nodes[l->end[i]].name;
}

/* How specific a link is for two devices: 3 their own, 2 of their nodes, 1 inside their node, 0 none. */
static int fit(const struct cluster *c, const struct link *l, int32_t from, int32_t to,
               int32_t *direction)
{
    int32_t a = c->devices[from].node, b = c->devices[to].node;
    if (l->kind[0] == END_SWITCH || l->kind[1] == END_SWITCH) return 0;
    if (l->n_ends == 1) {
        *direction = from > to;
        return a == b && a == l->end[0] ? 1 : 0;
    }
    if (l->kind[0] == END_DEVICE) a = from, b = to;
    *direction = a != l->end[0];
    bool joins = (a == l->end[0] && b == l->end[1]) || (a == l->end[1] && b == l->end[0]);
    return !joins ? 0 : l->kind[0] == END_DEVICE ? 3 : 2;
}

int32_t cluster_link(const struct cluster *c, int32_t from, int32_t to, int32_t *direction)
{
    int32_t best = -1, way = 0;
    int best_fit = 0;
    *direction = 0;
    if (from == to) return -1;
    for (int32_t i = 0; i < c->n_links; i++) {
        int f = fit(c, &c->links[i], from, to, &way);
        if (f <= best_fit) continue;
        best = i;
        best_fit = f;
        *direction = way;
    }
    return best;
}
