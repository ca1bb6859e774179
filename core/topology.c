/* A search in layers: all switches at one hop are known, with their least latency, before any at two. */
#include "core/topology.h"

#include "core/arena.h"

struct stop { /* what is known of a switch in one search */
    int64_t search;
    int32_t hops, from, link; /* from: switch before it, -1: the device; link that led here */
    double latency_s;
};

struct topology {
    struct arena *arena;
    const struct cluster *cluster;
    /* Links that end at a switch, by each of their ends, in the order of the file: of vertex v
     * links[first[v]] … links[first[v + 1] - 1]. Vertices: switches, then devices, then nodes. */
    int32_t *first, *links;
    int64_t searches;
    struct stop *stops; /* (n_switches) */
    int32_t *queue;
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

struct topology *topology_new(struct arena *a, const struct cluster *c)
{
    struct topology *t = ARENA_ARRAY(a, struct topology, 1);
    *t = (struct topology){.arena = a, .cluster = c};
    if (!c->n_switches) return t;
    size_t n = (size_t)c->n_switches + (size_t)c->n_devices + (size_t)c->n_nodes;
    t->first = ARENA_ARRAY(a, int32_t, n + 2);
    t->links = ARENA_ARRAY(a, int32_t, 2 * (size_t)c->n_links);
    t->stops = ARENA_ARRAY(a, struct stop, (size_t)c->n_switches);
    t->queue = ARENA_ARRAY(a, int32_t, (size_t)c->n_switches);
    /* Counted two places ahead, so that filling leaves first[] where it belongs. */
    for (int32_t i = 0; i < c->n_links; i++)
        for (int e = 0; is_switched(&c->links[i]) && e < 2; e++)
            t->first[vertex(c, c->links[i].kind[e], c->links[i].end[e]) + 2]++;
    for (size_t v = 2; v < n + 2; v++) t->first[v] += t->first[v - 1];
    for (int32_t i = 0; i < c->n_links; i++)
        for (int e = 0; is_switched(&c->links[i]) && e < 2; e++)
            t->links[t->first[vertex(c, c->links[i].kind[e], c->links[i].end[e]) + 1]++] = i;
    return t;
}

struct search {
    struct topology *t;
    int32_t count;            /* of the queue */
    int32_t vertex[2]; /* where to: the device, and its node */
    struct stop best;         /* the end; hops 0: not reached */
};

/* The end of a link that is not this vertex. */
static int other_end(const struct cluster *c, const struct link *l, int32_t v)
{
    return vertex(c, l->kind[0], l->end[0]) == v;
}

static bool better(const struct stop *s, int32_t hops, double latency_s)
{
    return !s->hops || hops < s->hops || (hops == s->hops && latency_s < s->latency_s);
}

/* Over one link from switch `from` (-1: the device it begins at, or its node), which is vertex v. */
static void cross(struct search *x, int32_t link, int32_t v, int32_t from)
{
    struct topology *t = x->t;
    const struct cluster *c = t->cluster;
    const struct link *l = &c->links[link];
    int e = other_end(c, l, v);
    int32_t to = vertex(c, l->kind[e], l->end[e]), hops = 1;
    double latency_s = l->latency_s;
    if (from >= 0) hops += t->stops[from].hops, latency_s += t->stops[from].latency_s;
    struct stop next = {t->searches, hops, from, link, latency_s};
    if (l->kind[e] != END_SWITCH) {
        if ((to == x->vertex[0] || to == x->vertex[1]) && better(&x->best, hops, latency_s))
            x->best = next;
        return;
    }
    struct stop *s = &t->stops[to];
    if (s->search != t->searches)
        t->queue[x->count++] = to;
    else if (!better(s, hops, latency_s))
        return;
    *s = next;
}

/* The links of the first device and of its node, in the order of the file. */
static void leave(struct search *x, int32_t device)
{
    const struct topology *t = x->t;
    const struct cluster *c = t->cluster;
    int32_t own = vertex(c, END_DEVICE, device), node = vertex(c, END_NODE, c->devices[device].node);
    int32_t i = t->first[own], j = t->first[node];
    while (i < t->first[own + 1] || j < t->first[node + 1]) {
        bool of_own = j == t->first[node + 1] ||
                      (i < t->first[own + 1] && t->links[i] < t->links[j]);
        if (of_own)
            cross(x, t->links[i++], own, -1);
        else
            cross(x, t->links[j++], node, -1);
    }
}

static void trace_back(const struct search *x, struct route *out)
{
    const struct topology *t = x->t;
    const struct cluster *c = t->cluster;
    const struct stop *s = &x->best;
    out->n_hops = s->hops;
    out->link = ARENA_ARRAY(t->arena, int32_t, (size_t)s->hops);
    out->towards = ARENA_ARRAY(t->arena, int32_t, (size_t)s->hops);
    for (int32_t i = s->hops; i-- > 0; s = &t->stops[s->from]) {
        const struct link *l = &c->links[s->link];
        out->link[i] = s->link;
        /* Into the switch before it where the way begins: from -1 means that end 1 or 0 is the device. */
        int32_t before = s->from;
        out->towards[i] = before >= 0 ? other_end(c, l, before) == 0 : l->kind[0] == END_SWITCH;
        if (before < 0) break;
    }
}

static bool through_switches(struct topology *t, int32_t from, int32_t to, struct route *out)
{
    const struct cluster *c = t->cluster;
    struct search x = {.t = t,
                       .vertex = {vertex(c, END_DEVICE, to),
                                  vertex(c, END_NODE, c->devices[to].node)}};
    t->searches++;
    leave(&x, from);
    for (int32_t i = 0; i < x.count; i++) {
        int32_t s = t->queue[i];
        if (x.best.hops && t->stops[s].hops >= x.best.hops) break;
        for (int32_t k = t->first[s]; k < t->first[s + 1]; k++) cross(&x, t->links[k], s, s);
    }
    if (!x.best.hops) return false;
    trace_back(&x, out);
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

bool topology_route(struct topology *t, int32_t from, int32_t to, struct route *out)
{
    int32_t direction, link = cluster_link(t->cluster, from, to, &direction);
    if (link >= 0) {
        *out = (struct route){1, ARENA_ARRAY(t->arena, int32_t, 1), ARENA_ARRAY(t->arena, int32_t, 1)};
        *out->link = link;
        *out->towards = direction;
        return true;
    }
    if (from == to || !t->cluster->n_switches) return false;
    if (!through_switches(t, from < to ? from : to, from < to ? to : from, out)) return false;
    if (from > to) turn_round(out);
    return true;
}
