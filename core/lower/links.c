/* core/lower/links.c - devices and links of the cluster in a program's form, with routes over several links as additional links.
 *
 * The cluster's links keep their indices; after them, each communicating pair of devices has one route through switches, or its own
 * instance of an `every` link, direction 0 from the device with the lower index.
 */
#include "core/lower/links.h"

#include "core/lower/lowering.h"

#include "core/cluster/topology.h"

#include <string.h>

struct links {
    struct arena *a;
    const struct cluster *c;
    struct program *p;
    struct topology *topology;
    size_t capacity; /* of the program's links */
    int32_t n,
        *slots; /* link of each known pair, or -1: open hash of a power of two, at most half full */
    int32_t n_slots;
    int32_t (*pair)[2]; /* (n) devices; the k-th pair's route or instance is link c->n_links + k */
    size_t pair_capacity;
    int32_t *least; /* (n_layers) least_degree, 0: not known yet; NULL: of no layer */
};

struct program_device lower_device(const struct cluster *c, int32_t device)
{
    const struct device *d = &c->devices[device];
    const struct device_type *t = &c->types[d->type];
    return (struct program_device){.name = d->name,
                                   .type = t->name,
                                   .host = c->nodes[d->node].host,
                                   .kind = t->backend ? t->backend : t->catalogue,
                                   .gpu = t->catalogue,
                                   .index = d->index,
                                   .type_index = d->type,
                                   .slowdown = t->slowdown,
                                   .memory_bytes = t->memory_bytes,
                                   .multiprocessors = t->multiprocessors,
                                   .host_Bps = t->host_Bps};
}

static struct program_link link_of(const struct cluster *c, int32_t link)
{
    const struct link *k = &c->links[link];
    return (struct program_link){.name = k->name,
                                 .bandwidth_Bps = k->bandwidth_Bps,
                                 .latency_s = k->latency_s,
                                 .half_duplex = k->half_duplex,
                                 .emulated = c->emulated,
                                 .sharing = (int32_t)k->sharing,
                                 .compute_slowdown = k->compute_slowdown,
                                 .max_ctas = k->max_ctas,
                                 .net_name = k->net_name};
}

struct program_link *lower_cluster_links(struct arena *a, const struct cluster *c)
{
    struct program_link *links = ARENA_ARRAY(a, struct program_link, (size_t)c->n_links);
    for (int32_t i = 0; i < c->n_links; i++) links[i] = link_of(c, i);
    return links;
}

struct links *links_new(struct arena *a, const struct cluster *c, struct program *p)
{
    struct links *k = ARENA_ARRAY(a, struct links, 1);
    p->n_links = c->n_links;
    p->links = lower_cluster_links(a, c);
    *k = (struct links){
        .a = a, .c = c, .p = p, .topology = topology_new(a, c), .capacity = (size_t)c->n_links};
    return k;
}

static int32_t *slot_of(const struct links *r, int32_t low, int32_t high)
{
    uint64_t at = ((uint64_t)low << 32 | (uint32_t)high) * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (;; at++) {
        int32_t *slot = &r->slots[at & (uint64_t)(r->n_slots - 1)];
        if (*slot < 0 || (r->pair[*slot][0] == low && r->pair[*slot][1] == high)) return slot;
    }
}

static void grow(struct links *r)
{
    r->n_slots = r->n_slots ? 2 * r->n_slots : 64;
    r->slots = ARENA_ARRAY(r->a, int32_t, (size_t)r->n_slots);
    memset(r->slots, -1, sizeof *r->slots * (size_t)r->n_slots);
    for (int32_t i = 0; i < r->n; i++) *slot_of(r, r->pair[i][0], r->pair[i][1]) = i;
}

/* "up+core+down", shortened to stay readable. */
static const char *name_of(const struct links *r, const struct route *route)
{
    const struct link *links = r->c->links;
    const char *name = links[route->link[0]].name;
    for (int32_t i = 1; i < route->n_hops; i++)
        name =
            strlen(name) > 80 ? name : arena_printf(r->a, "%s+%s", name, links[route->link[i]].name);
    return name;
}

struct ends { /* GPUs of the stages at both ends of a message, and how many of them send at once */
    int32_t gpus[2], at_once;
};

/* Two devices' instance of an `every` link; equal for all pairs of their types. */
static void make_pair(const struct links *r, int32_t low, int32_t high, int32_t of, bool ascends,
                      const struct ends *ends, struct program_link *out)
{
    const struct cluster *c = r->c;
    const struct device *a = &c->devices[low], *b = &c->devices[high];
    *out = link_of(c, of);
    out->name = arena_printf(r->a, "%s:%s-%s", out->name, a->name, b->name);
    out->paired = true, out->of = of, out->type[0] = a->type, out->type[1] = b->type;
    out->gpus[0] = ends->gpus[!ascends], out->gpus[1] = ends->gpus[ascends];
    out->gpus_at_once = ends->at_once;
}

