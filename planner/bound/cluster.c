#include "planner/bound/cluster.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "planner/bound/kept.h"

#include <math.h>
#include <string.h>

enum {
    LEVELS_MAX = 32,
    CLUSTER_CUTS_MAX = 256,
    KINDS_MAX = 64 /* of parts; a family with more is left out */
};

/* --- offers --- */

static int32_t largest_power_below(int32_t n)
{
    int32_t power = 1;
    while (2 * power < n) power *= 2;
    return power;
}

/* Last layer of a run before one that uses a parameter again. */
static int32_t end_of_first_uses(const struct space *s, int32_t type, int32_t first, int32_t last)
{
    int64_t sum = 0;
    for (int32_t l = first; l <= last; l++) {
        sum += space_stage_type(s, type, l, l)->parameter_bytes;
        if (space_stage_type(s, type, first, l)->parameter_bytes < sum) return l - 1;
    }
    return last;
}

/* Forward, input and weight times of a stage are sums over its layers (sim/stage/stage.h). Updates are not, because tied
 * parameters are updated once and one operator over many parameters is faster than many. The scale is the minimum of (update
 * of a run of layers) ÷ (sum of their updates) over all layers and over runs of 2^k that overlap by half; the run of all
 * layers is the minimum if the cost per byte does not grow with size. Of a run that uses a parameter twice its beginning up to
 * the second use counts, because replicas that divide the gradients do not add those of both uses in the update. */
static double shrink_of(const struct space *s, int32_t type)
{
    double least = 1;
    for (int32_t n = s->n_layers; n > 1; n = n == s->n_layers ? largest_power_below(n) : n / 2)
        for (int32_t first = 0; first + n <= s->n_layers; first += n / 2) {
            int32_t end = end_of_first_uses(s, type, first, first + n - 1);
            double sum = 0, all = (double)space_stage_type(s, type, first, end)->update_ns;
            for (int32_t l = first; l < first + n; l++)
                sum += (double)space_stage_type(s, type, l, l)->update_ns;
            if (all < least * sum) least = all / sum;
        }
    return least;
}

/* Whether a device of the type can hold the layer: its parameters must be complete during computation even under ZeRO.
 * Activations are ignored, because their least size depends on recomputation. */
static bool may_hold(const struct space *s, int32_t type, const struct stage_cost *c)
{
    return c->parameter_bytes <= s->cluster->types[type].memory_bytes;
}

/* Whether some parameter is used in several layers. */
static bool is_tied(const struct space *s, int32_t type)
{
    int64_t sum = 0;
    for (int32_t l = 0; l < s->n_layers; l++)
        sum += space_stage_type(s, type, l, l)->parameter_bytes;
    return sum > space_stage_type(s, type, 0, s->n_layers - 1)->parameter_bytes;
}

/* Bytes of the parameters that no layer before uses. */
static int64_t new_bytes(const struct space *s, int32_t type, int32_t layer)
{
    int64_t with = space_stage_type(s, type, 0, layer)->parameter_bytes;
    return layer ? units_max(0, with - space_stage_type(s, type, 0, layer - 1)->parameter_bytes)
                 : with;
}

/* samples: of the offers; the space's microbatch, or 1: one sample's fraction of it. */
static void offer_as(struct bound_any *b, const struct space *s, int64_t samples, const int32_t *tp,
                     const int32_t *device_class)
{
    double part = (double)samples / (double)s->microbatch;
    for (int32_t t = 0; t < s->n_types; t++) {
        if (tp && !tp[t]) continue;
        double shrink = shrink_of(s, t);
        bool tied = is_tied(s, t);
        for (int32_t l = 0; l < s->n_layers; l++) {
            const struct stage_cost *c = space_stage_type(s, t, l, l);
            int64_t own = tied ? new_bytes(s, t, l) : c->parameter_bytes;
            double out = l + 1 < s->n_layers ? (double)s->cut_bytes[l] / (double)s->microbatch : 0;
            /* collectives with a price are on no link */
            bound_any_traffic(b, l, cost_prices_collectives(s->cost) ? 0 : (double)own, out);
            if (!bound_any_is_sharded(b) && !may_hold(s, t, c)) continue;
            bound_any_offer(b, device_class ? device_class[t] : t, l,
                            &(struct bound_offer){
                                tp ? tp[t] : 1, samples, part * (double)c->forward_ns,
                                part * (double)c->input_least_ns, part * (double)c->weight_least_ns,
                                shrink * (double)c->update_ns, part * (double)c->recompute_ns});
        }
    }
}

