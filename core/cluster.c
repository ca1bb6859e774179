/* core/cluster.c - cluster.yaml to struct cluster and back.
 *
 * Names of types, nodes and links have no dots, so "a.0" splits at its one dot and finding a device
 * asks only the devices of its node. Everything that contradicts itself is refused here, at the
 * place in the file, so that nobody behind this door checks again. What one file alone cannot tell
 * (is the catalogue's id known, has the machine that memory) is left to who knows.
 */
#include "core/cluster.h"

#include "core/arena.h"
#include "core/canonical.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { DEVICES_MAX = 65536, SWITCHES_MAX = 65536 };
#define MEMORY_MAX_BYTES 0x1p50
#define BANDWIDTH_MAX_BPS 1e15
#define LATENCY_MIN_S 1e-9 /* the grain of simulated time */
#define LATENCY_MAX_S 1e3
#define SLOWDOWN_MAX 1e6
#define TENSOR_PARALLEL_MAX 1024

struct reader {
    struct arena *a;
    struct cluster *c;
    struct error *err;
    size_t device_capacity;
};

static const struct node *given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

/* The list under a key; at least one member. */
static enum status need_list(const struct node *map, const char *key, const struct node **out,
                             struct error *err)
{
    TRY(node_need(map, key, out, err));
    TRY(node_is(*out, NODE_LIST, err));
    return (*out)->count ? OK : node_error(*out, err, "must not be empty");
}

static enum status need_name(const struct node *map, const char **out, struct error *err)
{
    const struct node *n;
    TRY(node_need(map, "name", &n, err));
    return canonical_name(n, out, err);
}

static enum status unique_names(struct reader *r, const struct node *list, const char *what)
{
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct node *n = node_get(list->members[i], "name");
        e[i] = (struct canonical_entry){n->text, n, (int32_t)i};
    }
    return canonical_unique(e, list->count, what, r->err);
}

/* "a, b, c", as much as an error has room for. */
static const char *join(struct arena *a, const char *list, const char *name)
{
    if (strlen(list) > 160)
        return strcmp(list + strlen(list) - 3, "...") ? arena_printf(a, "%s, ...", list) : list;
    return *list ? arena_printf(a, "%s, %s", list, name) : name;
}

static const char *type_names(const struct reader *r)
{
    const char *list = "";
    for (int32_t i = 0; i < r->c->n_types; i++) list = join(r->a, list, r->c->types[i].name);
    return list;
}

static const char *node_names(const struct reader *r)
{
    const char *list = "";
    for (int32_t i = 0; i < r->c->n_nodes; i++) list = join(r->a, list, r->c->nodes[i].name);
    return list;
}

/* --- device types --- */

static enum status read_memory(struct reader *r, const struct node *n, struct device_type *t)
{
    const struct node *at = given(n, "memory");
    double bytes = 0;
    if (at) TRY(node_quantity(at, QUANTITY_BYTES, 0, MEMORY_MAX_BYTES, &bytes, r->err));
    t->memory_bytes = (int64_t)llround(bytes);
    if (t->slowdown > 0 && !t->memory_bytes)
        return node_error(at ? at : n, r->err,
                          "an emulated type needs memory, for example memory: 2 GiB");
    return OK;
}

static enum status read_type(struct reader *r, const struct node *n, struct device_type *t)
{
    static const char *const keys[] = {"name",    "device",          "slowdown",          "memory",
                                       "reserve", "tensor_parallel", "sequence_parallel", NULL};
    const struct node *device, *slowdown, *cards;
    int64_t n_cards = 1;
    TRY(node_keys(n, keys, r->err));
    TRY(need_name(n, &t->name, r->err));
    TRY(node_need(n, "device", &device, r->err));
    TRY(canonical_label(device, &t->catalogue, r->err));
    slowdown = given(n, "slowdown");
    if (slowdown) TRY(node_double(slowdown, 1, SLOWDOWN_MAX, &t->slowdown, r->err));
    if (slowdown && strcmp(t->catalogue, "host") != 0)
        return node_error(slowdown, r->err,
                          "only device 'host' is emulated with a slowdown, found device '%s'",
                          t->catalogue);
    cards = given(n, "tensor_parallel");
    if (cards) TRY(node_int(cards, 1, TENSOR_PARALLEL_MAX, &n_cards, r->err));
    t->tensor_parallel = (int32_t)n_cards;
    TRY(node_get_bool(n, "sequence_parallel", &t->sequence_parallel, r->err));
    double reserve = 0;
    TRY(node_get_quantity(n, "reserve", QUANTITY_BYTES, 0, MEMORY_MAX_BYTES, &reserve, r->err));
    t->reserve_bytes = (int64_t)llround(reserve);
    return read_memory(r, n, t);
}

