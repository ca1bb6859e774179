/* core/cluster/cluster.c - cluster.yaml to struct cluster and back.
 *
 * Names of types, nodes and links have no dots, so "a.0" splits at its only dot and finding a device
 * searches only the devices of its node. All contradictions are errors here, with their
 * position in the file, so later code needs no checks. Facts outside the file
 * (the catalogue's ids, the machine's memory) are checked by the callers.
 */
#include "core/cluster/internal.h"

#include "core/base/nearest.h"
#include "core/base/units.h"
#include "core/cluster/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SWITCHES_MAX = 65536 };
#define MEMORY_MAX_BYTES 0x1p50
#define MULTIPROCESSORS_MAX 4096
#define PRICE_MAX_PER_H 1e9
/* Of one device: a thousand times what any has. A number in a wrong unit is outside. */
#define PEAK_MIN_FLOPS 1e6
#define PEAK_MAX_FLOPS 1e19
#define MEMORY_MIN_BPS 1e6
#define MEMORY_MAX_BPS 1e16
#define POWER_MAX_W 1e6
#define PARAMETER_COPIES_MAX 16

const char *device_peak_name(enum device_peak p)
{
    static const char *const names[] = {
#define X(name) #name,
        DEVICE_PEAKS(X)
#undef X
    };
    if ((int)p < 0 || p >= DEVICE_PEAK_COUNT) BUG("peak %d", (int)p);
    return names[p];
}

const struct node *cluster_given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

enum status cluster_need_name(const struct node *map, const char **out, struct error *err)
{
    const struct node *n;
    TRY(node_need(map, "name", &n, err));
    return canonical_name(n, out, err);
}

enum status cluster_unique_names(struct cluster_reader *r, const struct node *list,
                                 const char *what)
{
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct node *n = node_get(list->members[i], "name");
        e[i] = (struct canonical_entry){n->text, n, (int32_t)i};
    }
    return canonical_unique(e, list->count, what, r->err);
}

/* "a, b, c", limited to the room in an error. */
const char *cluster_join(struct arena *a, const char *list, const char *name)
{
    if (strlen(list) > 160)
        return strcmp(list + strlen(list) - 3, "...") ? arena_printf(a, "%s, ...", list) : list;
    return *list ? arena_printf(a, "%s, %s", list, name) : name;
}

/* The list under a key; at least one member. */
static enum status need_list(const struct node *map, const char *key, const struct node **out,
                             struct error *err)
{
    TRY(node_need(map, key, out, err));
    TRY(node_is(*out, NODE_LIST, err));
    return (*out)->count ? OK : node_error(*out, err, "must not be empty");
}

static const char *type_names(const struct cluster_reader *r)
{
    const char *list = "";
    for (int32_t i = 0; i < r->c->n_types; i++)
        list = cluster_join(r->a, list, r->c->types[i].name);
    return list;
}

/* --- device types --- */

static enum status read_memory(struct cluster_reader *r, const struct node *n,
                               struct device_type *t)
{
    const struct node *at = cluster_given(n, "memory");
    double bytes = 0;
    if (at) TRY(node_quantity(at, QUANTITY_BYTES, 0, MEMORY_MAX_BYTES, &bytes, r->err));
    t->memory_bytes = (int64_t)llround(bytes);
    if (t->slowdown > 0 && !t->memory_bytes)
        return node_error(at ? at : n, r->err,
                          "an emulated type needs memory, for example memory: 2 GiB");
    if (at && !t->memory_bytes)
        return node_error(at, r->err, "memory is more than 0: expected a size such as 24 GB");
    return OK;
}

bool cluster_parse_price(const char *text, double *out)
{
    char number[32];
    double value;
    size_t length = strlen(text);
    if (length <= 2 || length >= sizeof number || strcmp(text + length - 2, "/h") != 0)
        return false;
    memcpy(number, text, length - 2);
    number[length - 2] = '\0';
    if (!units_parse_number(number, &value) || !(value >= 0 && value <= PRICE_MAX_PER_H))
        return false;
    *out = value;
    return true;
}

