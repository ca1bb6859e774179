/* core/cluster/find.c - look-ups in a cluster. */
#include "core/cluster/internal.h"

#include <string.h>

const char *cluster_link_end(const struct cluster *c, const struct link *l, int i)
{
    if (link_of_every_pair(l)) return l->kind[i] == END_ACROSS ? "across" : "inside";
    return l->kind[i] == END_DEVICE   ? c->devices[l->end[i]].name
           : l->kind[i] == END_SWITCH ? c->switches[l->end[i]]
                                      : c->nodes[l->end[i]].name;
}

bool cluster_has_dedicated_links(const struct cluster *c)
{
    for (int32_t i = 0; i < c->n_links; i++)
        if (!link_of_every_pair(&c->links[i])) return false;
    return true;
}

int cluster_link_fit(const struct cluster *c, const struct link *l, int32_t from, int32_t to,
                     int32_t *direction)
{
    int32_t a = c->devices[from].node, b = c->devices[to].node;
    if (l->kind[0] == END_SWITCH || l->kind[1] == END_SWITCH) return 0;
    if (l->n_ends < 2) *direction = from > to;
    if (link_of_every_pair(l)) return (a == b) == (l->kind[0] == END_INSIDE);
    if (l->n_ends == 1) return a == b && a == l->end[0] ? 2 : 0;
    if (l->kind[0] == END_DEVICE) a = from, b = to;
    *direction = a != l->end[0];
    bool joins = (a == l->end[0] && b == l->end[1]) || (a == l->end[1] && b == l->end[0]);
    return !joins ? 0 : l->kind[0] == END_DEVICE ? 4 : 3;
}

int32_t cluster_most_on_node(const struct cluster *c, int32_t type)
{
    int32_t most = 0;
    for (int32_t n = 0; n < c->n_nodes; n++) {
        int32_t here = 0;
        for (int32_t d = 0; d < c->nodes[n].n_devices; d++)
            here += c->devices[c->nodes[n].first_device + d].type == type;
        if (here > most) most = here;
    }
    return most;
}

int32_t cluster_link(const struct cluster *c, int32_t from, int32_t to, int32_t *direction)
{
    int32_t best = -1, towards = 0;
    int best_fit = 0;
    *direction = 0;
    if (from == to) return -1;
    for (int32_t i = 0; i < c->n_links; i++) {
        int f = cluster_link_fit(c, &c->links[i], from, to, &towards);
        if (f <= best_fit) continue;
        best = i;
        best_fit = f;
        *direction = towards;
    }
    return best;
}

static bool is_named(const char *known, const char *name, size_t length)
{
    return !strncmp(known, name, length) && !known[length];
}

/* FNV-1a (Fowler, Noll, Vo 1991). */
static uint32_t hash(const char *name, size_t length)
{
    uint32_t h = 2166136261U;
    for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)name[i]) * 16777619U;
    return h;
}

static void index_name(struct cluster *c, const char *name, int32_t value)
{
    uint32_t at = hash(name, strlen(name));
    while (c->places[at & (uint32_t)(c->n_places - 1)]) at++;
    c->places[at & (uint32_t)(c->n_places - 1)] = value;
}

void cluster_index_names(struct arena *a, struct cluster *c)
{
    c->n_places = 16;
    while (c->n_places < 2 * (c->n_nodes + c->n_switches)) c->n_places *= 2;
    c->places = ARENA_ARRAY(a, int32_t, (size_t)c->n_places);
    for (int32_t i = 0; i < c->n_nodes; i++) index_name(c, c->nodes[i].name, i + 1);
    for (int32_t i = 0; i < c->n_switches; i++) index_name(c, c->switches[i], -i - 1);
}

bool cluster_indexed(const struct cluster *c, const char *name, size_t length, enum link_end *kind,
                     int32_t *out)
{
    uint32_t at = c->n_places ? hash(name, length) : 0;
    for (int32_t k; c->n_places && (k = c->places[at & (uint32_t)(c->n_places - 1)]); at++) {
        *kind = k > 0 ? END_NODE : END_SWITCH;
        *out = k > 0 ? k - 1 : -k - 1;
        if (*out >= (k > 0 ? c->n_nodes : c->n_switches)) continue;
        if (is_named(k > 0 ? c->nodes[*out].name : c->switches[*out], name, length)) return true;
    }
    return false;
}

int32_t cluster_node(const struct cluster *c, const char *name, size_t length)
{
    enum link_end kind;
    int32_t at;
    if (cluster_indexed(c, name, length, &kind, &at) && kind == END_NODE) return at;
    for (int32_t i = 0; i < c->n_nodes; i++)
        if (is_named(c->nodes[i].name, name, length)) return i;
    return -1;
}

int32_t cluster_device(const struct cluster *c, const char *name)
{
    int32_t node = cluster_node(c, name, strcspn(name, "."));
    if (node < 0) return -1;
    const struct node_spec *at = &c->nodes[node];
    for (int32_t i = at->first_device; i < at->first_device + at->n_devices; i++)
        if (!strcmp(c->devices[i].name, name)) return i;
    return -1;
}

static bool same_rates(const struct device_rates *x, const struct device_rates *y)
{
    for (int p = 0; p < DEVICE_PEAK_COUNT; p++)
        if (x->peak_flops[p] != y->peak_flops[p]) return false;
    return x->memory_Bps == y->memory_Bps && x->power_w == y->power_w;
}

bool cluster_same_type(const struct device_type *x, const struct device_type *y)
{
    return !strcmp(x->catalogue, y->catalogue) && x->slowdown == y->slowdown &&
           x->multiprocessors == y->multiprocessors && x->memory_bytes == y->memory_bytes &&
           x->reserve_bytes == y->reserve_bytes && x->parameter_copies == y->parameter_copies && x->offloads == y->offloads &&
           x->offloads_activations == y->offloads_activations && x->host_Bps == y->host_Bps &&
           x->priced == y->priced && x->price_per_h == y->price_per_h && same_rates(&x->stated, &y->stated);
}