static enum status read_types(struct reader *r, const struct node *root)
{
    const struct node *list;
    struct cluster *c = r->c;
    TRY(need_list(root, "device_types", &list, r->err));
    c->n_types = (int32_t)list->count;
    c->types = ARENA_ARRAY(r->a, struct device_type, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(read_type(r, list->members[i], &c->types[i]));
    TRY(unique_names(r, list, "device type"));
    c->emulated = c->types[0].slowdown > 0;
    for (size_t i = 1; i < list->count; i++)
        if ((c->types[i].slowdown > 0) != c->emulated)
            return node_error(list->members[i], r->err,
                              "type '%s' is %s and type '%s' is %s: a cluster is emulated as a "
                              "whole or not at all",
                              c->types[i].name,
                              c->emulated ? "real (no slowdown)" : "emulated (has a slowdown)",
                              c->types[0].name, c->emulated ? "emulated" : "real");
    return OK;
}

/* --- nodes and devices --- */

static enum status find_type(struct reader *r, const struct node *n, int32_t *out)
{
    const char *name;
    TRY(node_text(n, &name, r->err));
    for (*out = 0; *out < r->c->n_types; ++*out)
        if (!strcmp(r->c->types[*out].name, name)) return OK;
    return node_error(n, r->err, "unknown device type '%.100s'; known are: %s", name,
                      type_names(r));
}

static enum status add_device(struct reader *r, const struct node *n, int32_t type, int64_t index)
{
    struct cluster *c = r->c;
    if (c->n_devices == DEVICES_MAX)
        return node_error(n, r->err, "more than %d devices in one cluster", DEVICES_MAX);
    if (index >= DEVICES_MAX)
        return node_error(n, r->err, "index %" PRId64 " is too high; at most %d is accepted", index,
                          DEVICES_MAX - 1);
    c->devices =
        arena_grow(r->a, c->devices, (size_t)c->n_devices, &r->device_capacity, sizeof *c->devices);
    struct node_spec *at = &c->nodes[c->n_nodes - 1];
    c->devices[c->n_devices++] =
        (struct device){.name = arena_printf(r->a, "%s.%" PRId64, at->name, index),
                        .type = type,
                        .node = c->n_nodes - 1,
                        .index = (int32_t)index};
    at->n_devices++;
    return OK;
}

/* {type, index, count}: count devices of one type, from the index on; by default the one behind the last. */
static enum status read_devices(struct reader *r, const struct node *n, int64_t *next)
{
    static const char *const keys[] = {"type", "index", "count", NULL};
    const struct node *type_node;
    int32_t type;
    int64_t count = 1, index = *next;
    TRY(node_keys(n, keys, r->err));
    TRY(node_need(n, "type", &type_node, r->err));
    TRY(find_type(r, type_node, &type));
    TRY(node_get_int(n, "count", 1, DEVICES_MAX, &count, r->err));
    TRY(node_get_int(n, "index", 0, DEVICES_MAX - 1, &index, r->err));
    for (int64_t i = 0; i < count; i++) TRY(add_device(r, n, type, index + i));
    *next = index + count;
    return OK;
}

/* Each local device number at most once; ascending ones, the usual case, need no sorting. */
static enum status unique_indices(struct reader *r, const struct node *n,
                                  const struct node_spec *at)
{
    const struct device *d = &r->c->devices[at->first_device];
    bool ascending = true;
    for (int32_t i = 1; i < at->n_devices; i++)
        if (d[i].index <= d[i - 1].index) ascending = false;
    if (ascending) return OK;
    const char **owner = ARENA_ARRAY(r->a, const char *, DEVICES_MAX);
    for (int32_t i = 0; i < at->n_devices; i++) {
        if (owner[d[i].index]) return node_error(n, r->err, "device %s is given twice", d[i].name);
        owner[d[i].index] = d[i].name;
    }
    return OK;
}

static enum status read_node(struct reader *r, const struct node *n)
{
    static const char *const keys[] = {"name", "host", "devices", NULL};
    const struct node *devices, *host = given(n, "host");
    struct node_spec *at = &r->c->nodes[r->c->n_nodes++];
    int64_t next = 0;
    *at = (struct node_spec){.host = "localhost", .first_device = r->c->n_devices};
    TRY(node_keys(n, keys, r->err));
    TRY(need_name(n, &at->name, r->err));
    if (host) TRY(canonical_label(host, &at->host, r->err));
    TRY(node_need(n, "devices", &devices, r->err));
    if (devices->kind == NODE_MAP) {
        TRY(read_devices(r, devices, &next));
    } else {
        TRY(node_is(devices, NODE_LIST, r->err));
        if (!devices->count)
            return node_error(devices, r->err, "node '%s' has no devices", at->name);
        for (size_t i = 0; i < devices->count; i++)
            TRY(read_devices(r, devices->members[i], &next));
    }
    return unique_indices(r, devices, at);
}

static enum status read_nodes(struct reader *r, const struct node *root)
{
    const struct node *list;
    TRY(need_list(root, "nodes", &list, r->err));
    if (list->count > DEVICES_MAX)
        return node_error(list, r->err, "%zu nodes; at most %d are accepted", list->count,
                          DEVICES_MAX);
    r->c->nodes = ARENA_ARRAY(r->a, struct node_spec, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(read_node(r, list->members[i]));
    return unique_names(r, list, "node");
}

/* --- switches --- */

static enum status read_switches(struct reader *r, const struct node *root)
{
    static const char *const keys[] = {"name", NULL};
    const struct node *list = given(root, "switches"), *nodes = node_get(root, "nodes");
    struct cluster *c = r->c;
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, r->err));
    if (list->count > SWITCHES_MAX)
        return node_error(list, r->err, "%zu switches; at most %d are accepted", list->count,
                          SWITCHES_MAX);
    size_t n = list->count, n_nodes = nodes->count;
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, n + n_nodes);
    c->switches = ARENA_ARRAY(r->a, const char *, n);
    for (size_t i = 0; i < n; i++) {
        TRY(node_keys(list->members[i], keys, r->err));
        TRY(need_name(list->members[i], &c->switches[c->n_switches++], r->err));
        e[n_nodes + i] = (struct canonical_entry){
            c->switches[i], node_get(list->members[i], "name"), (int32_t)(n_nodes + i)};
    }
    for (size_t i = 0; i < n_nodes; i++)
        e[i] = (struct canonical_entry){c->nodes[i].name, node_get(nodes->members[i], "name"),
                                        (int32_t)i};
    return canonical_unique(e, n + n_nodes, "the name of a node or switch,", r->err);
}

