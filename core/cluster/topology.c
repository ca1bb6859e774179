/* Breadth-first search: all switches at one hop, with their least latency, before any at two. */
#include "core/cluster/topology.h"

#include "core/base/arena.h"

struct stop { /* what is known of a switch in one search */
    int32_t search;
    int32_t hops, from, link; /* from: switch before it, -1: the device; link that led here */
    int32_t rank;             /* of the switch in the order of discovery */
    double latency_s;
};

struct topology {
    struct arena *arena;
    const struct cluster *cluster;
    /* Links that end at a switch, by each of their ends, in the order of the file: of vertex v links[first[v]] … links[first[v + 1] -
     * 1]; of a switch only those to other switches, because a route ends at its device. Vertices: switches, then devices, then nodes. */
    int32_t *first, *links;
    /* The other links, ascending: of node n direct[first_direct[n]] … direct[first_direct[n + 1] - 1]; `every` links stand behind those
     * of the last node. */
    int32_t *first_direct, *direct;
    int32_t searches,
        source; /* source: device of the last search, which stands until another is asked for */
    struct stop *stops; /* (n_switches) */
    int32_t *queue, count;
};

static int32_t vertex(const struct cluster *c, enum link_end kind, int32_t index)
{
    if (kind == END_SWITCH) return index;
    return c->n_switches + index + (kind == END_NODE ? c->n_devices : 0);
}

static bool is_switched(const struct link *l)
{
    return l->kind[0] == END_SWITCH || l->kind[1] == END_SWITCH;
}

/* Listed by this end: the other one is a switch. */
static bool leads_to_switch(const struct link *l, int e)
{
    return is_switched(l) && l->kind[!e] == END_SWITCH;
}

/* The nodes that a direct link joins, -1 once for `every` link; returns their number. */
static int32_t nodes_of(const struct cluster *c, const struct link *l, int32_t node[2])
{
    int32_t n = 0;
    if (link_of_every_pair(l)) return node[0] = -1, 1;
    for (int i = 0; i < l->n_ends; i++) {
        int32_t end = l->kind[i] == END_DEVICE ? c->devices[l->end[i]].node : l->end[i];
        if (!n || end != node[0]) node[n++] = end;
    }
    return n;
}

/* By counting sort. */
static void list_direct(struct topology *t)
{
    const struct cluster *c = t->cluster;
    int32_t node[2], *first = t->first_direct = ARENA_ARRAY(t->arena, int32_t, (size_t)c->n_nodes + 3);
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < c->n_links; i++) {
            if (is_switched(&c->links[i])) continue;
            for (int32_t k = nodes_of(c, &c->links[i], node); k-- > 0;) {
                int32_t at = node[k] < 0 ? c->n_nodes : node[k];
                if (pass)
                    t->direct[first[at + 1]++] = i;
                else
                    first[at + 2]++;
            }
        }
        for (int32_t n = 0; !pass && n <= c->n_nodes; n++) first[n + 2] += first[n + 1];
        if (!pass) t->direct = ARENA_ARRAY(t->arena, int32_t, (size_t)first[c->n_nodes + 2] + 1);
    }
}

struct topology *topology_new(struct arena *a, const struct cluster *c)
{
    struct topology *t = ARENA_ARRAY(a, struct topology, 1);
    *t = (struct topology){.arena = a, .cluster = c, .source = -1};
    list_direct(t);
    if (!c->n_switches) return t;
    size_t n = (size_t)c->n_switches + (size_t)c->n_devices + (size_t)c->n_nodes;
    t->first = ARENA_ARRAY(a, int32_t, n + 2);
    t->links = ARENA_ARRAY(a, int32_t, 2 * (size_t)c->n_links);
    t->stops = ARENA_ARRAY(a, struct stop, (size_t)c->n_switches);
    t->queue = ARENA_ARRAY(a, int32_t, (size_t)c->n_switches);
    /* Counted two places ahead, so that filling leaves first[] where it belongs. */
    for (int32_t i = 0; i < c->n_links; i++)
        for (int e = 0; e < 2; e++)
            if (leads_to_switch(&c->links[i], e))
                t->first[vertex(c, c->links[i].kind[e], c->links[i].end[e]) + 2]++;
    for (size_t v = 2; v < n + 2; v++) t->first[v] += t->first[v - 1];
    for (int32_t i = 0; i < c->n_links; i++)
        for (int e = 0; e < 2; e++)
            if (leads_to_switch(&c->links[i], e))
                t->links[t->first[vertex(c, c->links[i].kind[e], c->links[i].end[e]) + 1]++] = i;
    return t;
}

/* The end of a link that is not this vertex. */
static int other_end(const struct cluster *c, const struct link *l, int32_t v)
{
    return vertex(c, l->kind[0], l->end[0]) == v;
}

static bool better(const struct stop *s, int32_t hops, double latency_s)
{
    return hops < s->hops || (hops == s->hops && latency_s < s->latency_s);
}