/* A stage on several devices divides a microbatch down to one sequence per device. Fewer sequences take no longer in total
 * and no less per sequence, so only the extremes matter. If a single sequence has no price, its fraction of the microbatch's
 * price is used, which is a lower bound. Measured layers are never divided. */
static void offer_shares(struct bound_any *b, const struct space *s, const int32_t *tp,
                         const int32_t *device_class)
{
    struct space one;
    struct error why;
    if (s->job->model.measured || bound_any_fewest(b) <= 1) return;
    if (space_make_on(s->arena, s->job, s->cluster, s->cost, s->devices, 1, s->lower, &one, &why) ==
        OK)
        offer_as(b, &one, 1, tp, device_class);
    else
        offer_as(b, s, 1, tp, device_class);
}

void bound_cluster_offer(struct bound_any *b, const struct space *s, const int32_t *tp,
                         const int32_t *device_class)
{
    offer_as(b, s, s->microbatch, tp, device_class);
    offer_shares(b, s, tp, device_class);
    bound_any_size(b, s->microbatch);
    struct arena *scratch = arena_new();
    struct bound_kept *kept = ARENA_ARRAY(scratch, struct bound_kept, (size_t)s->n_layers);
    bool known = bound_kept_of(scratch, s, kept);
    for (int32_t l = 0; known && l < s->n_layers; l++)
        bound_any_kept(b, l, kept[l].kept_bytes, kept[l].state_bytes);
    arena_free(scratch);
}

/* Types that have devices: others are groups of GPUs. */
static void offer_types(struct bound_any *b, const struct cluster *c, const struct space *s)
{
    struct arena *scratch = arena_new();
    int32_t *one = ARENA_ARRAY(scratch, int32_t, (size_t)s->n_types);
    int32_t *type = ARENA_ARRAY(scratch, int32_t, (size_t)s->n_types);
    for (int32_t d = 0; d < c->n_devices; d++)
        one[c->devices[d].type] = 1, type[c->devices[d].type] = c->devices[d].type;
    bound_cluster_offer(b, s, one, type);
    arena_free(scratch);
}

/* --- cuts --- */

struct edge {
    int32_t end[2], link; /* vertices: nodes, then switches */
    double Bps;           /* in both directions together */
};
struct cutter {
    struct arena *arena;
    struct bound_any *bound;
    const struct cluster *c;
    int32_t n_vertices, n_edges, n_cuts;
    struct edge *edges; /* fastest first */
    int64_t *devices;   /* (n_vertices, n_types) */
    uint64_t *seen;     /* (CLUSTER_CUTS_MAX) hashes of the cuts added */
};

static int32_t vertex_of(const struct cluster *c, const struct link *l, int end)
{
    if (l->kind[end] == END_SWITCH) return c->n_nodes + l->end[end];
    return l->kind[end] == END_DEVICE ? c->devices[l->end[end]].node : l->end[end];
}

static double fastest(const struct cost_link *l)
{
    double Bps = l->bandwidth_Bps;
    for (int i = 0; l->curve && i < l->curve->n_points; i++)
        Bps = fmax(Bps, l->curve->points[i].Bps);
    return Bps;
}

/* Shellsort: fastest first, ties in the order of the file. */
static void sort_edges(struct edge *e, int32_t n)
{
    for (int32_t gap = n / 2; gap > 0; gap /= 2)
        for (int32_t i = gap; i < n; i++) {
            struct edge x = e[i];
            int32_t j = i;
            for (; j >= gap && (e[j - gap].Bps < x.Bps ||
                                (e[j - gap].Bps == x.Bps && e[j - gap].link > x.link));
                 j -= gap)
                e[j] = e[j - gap];
            e[j] = x;
        }
}

static enum status find_edges(struct cutter *k, struct cost *cost, struct error *err)
{
    const struct cluster *c = k->c;
    k->edges = ARENA_ARRAY(k->arena, struct edge, (size_t)c->n_links);
    for (int32_t i = 0; i < c->n_links; i++) {
        const struct link *l = &c->links[i];
        if (l->n_ends < 2) continue;
        int32_t a = vertex_of(c, l, 0), b = vertex_of(c, l, 1);
        if (a == b) continue;
        struct cost_link price;
        TRY(cost_link(cost, i, &price, err));
        k->edges[k->n_edges++] =
            (struct edge){{a, b}, i, fastest(&price) * (l->half_duplex ? 1 : 2)};
    }
    sort_edges(k->edges, k->n_edges);
    return OK;
}

