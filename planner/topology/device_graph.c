#include "planner/topology/device_graph.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/cluster/topology.h"
#include "planner/topology/igraph_guard.h"

#include <igraph.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- routes --- */

struct device_routes {
    struct arena *arena;
    struct cost *cost;
    struct topology *topology;
    struct hash_map found; /* of struct device_route, by sites and types */
};

/* A message over several links has the bandwidth of the slowest and the sum of their latencies (sim/network/network.h). */
static bool price_route(const struct device_graph *g, const int32_t type[2],
                        const struct route *route, struct device_route *out)
{
    struct device_routes *r = g->routes;
    const struct cluster *c = g->cluster;
    struct error unheard;
    int32_t *hop = ARENA_ARRAY(r->arena, int32_t, (size_t)route->n_hops);
    double *Bps = ARENA_ARRAY(r->arena, double, (size_t)route->n_hops);
    struct link_ends ends = link_ends_of(type[0], type[1]);
    if (g->gpus) {
        ends.gpus[0] = g->gpus[type[0]], ends.gpus[1] = g->gpus[type[1]];
        ends.at_once = ends.gpus[0] < ends.gpus[1] ? ends.gpus[0] : ends.gpus[1];
    }
    if (cost_link_of(r->cost, route->link[0], &ends, &out->link, &unheard) != OK) return false;
    out->own = link_of_every_pair(&c->links[route->link[0]]);
    out->n_hops = route->n_hops, out->hop = hop, out->hop_Bps = Bps;
    Bps[0] = out->link.bandwidth_Bps;
    for (int32_t i = 0; i < route->n_hops; i++) {
        struct cost_link x;
        hop[i] = 2 * route->link[i] + route->towards[i];
        out->blocking |= c->links[route->link[i]].blocking;
        if (i == 0) continue;
        if (cost_link(r->cost, route->link[i], &x, &unheard) != OK) return false;
        Bps[i] = x.bandwidth_Bps;
        if (x.bandwidth_Bps < out->link.bandwidth_Bps) out->link.bandwidth_Bps = x.bandwidth_Bps;
        out->link.latency_ns += x.latency_ns;
    }
    return true;
}

const struct device_route *device_graph_route(const struct device_graph *g, int32_t from,
                                              int32_t to, int32_t from_type, int32_t to_type)
{
    struct device_routes *r = g->routes;
    if (from == to) return NULL;
    if (from > to) return device_graph_route(g, to, from, to_type, from_type);
    int64_t types = g->n_types, places = g->n_sites * types;
    int64_t key = ((int64_t)g->site_of[from] * types + from_type) * places +
                  (int64_t)g->site_of[to] * types + to_type + 1;
    struct hash_entry *e = hash_map_at(&r->found, (uint64_t)key);
    struct device_route *x = e->pointer;
    if (!x) {
        struct route route;
        e->pointer = x = ARENA_ARRAY(r->arena, struct device_route, 1);
        x->linked = topology_route(r->topology, from, to, &route) &&
                    price_route(g, (const int32_t[2]){from_type, to_type}, &route, x);
    }
    return x->linked ? x : NULL;
}

const struct cost_link *device_graph_link(const struct device_graph *g, int32_t from, int32_t to)
{
    const struct device *d = g->cluster->devices;
    const struct device_route *r = device_graph_route(g, from, to, d[from].type, d[to].type);
    return r ? &r->link : NULL;
}

static struct device_routes *routes_new(struct arena *a, const struct cluster *c, struct cost *k)
{
    struct device_routes *r = ARENA_ARRAY(a, struct device_routes, 1);
    *r = (struct device_routes){
        .arena = a, .cost = k, .topology = topology_new(a, c), .found = {.arena = a}};
    return r;
}

/* --- sites and their tree --- */

struct tree_edge {
    int32_t end[2], link;
    double Bps;
};
struct tree {
    struct arena *arena;
    const struct cluster *c;
    struct device_graph *g;
    int32_t n_vertices, n_edges, n_tree; /* vertices: sites, then switches */
    struct tree_edge *edges;             /* (n_edges); of the tree after find_tree: (n_tree) */
    int32_t *first, *next;               /* half edges of a vertex: 2 · edge + end */
    int32_t *weight;                     /* (n_vertices) devices */
    int32_t *walk, *parent;              /* (n_vertices) depth-first order, and the half edge to the parent */
    size_t capacity;
};