const char *cluster_price_hint(char buffer[CLUSTER_PRICE_HINT], const char *text)
{
    char *end;
    double number = strtod(text, &end);
    const char *unit = end + strspn(end, " ");
    if (end == text)
        snprintf(buffer, CLUSTER_PRICE_HINT, "write 3.2/h, without a currency");
    else if (!(number >= 0 && number <= PRICE_MAX_PER_H))
        snprintf(buffer, CLUSTER_PRICE_HINT, "a price is from 0/h (free) to %g/h", PRICE_MAX_PER_H);
    else if (*unit == '/')
        snprintf(buffer, CLUSTER_PRICE_HINT, "did you mean %g/h?", number);
    else
        snprintf(buffer, CLUSTER_PRICE_HINT, "write %g/h, without a currency", number);
    return buffer;
}

static enum status read_price(const struct node *n, double *out, struct error *err)
{
    const char *text;
    char hint[CLUSTER_PRICE_HINT];
    TRY(node_text(n, &text, err));
    if (cluster_parse_price(text, out)) return OK;
    return node_error(n, err, "'%.40s' is not a price per hour: %s", text,
                      cluster_price_hint(hint, text));
}

/* `peak`, `memory_bandwidth` and `power`. */
static enum status read_rates(const struct node *n, struct device_rates *out, struct error *err)
{
    const struct node *peak = cluster_given(n, "peak");
    if (peak) TRY(document_keys(peak, cluster_peak_keys, err));
    for (int p = 0; peak && p < DEVICE_PEAK_COUNT; p++)
        TRY(node_get_quantity(peak, device_peak_name((enum device_peak)p), QUANTITY_FLOPS,
                              PEAK_MIN_FLOPS, PEAK_MAX_FLOPS, &out->peak_flops[p], err));
    TRY(node_get_quantity(n, "memory_bandwidth", QUANTITY_BYTES_PER_S, MEMORY_MIN_BPS,
                          MEMORY_MAX_BPS, &out->memory_Bps, err));
    return node_get_quantity(n, "power", QUANTITY_WATTS, 1, POWER_MAX_W, &out->power_w, err);
}

/* A partial GPU is emulated, because it shares the GPU's clock with the others. */
static enum status read_multiprocessors(struct cluster_reader *r, const struct node *n,
                                        struct device_type *t)
{
    const struct node *at = cluster_given(n, "multiprocessors");
    int64_t value = 0;
    if (!at) return OK;
    TRY(node_int(at, 1, MULTIPROCESSORS_MAX, &value, r->err));
    if (!strcmp(t->catalogue, "host"))
        return node_error(at, r->err, "multiprocessors apply to GPUs only, not to a host core");
    if (!(t->slowdown > 0))
        return node_error(at, r->err,
                          "a partial GPU is emulated and needs a slowdown, for example "
                          "slowdown: 2 if two devices time-share the GPU");
    t->multiprocessors = (int32_t)value;
    return OK;
}

static enum status read_offloaded(struct cluster_reader *r, const struct node *at, struct device_type *t)
{
    const char *what;
    TRY(canonical_label(at, &what, r->err));
    bool *of = !strcmp(what, "optimizer") ? &t->offloads : !strcmp(what, "activations") ? &t->offloads_activations : NULL;
    if (!of)
        return node_error(at, r->err, "offload: %s: only the optimizer's state and activations can be offloaded (offload: optimizer, activations, or "
                          "[optimizer, activations])", what);
    if (*of) return node_error(at, r->err, "offload: %s is stated twice", what);
    *of = true;
    return OK;
}

static enum status read_offload(struct cluster_reader *r, const struct node *n, struct device_type *t)
{
    const struct node *at = cluster_given(n, "offload");
    TRY(node_get_quantity(n, "host_bandwidth", QUANTITY_BYTES_PER_S, MEMORY_MIN_BPS, MEMORY_MAX_BPS, &t->host_Bps, r->err));
    if (!at) return OK;
    if (at->kind != NODE_LIST) return read_offloaded(r, at, t);
    for (size_t i = 0; i < at->count; i++) TRY(read_offloaded(r, at->members[i], t));
    return OK;
}

static enum status read_type(struct cluster_reader *r, const struct node *n, struct device_type *t)
{
    const struct node *device, *slowdown, *price = cluster_given(n, "price");
    int64_t copies = 0;
    TRY(document_keys(n, cluster_type_keys, r->err));
    TRY(cluster_need_name(n, &t->name, r->err));
    TRY(node_need(n, "device", &device, r->err));
    TRY(canonical_label(device, &t->catalogue, r->err));
    t->where = device;
    slowdown = cluster_given(n, "slowdown");
    if (slowdown) TRY(node_double(slowdown, 1, CLUSTER_SLOWDOWN_MAX, &t->slowdown, r->err));
    TRY(read_multiprocessors(r, n, t));
    double reserve = 0;
    TRY(node_get_quantity(n, "reserve", QUANTITY_BYTES, 0, MEMORY_MAX_BYTES, &reserve, r->err));
    t->reserve_bytes = (int64_t)llround(reserve);
    TRY(node_get_int(n, "parameter_copies", 0, PARAMETER_COPIES_MAX, &copies, r->err));
    t->parameter_copies = (int32_t)copies;
    TRY(read_offload(r, n, t));
    if (price) TRY(read_price(price, &t->price_per_h, r->err));
    t->priced = price != NULL;
    TRY(read_rates(n, &t->stated, r->err));
    t->power_w = t->stated.power_w;
    return read_memory(r, n, t);
}