/* Per part: total bandwidth to the rest, and its devices. */
struct part {
    int64_t *count; /* (n_types) */
    int64_t devices;
    double Bps;
    int32_t links, first; /* first: fastest link that leaves it, -1 */
};

/* member: (n_vertices) part of each vertex. */
static struct part *parts_of(struct cutter *k, const int32_t *member, int32_t n)
{
    struct part *parts = ARENA_ARRAY(k->arena, struct part, (size_t)n);
    int32_t types = k->c->n_types;
    for (int32_t i = 0; i < n; i++) {
        parts[i].count = ARENA_ARRAY(k->arena, int64_t, (size_t)types);
        parts[i].first = -1;
    }
    for (int32_t v = 0; v < k->n_vertices; v++) {
        struct part *p = &parts[member[v]];
        for (int32_t t = 0; t < types; t++) {
            p->count[t] += k->devices[(int64_t)v * types + t];
            p->devices += k->devices[(int64_t)v * types + t];
        }
    }
    for (int32_t e = 0; e < k->n_edges; e++) {
        const struct edge *x = &k->edges[e];
        int32_t end[2] = {member[x->end[0]], member[x->end[1]]};
        for (int side = 0; side < 2 && end[0] != end[1]; side++) {
            struct part *p = &parts[end[side]];
            p->Bps += x->Bps;
            if (!p->links++) p->first = x->link;
        }
    }
    return parts;
}

static const char *name_of(const struct cutter *k, const struct part *p)
{
    const char *link = p->first < 0 ? "no link" : arena_printf(k->arena, "bandwidth of link %s", k->c->links[p->first].name);
    const char *more =
        p->links > 1 ? arena_printf(k->arena, " and %d more", (int)p->links - 1) : "";
    return arena_printf(k->arena, "%s%s, between %lld device%s and the other %lld", link, more,
                        (long long)p->devices, p->devices == 1 ? "" : "s",
                        (long long)(k->c->n_devices - p->devices));
}

/* All parts with devices at once; equal ones are one kind. */
static void take_family(struct cutter *k, const struct part *parts, int32_t n)
{
    int32_t kinds = 0;
    int64_t all = 0;
    struct bound_any_part *kind = ARENA_ARRAY(k->arena, struct bound_any_part, KINDS_MAX);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = (size_t)k->c->n_types * sizeof *parts[i].count;
        int32_t g = 0;
        if (!parts[i].devices) continue;
        while (g < kinds &&
               (kind[g].Bps != parts[i].Bps || memcmp(kind[g].count, parts[i].count, bytes)))
            g++;
        if (g == KINDS_MAX) return;
        if (g == kinds) kind[kinds++] = (struct bound_any_part){parts[i].count, parts[i].Bps, 0};
        kind[g].times++, all++;
    }
    if (all > 1)
        bound_any_parts(
            k->bound, kind, kinds,
            arena_printf(k->arena, "messages between %lld groups of devices", (long long)all));
}

static void take_cuts(struct cutter *k, const struct part *parts, int32_t n)
{
    for (int32_t i = 0; i < n && k->n_cuts < CLUSTER_CUTS_MAX; i++) {
        const struct part *p = &parts[i];
        if (!p->devices || p->devices == k->c->n_devices) continue;
        uint64_t key = rng_hash_bytes(1, p->count, (size_t)k->c->n_types * sizeof *p->count);
        key = rng_hash_bytes(key, &p->Bps, sizeof p->Bps);
        int32_t seen = 0;
        while (seen < k->n_cuts && k->seen[seen] != key) seen++;
        if (seen < k->n_cuts) continue;
        k->seen[k->n_cuts++] = key;
        bound_any_cut(k->bound, p->count, p->Bps, name_of(k, p));
    }
}

/* Disjoint sets of vertices: the representative of a vertex's set. */
static int32_t root_of(int32_t *up, int32_t v)
{
    while (up[v] != v) v = up[v] = up[up[v]];
    return v;
}

/* The parts that the links joined so far leave. */
static void take_components(struct cutter *k, int32_t *up)
{
    int32_t n = 0, *member = ARENA_ARRAY(k->arena, int32_t, (size_t)k->n_vertices);
    for (int32_t v = 0; v < k->n_vertices; v++)
        if (up[v] == v) member[v] = n++;
    for (int32_t v = 0; v < k->n_vertices; v++) member[v] = member[root_of(up, v)];
    struct part *parts = parts_of(k, member, n);
    take_family(k, parts, n);
    take_cuts(k, parts, n);
}

/* Components connected by links of at least some bandwidth, per bandwidth level; if there are too many levels, evenly spaced
 * ones (Kruskal 1956). */