static void find_sites(struct tree *t)
{
    const struct cluster *c = t->c;
    struct device_graph *g = t->g;
    bool *own = ARENA_ARRAY(t->arena, bool, (size_t)c->n_nodes);
    for (int32_t i = 0; i < c->n_links; i++)
        for (int32_t e = 0; e < c->links[i].n_ends; e++)
            if (c->links[i].kind[e] == END_DEVICE) own[c->devices[c->links[i].end[e]].node] = true;
    for (int32_t n = 0; n < c->n_nodes; n++)
        for (int32_t d = 0; d < c->nodes[n].n_devices; d++) {
            g->site_of[c->nodes[n].first_device + d] = g->n_sites;
            if (own[n] || d + 1 == c->nodes[n].n_devices) g->n_sites++;
        }
}

static void add_edge(struct tree *t, int32_t a, int32_t b, int32_t link, double Bps)
{
    t->edges = arena_grow(t->arena, t->edges, (size_t)t->n_edges, &t->capacity, sizeof *t->edges);
    t->edges[t->n_edges++] = (struct tree_edge){.end = {a, b}, .link = link, .Bps = Bps};
}

/* Sites of a link's endpoint, from … to. */
static void sites_of(const struct tree *t, const struct link *l, int end, int32_t *from,
                     int32_t *to)
{
    const struct cluster *c = t->c;
    if (l->kind[end] == END_SWITCH) {
        *from = *to = t->g->n_sites + l->end[end];
    } else if (l->kind[end] == END_DEVICE) {
        *from = *to = t->g->site_of[l->end[end]];
    } else {
        const struct node_spec *n = &c->nodes[l->end[end]];
        *from = t->g->site_of[n->first_device];
        *to = t->g->site_of[n->first_device + n->n_devices - 1];
    }
}

/* A link class between every two devices connects all sites equally: each with the first, or with the one before on its
 * node. */
static enum status every_edges(struct tree *t, struct cost *k, int32_t link, struct error *err)
{
    const struct cluster *c = t->c;
    bool inside = c->links[link].kind[0] == END_INSIDE;
    int32_t *first = ARENA_ARRAY(t->arena, int32_t, (size_t)t->g->n_sites);
    for (int32_t d = t->g->n_devices - 1; d >= 0; d--) first[t->g->site_of[d]] = d;
    for (int32_t s = 1; s < t->g->n_sites; s++) {
        int32_t other = inside ? s - 1 : 0;
        const struct device *a = &c->devices[first[other]], *b = &c->devices[first[s]];
        struct cost_link cost;
        if ((a->node == b->node) != inside) continue;
        const struct link_ends ends = link_ends_of(a->type, b->type);
        TRY(cost_link_of(k, link, &ends, &cost, err));
        add_edge(t, other, s, link, cost.bandwidth_Bps);
    }
    return OK;
}

static enum status find_edges(struct tree *t, struct cost *k, struct error *err)
{
    for (int32_t i = 0; i < t->c->n_links; i++) {
        const struct link *l = &t->c->links[i];
        struct cost_link cost;
        int32_t a, a_last, b, b_last;
        if (link_of_every_pair(l)) {
            TRY(every_edges(t, k, i, err));
            continue;
        }
        TRY(cost_link(k, i, &cost, err));
        sites_of(t, l, 0, &a, &a_last);
        if (l->n_ends == 1) {
            for (; a < a_last; a++) add_edge(t, a, a + 1, i, cost.bandwidth_Bps);
            continue;
        }
        sites_of(t, l, 1, &b, &b_last);
        for (int32_t x = a; x <= a_last; x++) add_edge(t, x, b, i, cost.bandwidth_Bps);
        for (int32_t y = b + 1; y <= b_last; y++) add_edge(t, a, y, i, cost.bandwidth_Bps);
    }
    return OK;
}