/* --- links --- */

static int32_t find_node(const struct cluster *c, const char *name, size_t length)
{
    for (int32_t i = 0; i < c->n_nodes; i++)
        if (!strncmp(c->nodes[i].name, name, length) && !c->nodes[i].name[length]) return i;
    return -1;
}

static int32_t find_switch(const struct cluster *c, const char *name)
{
    for (int32_t i = 0; i < c->n_switches; i++)
        if (!strcmp(c->switches[i], name)) return i;
    return -1;
}

static enum status unknown_end(const struct reader *r, const struct node *n, const char *name)
{
    const char *list = node_names(r);
    if (!r->c->n_switches)
        return node_error(n, r->err, "unknown node '%.100s'; known are: %s", name, list);
    for (int32_t i = 0; i < r->c->n_switches; i++) list = join(r->a, list, r->c->switches[i]);
    return node_error(n, r->err, "unknown node or switch '%.100s'; known are: %s", name, list);
}

static enum status find_end(struct reader *r, const struct node *n, int32_t *out,
                            enum link_end *kind)
{
    const char *name;
    TRY(node_text(n, &name, r->err));
    *kind = strchr(name, '.') ? END_DEVICE : END_NODE;
    *out = *kind == END_DEVICE ? cluster_device(r->c, name) : find_node(r->c, name, strlen(name));
    if (*out >= 0) return OK;
    if (*kind == END_NODE) {
        *kind = END_SWITCH;
        *out = find_switch(r->c, name);
        return *out >= 0 ? OK : unknown_end(r, n, name);
    }
    int32_t node = find_node(r->c, name, strcspn(name, "."));
    if (node < 0)
        return node_error(n, r->err, "unknown device '%.100s': no such node; known are: %s", name,
                          node_names(r));
    const struct node_spec *at = &r->c->nodes[node];
    return node_error(n, r->err, "unknown device '%.100s'; node %s has %" PRId32 ", the last is %s",
                      name, at->name, at->n_devices,
                      r->c->devices[at->first_device + at->n_devices - 1].name);
}