static bool make_route(const struct links *r, int32_t low, int32_t high, struct program_link *out)
{
    const struct cluster *c = r->c;
    struct route route;
    if (!c->n_switches || !topology_route(r->topology, low, high, &route)) return false;
    *out = (struct program_link){.name = name_of(r, &route),
                                 .emulated = c->emulated,
                                 .sharing = LINK_FAIR,
                                 .n_hops = route.n_hops,
                                 .hop = route.link,
                                 .hop_direction = route.towards,
                                 .ends = {c->devices[low].name, c->devices[high].name}};
    bool clash = false;
    for (int32_t i = 0; i < route.n_hops; i++) {
        const struct link *hop = &c->links[route.link[i]];
        if (hop->compute_slowdown > out->compute_slowdown)
            out->compute_slowdown = hop->compute_slowdown;
        link_nccl_join(hop->max_ctas, hop->net_name, &out->max_ctas, &out->net_name, &clash);
    }
    if (clash) out->net_name = NULL;
    return true;
}

/* The pair's own link after the cluster's: an instance of the cluster's link `of`, or a route if that is -1. */
static bool pair_link(struct links *r, int32_t from, int32_t to, int32_t of,
                      const struct ends *ends, int32_t *link)
{
    struct program *p = r->p;
    struct program_link made;
    if (2 * r->n >= r->n_slots) grow(r);
    int32_t low = from < to ? from : to, high = from < to ? to : from;
    int32_t *slot = slot_of(r, low, high), known = *slot;
    *link = r->c->n_links + known;
    if (known >= 0) return true;
    if (of >= 0)
        make_pair(r, low, high, of, from == low, ends, &made);
    else if (!make_route(r, low, high, &made))
        return false;
    r->pair = arena_grow(r->a, r->pair, (size_t)r->n, &r->pair_capacity, sizeof *r->pair);
    r->pair[r->n][0] = low, r->pair[r->n][1] = high;
    *slot = r->n++;
    p->links = arena_grow(r->a, p->links, (size_t)p->n_links, &r->capacity, sizeof *p->links);
    *link = p->n_links++;
    p->links[*link] = made;
    return true;
}

static int32_t degree_of(const struct stage_build *b)
{
    return b->plan->sharding ? b->n_shards : 1;
}

/* The fewest devices on which a replica has the layer. */
static int32_t least_degree(struct lowering *l, int32_t layer)
{
    struct links *k = l->links;
    if (!k->least) k->least = ARENA_ARRAY(k->a, int32_t, (size_t)l->n_layers);
    for (int32_t r = 0; r < l->plan->n_replicas && (r || !k->least[layer]); r++) {
        int32_t n = degree_of(&l->stages[lower_owner(l, r, layer)]);
        if (!r || n < k->least[layer]) k->least[layer] = n;
    }
    return k->least[layer];
}

/* Of measured layers only, whose links are curves by the number of GPUs: the GPUs of a stage send parts of a tensor
 * (core/lower/channels.c). Of gradients as many devices as have the largest shard add theirs up at a time, because each adds up one
 * intersection of shards after the other (core/lower/cells.c), and share the bandwidth of all GPUs of the stage. */
static struct ends ends_of(struct lowering *l, const struct stage_build *from,
                           const struct stage_build *to)
{
    struct ends e = {{1, 1}, 1};
    if (!l->plan->job.model.measured) return e;
    e.gpus[0] = degree_of(from), e.gpus[1] = degree_of(to);
    int32_t a = from->plan->first_layer, b = to->plan->first_layer;
    e.at_once = from->replica != to->replica ? least_degree(l, a > b ? a : b)
                : e.gpus[0] < e.gpus[1]      ? e.gpus[0]
                                             : e.gpus[1];
    return e;
}

enum status lower_link(struct lowering *l, const struct stage_build *from,
                       const struct stage_build *to, int32_t *link, int32_t *direction,
                       struct error *err)
{
    const struct cluster *c = &l->plan->cluster;
    int32_t a = from->device, b = to->device;
    *link = topology_direct(l->links->topology, a, b, direction);
    bool every = *link >= 0 && link_of_every_pair(&c->links[*link]);
    if (*link >= 0 && !every) return OK;
    struct ends ends = ends_of(l, from, to);
    if (!every) *direction = a > b;
    if (a != b && pair_link(l->links, a, b, *link, &ends, link)) return OK;
    return lower_error(l, from, err, ERR_INPUT,
                       c->n_switches ? "no route from %s to %s" : "no link from %s to %s",
                       c->devices[a].name, c->devices[b].name);
}

bool lower_blocking(const struct lowering *l, int32_t link)
{
    const struct cluster *c = &l->plan->cluster;
    const struct program_link *k = &l->p->links[link];
    bool any =
        (link < c->n_links && c->links[link].blocking) || (k->paired && c->links[k->of].blocking);
    for (int32_t i = 0; i < k->n_hops; i++) any |= c->links[k->hop[i]].blocking;
    return any;
}