/* Over one link from switch `from` (-1: the device it begins at, or its node), which is vertex v, to another switch. */
static void cross(struct topology *t, int32_t link, int32_t v, int32_t from)
{
    const struct cluster *c = t->cluster;
    const struct link *l = &c->links[link];
    int e = other_end(c, l, v);
    if (l->kind[e] != END_SWITCH) return;
    struct stop *s = &t->stops[l->end[e]],
                next = {t->searches, 1, from, link, t->count, l->latency_s};
    if (from >= 0) next.hops += t->stops[from].hops, next.latency_s += t->stops[from].latency_s;
    if (s->search != t->searches) {
        t->queue[t->count++] = l->end[e];
    } else {
        if (!better(s, next.hops, next.latency_s)) return;
        next.rank = s->rank;
    }
    *s = next;
}

static int32_t node_vertex(const struct cluster *c, int32_t device)
{
    return vertex(c, END_NODE, c->devices[device].node);
}

/* Every switch that the device reaches. Its own links and those of its node are tried in the order of the file. */
static void search(struct topology *t, int32_t device)
{
    const struct cluster *c = t->cluster;
    int32_t own = vertex(c, END_DEVICE, device), node = node_vertex(c, device);
    int32_t i = t->first[own], j = t->first[node], end = t->first[own + 1],
            node_end = t->first[node + 1];
    if (t->source == device) return;
    t->source = device;
    t->searches++;
    t->count = 0;
    while (i < end || j < node_end) {
        bool of_own = j == node_end || (i < end && t->links[i] < t->links[j]);
        if (of_own)
            cross(t, t->links[i++], own, -1);
        else
            cross(t, t->links[j++], node, -1);
    }
    for (int32_t q = 0; q < t->count; q++) {
        int32_t s = t->queue[q];
        for (int32_t k = t->first[s]; k < t->first[s + 1]; k++) cross(t, t->links[k], s, s);
    }
}

/* The best of the last links, those that end at vertex v. */
static void arrive(const struct topology *t, int32_t v, struct stop *best)
{
    const struct cluster *c = t->cluster;
    for (int32_t k = t->first[v]; k < t->first[v + 1]; k++) {
        const struct link *l = &c->links[t->links[k]];
        int32_t from = l->end[other_end(c, l, v)];
        const struct stop *s = &t->stops[from];
        if (s->search != t->searches) continue;
        struct stop next = {t->searches, s->hops + 1, from,
                            t->links[k], s->rank,     s->latency_s + l->latency_s};
        bool first = next.rank < best->rank || (next.rank == best->rank && next.link < best->link);
        if (!best->hops || better(best, next.hops, next.latency_s) ||
            (next.hops == best->hops && !(next.latency_s > best->latency_s) && first))
            *best = next;
    }
}

static void trace_back(const struct topology *t, const struct stop *s, struct route *out)
{
    out->n_hops = s->hops;
    out->link = ARENA_ARRAY(t->arena, int32_t, (size_t)s->hops);
    out->towards = ARENA_ARRAY(t->arena, int32_t, (size_t)s->hops);
    for (int32_t i = s->hops; i-- > 0; s = &t->stops[s->from]) {
        const struct link *l = &t->cluster->links[s->link];
        out->link[i] = s->link;
        if (s->from < 0) { /* its other end is the device or the node */
            out->towards[i] = l->kind[0] == END_SWITCH;
            return;
        }
        out->towards[i] = other_end(t->cluster, l, s->from) == 0;
    }
}

static bool through_switches(struct topology *t, int32_t from, int32_t to, struct route *out)
{
    struct stop best = {0};
    search(t, from);
    arrive(t, vertex(t->cluster, END_DEVICE, to), &best);
    arrive(t, node_vertex(t->cluster, to), &best);
    if (!best.hops) return false;
    trace_back(t, &best, out);
    return true;
}

static void turn_round(struct route *r)
{
    for (int32_t i = 0, j = r->n_hops - 1; i <= j; i++, j--) {
        int32_t link = r->link[i], towards = r->towards[i];
        r->link[i] = r->link[j], r->towards[i] = !r->towards[j];
        if (i != j) r->link[j] = link, r->towards[j] = !towards;
    }
}

int32_t topology_direct(const struct topology *t, int32_t from, int32_t to, int32_t *direction)
{
    const struct cluster *c = t->cluster;
    int32_t best = -1, towards = 0, best_fit = 0;
    *direction = 0;
    for (int pass = 0; pass < 2 && from != to; pass++) {
        int32_t n = pass ? c->n_nodes : c->devices[from].node;
        for (int32_t k = t->first_direct[n]; k < t->first_direct[n + 1]; k++) {
            int32_t i = t->direct[k], f = cluster_link_fit(c, &c->links[i], from, to, &towards);
            if (f < best_fit || !f || (f == best_fit && i > best)) continue;
            best = i, best_fit = f;
            *direction = towards;
        }
    }
    return best;
}

bool topology_route(struct topology *t, int32_t from, int32_t to, struct route *out)
{
    int32_t direction, link = topology_direct(t, from, to, &direction);
    if (link >= 0) {
        *out =
            (struct route){1, ARENA_ARRAY(t->arena, int32_t, 1), ARENA_ARRAY(t->arena, int32_t, 1)};
        *out->link = link;
        *out->towards = direction;
        return true;
    }
    if (from == to || !t->cluster->n_switches) return false;
    if (!through_switches(t, from < to ? from : to, from < to ? to : from, out)) return false;
    if (from > to) turn_round(out);
    return true;
}