static void take_levels(struct cutter *k)
{
    int32_t levels = 1, level = 0, *up = ARENA_ARRAY(k->arena, int32_t, (size_t)k->n_vertices);
    for (int32_t v = 0; v < k->n_vertices; v++) up[v] = v;
    for (int32_t e = 1; e < k->n_edges; e++) levels += k->edges[e].Bps != k->edges[e - 1].Bps;
    int32_t stride = (levels + LEVELS_MAX - 1) / LEVELS_MAX;
    for (int32_t e = 0; e <= k->n_edges; e++) { /* the first: no links at all, every vertex alone */
        bool ends = e == k->n_edges || e == 0 || k->edges[e].Bps != k->edges[e - 1].Bps;
        if (ends && level++ % stride == 0) take_components(k, up);
        if (e < k->n_edges)
            up[root_of(up, k->edges[e].end[0])] = root_of(up, k->edges[e].end[1]);
    }
}

enum status bound_cluster_cuts(struct arena *a, struct bound_any *b, const struct cluster *c,
                               struct cost *cost, struct error *err)
{
    struct cutter k = {.arena = a, .bound = b, .c = c, .n_vertices = c->n_nodes + c->n_switches};
    if (k.n_vertices < 2) return OK;
    /* With dedicated links between every two devices no cut binds. */
    for (int32_t i = 0; i < c->n_links; i++)
        if (link_of_every_pair(&c->links[i])) return OK;
    TRY(find_edges(&k, cost, err));
    k.devices = ARENA_ARRAY(a, int64_t, (size_t)k.n_vertices * (size_t)c->n_types);
    k.seen = ARENA_ARRAY(a, uint64_t, CLUSTER_CUTS_MAX);
    for (int32_t d = 0; d < c->n_devices; d++)
        k.devices[(int64_t)c->devices[d].node * c->n_types + c->devices[d].type]++;
    take_levels(&k);
    return OK;
}

void bound_cluster_prices(struct bound_any *b, const struct cluster *c, double most_ns)
{
    struct arena *scratch = arena_new();
    double *price = ARENA_ARRAY(scratch, double, (size_t)c->n_types), any = 0;
    for (int32_t t = 0; t < c->n_types; t++) {
        price[t] = c->types[t].price_per_h;
        any += price[t];
    }
    if (any > 0) bound_any_prices(b, price, most_ns);
    arena_free(scratch);
}

/* Sharded stages may extend over all types of a node, or of the cluster. */
static void take_memory(struct bound_any *b, const struct cluster *c, enum bound_stages stages)
{
    struct arena *scratch = arena_new();
    double *bytes = ARENA_ARRAY(scratch, double, (size_t)c->n_types);
    int32_t *pool = ARENA_ARRAY(scratch, int32_t, (size_t)c->n_types);
    bool one = stages == BOUND_STAGES_ANY;
    for (int32_t d = 1; d < c->n_devices && stages == BOUND_STAGES_ON_NODE; d++)
        one |= c->devices[d].node == c->devices[d - 1].node &&
               c->devices[d].type != c->devices[d - 1].type;
    for (int32_t t = 0; t < c->n_types; t++) {
        const struct device_type *x = &c->types[t];
        bytes[t] = (double)(x->memory_bytes - device_type_reserve(x));
        pool[t] = one ? 0 : t;
    }
    bound_any_memory(b, bytes, pool);
    arena_free(scratch);
}

enum status bound_cluster(struct arena *a, const struct cluster *c, struct cost *k,
                          const struct space *const *spaces, int32_t n, enum bound_stages stages,
                          double most_ns, struct bound_certificate *out, struct error *err)
{
    int64_t *count = ARENA_ARRAY(a, int64_t, (size_t)c->n_types), on_node = 1;
    for (int32_t d = 0; d < c->n_devices; d++) count[c->devices[d].type]++;
    for (int32_t i = 0; i < c->n_nodes; i++) on_node = units_max(on_node, c->nodes[i].n_devices);
    struct bound_any *b =
        bound_any_new(a, spaces[0]->n_layers, c->n_types, count, spaces[0]->job->global_batch);
    bound_any_sharded(b, stages, stages == BOUND_STAGES_ANY ? c->n_devices : on_node);
    for (int32_t i = 0; i < n; i++) offer_types(b, c, spaces[i]);
    TRY(bound_cluster_cuts(a, b, c, k, err));
    bound_cluster_prices(b, c, most_ns);
    take_memory(b, c, stages);
    return bound_any_solve(b, out, err);
}