static enum status same_end(const struct reader *r, const struct node *n, const struct link *l)
{
    const char *name = n->members[0]->text;
    if (l->kind[0] == END_SWITCH) return node_error(n, r->err, "names switch %s twice", name);
    int32_t node = l->kind[0] == END_DEVICE ? r->c->devices[l->end[0]].node : l->end[0];
    return node_error(n, r->err, "names %s twice; [%s] is the link inside a node", name,
                      r->c->nodes[node].name);
}

static enum status read_ends(struct reader *r, const struct node *n, struct link *l)
{
    TRY(node_is(n, NODE_LIST, r->err));
    if (n->count < 1 || n->count > 2)
        return node_error(n, r->err, "must name one node or two ends, found %zu", n->count);
    l->n_ends = (int32_t)n->count;
    for (int32_t i = 0; i < l->n_ends; i++)
        TRY(find_end(r, n->members[i], &l->end[i], &l->kind[i]));
    if (l->n_ends == 1) {
        l->end[1] = l->end[0];
        l->kind[1] = l->kind[0];
        return l->kind[0] == END_NODE
                   ? OK
                   : node_error(n, r->err, "one end must be a node; two devices make a link");
    }
    if (l->kind[0] == l->kind[1]) return l->end[0] == l->end[1] ? same_end(r, n, l) : OK;
    if (l->kind[0] != END_SWITCH && l->kind[1] != END_SWITCH)
        return node_error(n, r->err,
                          "must be two nodes or two devices, not one of each; a switch may join "
                          "any two");
    return OK;
}

static enum status read_speed(struct reader *r, const struct node *n, struct link *l)
{
    const struct node *bandwidth = given(n, "bandwidth"), *latency = given(n, "latency");
    bool at_switch = l->kind[0] == END_SWITCH || l->kind[1] == END_SWITCH;
    if ((r->c->emulated || at_switch) && !bandwidth)
        return node_error(n, r->err, "link '%s' needs a bandwidth: links %s cannot be measured",
                          l->name, r->c->emulated ? "of an emulated cluster" : "at a switch");
    if (!bandwidth != !latency)
        return node_error(
            n, r->err, "link '%s' has a %s and no %s; both are stated or both are measured",
            l->name, bandwidth ? "bandwidth" : "latency", bandwidth ? "latency" : "bandwidth");
    if (!bandwidth) return OK;
    l->stated = true;
    TRY(node_quantity(bandwidth, QUANTITY_BYTES_PER_S, 1, BANDWIDTH_MAX_BPS, &l->bandwidth_Bps,
                      r->err));
    return node_quantity(latency, QUANTITY_SECONDS, LATENCY_MIN_S, LATENCY_MAX_S, &l->latency_s,
                         r->err);
}