static enum status read_types(struct cluster_reader *r, const struct node *root)
{
    const struct node *list;
    struct cluster *c = r->c;
    TRY(need_list(root, "device_types", &list, r->err));
    c->n_types = (int32_t)list->count;
    c->types = ARENA_ARRAY(r->a, struct device_type, list->count);
    for (size_t i = 0; i < list->count; i++) TRY(read_type(r, list->members[i], &c->types[i]));
    TRY(cluster_unique_names(r, list, "device type"));
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

static enum status find_type(struct cluster_reader *r, const struct node *n, int32_t *out)
{
    const char *name;
    char hint[NEAREST_HINT];
    TRY(node_text(n, &name, r->err));
    struct nearest near = nearest_to(name);
    for (*out = 0; *out < r->c->n_types; ++*out) {
        if (!strcmp(r->c->types[*out].name, name)) return OK;
        nearest_try(&near, r->c->types[*out].name);
    }
    return node_error(n, r->err, "unknown device type '%.100s'; known: %s%s", name,
                      type_names(r), nearest_hint(&near, hint));
}

static enum status add_device(struct cluster_reader *r, const struct node *n, int32_t type,
                              int64_t index)
{
    struct cluster *c = r->c;
    if (c->n_devices == CLUSTER_DEVICES_MAX)
        return node_error(n, r->err, "more than %d devices in one cluster", CLUSTER_DEVICES_MAX);
    if (index >= CLUSTER_DEVICES_MAX)
        return node_error(n, r->err, "index %" PRId64 " is too high; at most %d is accepted", index,
                          CLUSTER_DEVICES_MAX - 1);
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
static enum status read_devices(struct cluster_reader *r, const struct node *n, int64_t *next)
{
    const struct node *type_node;
    int32_t type;
    int64_t count = 1, index = *next;
    TRY(document_keys(n, cluster_device_keys, r->err));
    TRY(node_need(n, "type", &type_node, r->err));
    TRY(find_type(r, type_node, &type));
    TRY(node_get_int(n, "count", 1, CLUSTER_DEVICES_MAX, &count, r->err));
    TRY(node_get_int(n, "index", 0, CLUSTER_DEVICES_MAX - 1, &index, r->err));
    for (int64_t i = 0; i < count; i++) TRY(add_device(r, n, type, index + i));
    *next = index + count;
    return OK;
}

/* Each local device number at most once; ascending ones, the usual case, need no sorting. */
static enum status unique_indices(struct cluster_reader *r, const struct node *n,
                                  const struct node_spec *at)
{
    const struct device *d = &r->c->devices[at->first_device];
    bool ascending = true;
    for (int32_t i = 1; i < at->n_devices; i++)
        if (d[i].index <= d[i - 1].index) ascending = false;
    if (ascending) return OK;
    const char **owner = ARENA_ARRAY(r->a, const char *, CLUSTER_DEVICES_MAX);
    for (int32_t i = 0; i < at->n_devices; i++) {
        if (owner[d[i].index]) return node_error(n, r->err, "device %s is given twice", d[i].name);
        owner[d[i].index] = d[i].name;
    }
    return OK;
}

/* number: of a node with a count, else -1. */
static enum status read_node(struct cluster_reader *r, const struct node *n, int64_t number)
{
    const struct node *devices, *host = cluster_given(n, "host");
    struct node_spec *at = &r->c->nodes[r->c->n_nodes++];
    int64_t next = 0;
    *at = (struct node_spec){.host = "localhost", .first_device = r->c->n_devices};
    TRY(document_keys(n, cluster_node_keys, r->err));
    TRY(cluster_need_name(n, &at->name, r->err));
    if (host) TRY(canonical_label(host, &at->host, r->err));
    if (number >= 0) at->name = arena_printf(r->a, "%s%" PRId64, at->name, number);
    if (number >= 0 && host) at->host = arena_printf(r->a, "%s%" PRId64, at->host, number);
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

/* Number of nodes of an entry. */
static enum status node_count(const struct cluster_reader *r, const struct node *n, int64_t *out)
{
    *out = 1;
    TRY(node_is(n, NODE_MAP, r->err));
    return node_get_int(n, "count", 1, CLUSTER_DEVICES_MAX, out, r->err);
}

static enum status read_nodes(struct cluster_reader *r, const struct node *root)
{
    const struct node *list;
    int64_t all = 0, count;
    TRY(need_list(root, "nodes", &list, r->err));
    for (size_t i = 0; i < list->count && all <= CLUSTER_DEVICES_MAX; i++, all += count)
        TRY(node_count(r, list->members[i], &count));
    if (all > CLUSTER_DEVICES_MAX)
        return node_error(list, r->err, "more than %d nodes", CLUSTER_DEVICES_MAX);
    r->c->nodes = ARENA_ARRAY(r->a, struct node_spec, (size_t)all);
    r->node_names = ARENA_ARRAY(r->a, const struct node *, (size_t)all);
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, (size_t)all);
    for (size_t i = 0; i < list->count; i++) {
        const struct node *n = list->members[i];
        TRY(node_count(r, n, &count));
        for (int64_t k = 0; k < count; k++) {
            int32_t at = r->c->n_nodes;
            TRY(read_node(r, n, cluster_given(n, "count") ? k : -1));
            r->node_names[at] = node_get(n, "name");
            e[at] = (struct canonical_entry){r->c->nodes[at].name, r->node_names[at], at};
        }
    }
    return canonical_unique(e, (size_t)all, "node", r->err);
}

/* --- switches --- */

static enum status read_switches(struct cluster_reader *r, const struct node *root)
{
    const struct node *list = cluster_given(root, "switches");
    struct cluster *c = r->c;
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, r->err));
    TRY(cluster_repeat(r, list, &list));
    if (list->count > SWITCHES_MAX)
        return node_error(list, r->err, "%zu switches; at most %d are accepted", list->count,
                          SWITCHES_MAX);
    size_t n = list->count, n_nodes = (size_t)c->n_nodes;
    struct canonical_entry *e = ARENA_ARRAY(r->a, struct canonical_entry, n + n_nodes);
    c->switches = ARENA_ARRAY(r->a, const char *, n);
    for (size_t i = 0; i < n; i++) {
        TRY(document_keys(list->members[i], cluster_switch_keys, r->err));
        TRY(cluster_need_name(list->members[i], &c->switches[c->n_switches++], r->err));
        e[n_nodes + i] = (struct canonical_entry){
            c->switches[i], node_get(list->members[i], "name"), (int32_t)(n_nodes + i)};
    }
    for (size_t i = 0; i < n_nodes; i++)
        e[i] = (struct canonical_entry){c->nodes[i].name, r->node_names[i], (int32_t)i};
    return canonical_unique(e, n + n_nodes, "the name of a node or switch,", r->err);
}

