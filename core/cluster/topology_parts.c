/* Sets of devices and switches that links join, by union-find. */
#include "core/cluster/topology.h"

#include "core/base/arena.h"
#include "core/base/ranges.h"

enum { RANGES_SHOWN = 4 };

struct joins {
    const struct cluster *c;
    int32_t *parent; /* (devices + switches) */
};

static int32_t root_of(const struct joins *j, int32_t i)
{
    while (j->parent[i] != i) i = j->parent[i] = j->parent[j->parent[i]];
    return i;
}

static void join(const struct joins *j, int32_t a, int32_t b)
{
    j->parent[root_of(j, a)] = root_of(j, b);
}

/* The devices of a node, or the device or switch, at an end of a link. */
static int32_t members_of(const struct cluster *c, enum link_end kind, int32_t end, int32_t *first)
{
    *first = kind == END_SWITCH ? c->n_devices + end
             : kind == END_NODE ? c->nodes[end].first_device
                                : end;
    return kind == END_NODE ? c->nodes[end].n_devices : 1;
}

static void join_link(const struct joins *j, const struct link *l)
{
    const struct cluster *c = j->c;
    int32_t first, other;
    if (link_of_every_pair(l)) { /* all devices of a node, or of all nodes */
        for (int32_t d = 1; d < c->n_devices; d++)
            if (l->kind[0] == END_ACROSS ? c->n_nodes > 1
                                         : c->devices[d].node == c->devices[d - 1].node)
                join(j, d - 1, d);
        return;
    }
    int32_t n = members_of(c, l->kind[0], l->end[0], &first);
    int32_t m = l->n_ends > 1 ? members_of(c, l->kind[1], l->end[1], &other) : 0;
    if (!m) other = first, m = n;
    for (int32_t i = 0; i < n; i++) join(j, first + i, other);
    for (int32_t i = 0; i < m; i++) join(j, first, other + i);
}

int32_t topology_parts(struct arena *a, const struct cluster *c, int32_t *part)
{
    int32_t vertices = c->n_devices + c->n_switches, n = 0;
    struct joins j = {c, ARENA_ARRAY(a, int32_t, (size_t)vertices + 1)};
    int32_t *number = ARENA_ARRAY(a, int32_t, (size_t)vertices + 1); /* of a root, from 1 */
    for (int32_t i = 0; i < vertices; i++) j.parent[i] = i;
    for (int32_t i = 0; i < c->n_links; i++) join_link(&j, &c->links[i]);
    for (int32_t d = 0; d < c->n_devices; d++) {
        int32_t root = root_of(&j, d);
        if (!number[root]) number[root] = ++n;
        part[d] = number[root] - 1;
    }
    return n;
}

/* The devices whose part is, or is not, that of the first one. */
static const char *names_of(struct arena *a, const struct cluster *c, const int32_t *part, bool first)
{
    const char **names = ARENA_ARRAY(a, const char *, (size_t)c->n_devices + 1);
    size_t n = 0;
    for (int32_t d = 0; d < c->n_devices; d++)
        if ((part[d] == part[0]) == first) names[n++] = c->devices[d].name;
    return ranges_of_names(a, names, n, RANGES_SHOWN);
}

static const char *gap_inside(struct arena *a, const struct cluster *c)
{
    struct topology *t = topology_new(a, c);
    for (int32_t i = 0; i < c->n_nodes; i++) {
        const struct node_spec *n = &c->nodes[i];
        struct route r;
        if (n->n_devices < 2 || topology_route(t, n->first_device, n->first_device + 1, &r)) continue;
        const char **names = ARENA_ARRAY(a, const char *, (size_t)n->n_devices);
        for (int32_t k = 0; k < n->n_devices; k++) names[k] = c->devices[n->first_device + k].name;
        return arena_printf(a, "no link joins %s to each other",
                            ranges_of_names(a, names, (size_t)n->n_devices, RANGES_SHOWN));
    }
    return NULL;
}

const char *topology_gap(struct arena *a, const struct cluster *c)
{
    int32_t *part = ARENA_ARRAY(a, int32_t, (size_t)c->n_devices + 1);
    if (topology_parts(a, c, part) < 2) return gap_inside(a, c);
    return arena_printf(a, "no link joins %s to %s", names_of(a, c, part, true),
                        names_of(a, c, part, false));
}