/* Keeps the edges of a maximum spanning forest by bandwidth. */
static enum status find_tree(struct tree *t, struct error *err)
{
    igraph_t graph;
    igraph_vector_int_t ends = {0}, kept = {0}; /* zero-initialised: empty and safe to destroy */
    igraph_vector_t weight = {0};
    igraph_integer_t n = t->n_edges;
    enum status st;
    igraph_guard_enter();
    bool made = false;
    st = igraph_guard(igraph_vector_int_init(&ends, 2 * n), "edges of the devices", err);
    if (st == OK) st = igraph_guard(igraph_vector_int_init(&kept, 0), "a tree of devices", err);
    if (st == OK) st = igraph_guard(igraph_vector_init(&weight, n), "weights of links", err);
    for (igraph_integer_t i = 0; i < n && st == OK; i++) {
        VECTOR(ends)[2 * i] = t->edges[i].end[0];
        VECTOR(ends)[2 * i + 1] = t->edges[i].end[1];
        VECTOR(weight)[i] = 1 / t->edges[i].Bps;
    }
    if (st == OK)
        st = igraph_guard(igraph_create(&graph, &ends, t->n_vertices, IGRAPH_UNDIRECTED),
                          "a graph of the devices", err);
    made = st == OK;
    if (st == OK)
        st = igraph_guard(igraph_minimum_spanning_tree(&graph, &kept, &weight),
                          "a spanning tree of the devices", err);
    for (igraph_integer_t i = 0; st == OK && i < igraph_vector_int_size(&kept); i++)
        t->edges[n + i] = t->edges[VECTOR(kept)[i]];
    if (st == OK) {
        t->n_tree = (int32_t)igraph_vector_int_size(&kept);
        memmove(t->edges, t->edges + n, (size_t)t->n_tree * sizeof *t->edges);
    }
    if (made) igraph_destroy(&graph);
    igraph_vector_destroy(&weight);
    igraph_vector_int_destroy(&kept);
    igraph_vector_int_destroy(&ends);
    igraph_guard_leave();
    return st;
}

/* Half edges of every vertex, in the order of the tree's list. */
static void link_vertices(struct tree *t)
{
    memset(t->first, -1, (size_t)t->n_vertices * sizeof *t->first);
    for (int32_t h = 2 * t->n_tree - 1; h >= 0; h--) {
        int32_t v = t->edges[h / 2].end[h % 2];
        t->next[h] = t->first[v];
        t->first[v] = h;
    }
}

/* Depth-first search of the tree of `root`, its branches in the order of their vertices; parent: half edge to the predecessor. n: vertices of walk
 * so far. Returns their number now. stack: (vertices) */
static int32_t walk_from(struct tree *t, int32_t root, int32_t n, int32_t *stack)
{
    int32_t depth = 0;
    t->parent[root] = -1;
    stack[depth++] = root;
    while (depth) {
        int32_t v = stack[--depth], below = depth;
        t->walk[n++] = v;
        for (int32_t h = t->first[v]; h >= 0; h = t->next[h]) {
            int32_t to = t->edges[h / 2].end[1 - h % 2], at = depth++;
            if (t->parent[v] >= 0 && h / 2 == t->parent[v] / 2) {
                depth--;
                continue;
            }
            t->parent[to] = h;
            for (; at > below && stack[at - 1] < to; at--) stack[at] = stack[at - 1];
            stack[at] = to;
        }
    }
    return n;
}

/* Of the tree walk[first … n): the vertex none of whose branches has more than half of its devices (a centroid, Jordan 1869). */
static int32_t centroid(const struct tree *t, int32_t first, int32_t n)
{
    int32_t *inside = ARENA_ARRAY(t->arena, int32_t, (size_t)t->n_vertices), all = 0;
    for (int32_t i = first; i < n; i++) all += t->weight[t->walk[i]];
    for (int32_t i = n - 1; i >= first; i--) { /* the last with half of the devices below it or on it is the first met */
        int32_t v = t->walk[i], h = t->parent[v];
        inside[v] += t->weight[v];
        if (2 * inside[v] >= all) return v;
        if (h >= 0) inside[t->edges[h / 2].end[h % 2]] += inside[v];
    }
    return t->walk[first];
}