static enum status read_link(struct reader *r, const struct node *n, struct link *l)
{
    static const char *const keys[] = {"name",    "between",          "bandwidth",
                                       "latency", "duplex",           "sharing",
                                       "overlap", "compute_slowdown", NULL};
    static const char *const duplexes[] = {"full", "half", NULL}, *const sharings[] = {
                                                                      "fifo", "fair", "fluid",
                                                                      NULL};
    const struct node *between, *slowdown;
    int duplex = 0, sharing = 0;
    bool overlap = true;
    TRY(node_keys(n, keys, r->err));
    TRY(need_name(n, &l->name, r->err));
    TRY(node_need(n, "between", &between, r->err));
    TRY(read_ends(r, between, l));
    TRY(read_speed(r, n, l));
    TRY(node_get_bool(n, "overlap", &overlap, r->err));
    l->blocking = !overlap;
    if (l->blocking && r->c->emulated)
        return node_error(node_get(n, "overlap"), r->err,
                          "links of emulated devices always overlap with computing");
    slowdown = given(n, "compute_slowdown");
    if (slowdown) TRY(node_double(slowdown, 0, SLOWDOWN_MAX, &l->compute_slowdown, r->err));
    if (l->compute_slowdown > 0 && r->c->emulated)
        return node_error(slowdown, r->err, "links of emulated devices slow nothing down");
    if (given(n, "duplex")) TRY(node_choice(node_get(n, "duplex"), duplexes, &duplex, r->err));
    if (given(n, "sharing")) TRY(node_choice(node_get(n, "sharing"), sharings, &sharing, r->err));
    l->half_duplex = duplex == 1;
    l->sharing = (enum link_sharing)sharing;
    if (l->sharing == LINK_FLUID && r->c->emulated)
        return node_error(node_get(n, "sharing"), r->err,
                          "links of emulated devices are fifo or fair; fluid is simulated only");
    return OK;
}

/* Each pair of ends has one link at most, whichever end is named first. */
static enum status unique_pairs(struct reader *r, const struct node *list)
{
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct link *l = &r->c->links[i];
        int low = l->kind[0] != l->kind[1] ? l->kind[0] > l->kind[1] : l->end[0] > l->end[1];
        const char *key =
            l->n_ends == 1 ? arena_printf(r->a, "inside %s", cluster_link_end(r->c, l, 0))
                           : arena_printf(r->a, "between %s and %s", cluster_link_end(r->c, l, low),
                                          cluster_link_end(r->c, l, !low));
        e[i] = (struct canonical_entry){key, node_get(list->members[i], "between"), (int32_t)i};
    }
    return canonical_unique(e, list->count, "a link", r->err);
}

static enum status read_links(struct reader *r, const struct node *root)
{
    const struct node *list = given(root, "links");
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, r->err));
    r->c->n_links = (int32_t)list->count;
    r->c->links = ARENA_ARRAY(r->a, struct link, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(read_link(r, list->members[i], &r->c->links[i]));
    TRY(unique_names(r, list, "link"));
    return unique_pairs(r, list);
}

enum status cluster_parse(struct arena *a, const struct node *root, struct cluster *out,
                          struct error *err)
{
    static const char *const keys[] = {"version",  "name", "device_types", "nodes", "links",
                                       "switches", NULL};
    const struct node *name;
    struct cluster c = {0};
    struct reader r = {.a = a, .c = &c, .err = err};
    TRY(node_keys(root, keys, err));
    TRY(canonical_version(root, err));
    TRY(node_need(root, "name", &name, err));
    TRY(canonical_label(name, &c.name, err));
    TRY(read_types(&r, root));
    TRY(read_nodes(&r, root));
    TRY(read_switches(&r, root));
    TRY(read_links(&r, root));
    *out = c;
    return OK;
}

enum status cluster_read(struct arena *a, const char *path, struct cluster *out, struct error *err)
{
    struct node *root;
    TRY(document_read(a, path, &root, err));
    return cluster_parse(a, root, out, err);
}

int32_t cluster_device(const struct cluster *c, const char *name)
{
    int32_t node = find_node(c, name, strcspn(name, "."));
    if (node < 0) return -1;
    const struct node_spec *at = &c->nodes[node];
    for (int32_t i = at->first_device; i < at->first_device + at->n_devices; i++)
        if (!strcmp(c->devices[i].name, name)) return i;
    return -1;
}