static enum status read_nccl(struct cluster_reader *r, const struct node *root)
{
    const struct node *n = cluster_given(root, "nccl");
    if (!n) return OK;
    if (r->c->emulated)
        return node_error(n, r->err, "collectives of emulated devices are not NCCL's");
    r->c->nccl_where = n;
    return canonical_label(n, &r->c->nccl, r->err);
}

enum status cluster_parse(struct arena *a, const struct node *root, struct cluster *out,
                          struct error *err)
{
    const struct node *name;
    struct cluster c = {0};
    struct cluster_reader r = {.a = a, .c = &c, .err = err};
    TRY(canonical_kind(root, "cluster", err));
    TRY(document_keys(root, cluster_keys, err));
    TRY(canonical_version(root, err));
    TRY(node_need(root, "name", &name, err));
    TRY(canonical_label(name, &c.name, err));
    TRY(read_types(&r, root));
    TRY(read_nccl(&r, root));
    TRY(read_nodes(&r, root));
    TRY(read_switches(&r, root));
    cluster_index_names(a, &c);
    TRY(cluster_read_links(&r, root));
    *out = c;
    return OK;
}

enum status cluster_read(struct arena *a, const char *path, struct cluster *out, struct error *err)
{
    struct node *root;
    TRY(document_read(a, path, &root, err));
    return cluster_parse(a, root, out, err);
}