/* Every tree from its centroid, because then the devices of each branch, such as a site, a pod or a node, are neighbours in the order. */
static void walk_tree(struct tree *t)
{
    int32_t *stack = ARENA_ARRAY(t->arena, int32_t, (size_t)t->n_vertices), n = 0;
    bool *seen = ARENA_ARRAY(t->arena, bool, (size_t)t->n_vertices);
    for (int32_t root = 0; root < t->n_vertices; root++) {
        int32_t first = n;
        if (seen[root]) continue;
        n = walk_from(t, root, first, stack);
        (void)walk_from(t, centroid(t, first, n), first, stack);
        for (int32_t i = first; i < n; i++) seen[t->walk[i]] = true;
    }
}

/* Devices on the smaller side of every link; weight: of the subtree. */
static void find_below(struct tree *t)
{
    struct device_graph *g = t->g;
    for (int32_t i = t->n_vertices - 1; i >= 0; i--) {
        int32_t v = t->walk[i], h = t->parent[v];
        if (h < 0) continue;
        const struct tree_edge *e = &t->edges[h / 2];
        int32_t inside = t->weight[v];
        int32_t side = inside < g->n_devices - inside ? inside : g->n_devices - inside;
        if (link_of_every_pair(&t->c->links[e->link]) && side > 0) side = 1; /* dedicated links */
        if (side > g->below[e->link]) g->below[e->link] = side;
        t->weight[e->end[h % 2]] += inside;
    }
}

/* Devices in depth-first order. */
static void find_order(struct tree *t)
{
    struct device_graph *g = t->g;
    int32_t n = 0, *first = ARENA_ARRAY(t->arena, int32_t, (size_t)g->n_sites + 1);
    for (int32_t d = 0; d < g->n_devices; d++) first[g->site_of[d] + 1] = d + 1;
    for (int32_t i = 0; i < t->n_vertices; i++) {
        int32_t v = t->walk[i];
        for (int32_t d = v < g->n_sites ? first[v] : 0; v < g->n_sites && d < first[v + 1]; d++)
            g->order[n++] = d;
    }
}

static enum status find_places(struct tree *t, struct cost *k, struct error *err)
{
    struct device_graph *g = t->g;
    find_sites(t);
    TRY(find_edges(t, k, err));
    t->n_vertices = g->n_sites + t->c->n_switches;
    size_t n = (size_t)t->n_vertices, edges = (size_t)t->n_edges;
    struct tree_edge *room = ARENA_ARRAY(t->arena, struct tree_edge, edges + n);
    if (edges) memcpy(room, t->edges, edges * sizeof *room);
    t->edges = room;
    TRY(find_tree(t, err));
    t->first = ARENA_ARRAY(t->arena, int32_t, n), t->next = ARENA_ARRAY(t->arena, int32_t, 2 * n);
    t->weight = ARENA_ARRAY(t->arena, int32_t, n), t->walk = ARENA_ARRAY(t->arena, int32_t, n);
    t->parent = ARENA_ARRAY(t->arena, int32_t, n);
    for (int32_t d = 0; d < g->n_devices; d++) t->weight[g->site_of[d]]++;
    link_vertices(t);
    walk_tree(t);
    find_below(t);
    find_order(t);
    return OK;
}

enum status device_graph_new(struct arena *a, const struct cluster *c, struct cost *k,
                             struct device_graph **out, struct error *err)
{
    size_t n = (size_t)c->n_devices;
    struct device_graph *g = *out = ARENA_ARRAY(a, struct device_graph, 1);
    *g = (struct device_graph){
        .cluster = c, .n_devices = c->n_devices, .n_types = cost_types(k)};
    g->site_of = ARENA_ARRAY(a, int32_t, n), g->order = ARENA_ARRAY(a, int32_t, n);
    g->below = ARENA_ARRAY(a, int32_t, (size_t)c->n_links + 1);
    g->routes = routes_new(a, c, k);
    struct arena *scratch = arena_new();
    struct tree t = {.arena = scratch, .c = c, .g = g};
    enum status st = find_places(&t, k, err);
    arena_free(scratch);
    return st;
}
