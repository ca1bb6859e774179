/* Seconds of a profile become nanoseconds here and nowhere else, once for each operator and type: the sums
 * that follow are exact. The cache is an open hash by (type, key); key already is a hash (op_key). */
#include "sim/cost.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "profiles/skew.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

struct cost_entry {
    uint64_t key;
    int32_t type; /* of the cluster + 1; 0: empty */
    int64_t ns;
};

struct cost_pair { /* of a link of every two devices, by their types and GPUs */
    int32_t link;
    struct link_ends ends; /* lower type first */
    struct cost_link cost;
};

struct cost {
    struct arena *arena;
    const struct profile *profile;
    const struct cluster *cluster;
    size_t n, capacity; /* capacity: a power of two, never more than half full */
    struct cost_entry *entries;
    size_t n_pairs, pair_capacity;
    struct cost_pair *pairs;
    /* Links by name, made when a link is first asked for by name alone: an open hash of indices + 1, of these links */
    const struct link *named;
    size_t n_named, name_capacity;
    int32_t *by_name;
};

struct cost *cost_new(struct arena *a, const struct profile *p, const struct cluster *c)
{
    struct cost *k = ARENA_ARRAY(a, struct cost, 1);
    *k = (struct cost){.arena = a, .profile = p, .cluster = c, .capacity = 256};
    k->entries = ARENA_ARRAY(a, struct cost_entry, k->capacity);
    return k;
}

static struct cost_entry *find(const struct cost *k, int32_t type, uint64_t key)
{
    size_t at = (size_t)((key + (uint64_t)type) * UINT64_C(0x9E3779B97F4A7C15) >> 32);
    for (;; at++) {
        struct cost_entry *e = &k->entries[at & (k->capacity - 1)];
        if (!e->type || (e->type == type + 1 && e->key == key)) return e;
    }
}

static void grow(struct cost *k)
{
    struct cost old = *k;
    k->capacity *= 2;
    k->entries = ARENA_ARRAY(k->arena, struct cost_entry, k->capacity);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.entries[i].type)
            *find(k, old.entries[i].type - 1, old.entries[i].key) = old.entries[i];
}

static void put(struct cost *k, int32_t type, uint64_t key, int64_t value)
{
    struct cost_entry *e = find(k, type, key);
    if (!e->type && 2 * ++k->n > k->capacity) {
        grow(k);
        e = find(k, type, key);
    }
    *e = (struct cost_entry){key, type + 1, value};
}

enum status cost_path(struct cost *k, const struct program_link *l, int32_t index,
                     struct cost_link *out, struct error *err)
{
    if (!l->n_hops) return cost_program_link(k, l, index, out, err);
    *out = (struct cost_link){.bandwidth_Bps = INFINITY};
    for (int32_t i = 0; i < l->n_hops; i++) {
        struct cost_link hop;
        TRY(cost_link(k, l->hop[i], &hop, err));
        out->bandwidth_Bps = fmin(out->bandwidth_Bps, hop.bandwidth_Bps);
        out->latency_ns += hop.latency_ns;
    }
    return OK;
}

enum status cost_op(struct cost *k, int32_t type, const struct program_op *op, int64_t *out_ns,
                    struct error *err)
{
    struct cost_entry *e = find(k, type, op->key);
    if (e->type) {
        *out_ns = e->ns;
        return OK;
    }
    double seconds = 0;
    enum source source;
    if (op->kind == OP_message) BUG("a message is priced by its link (sim/engine/code)");
    if (type < 0 || type >= k->cluster->n_types)
        return error_set(err, ERR_INPUT, "operator %s on unknown device type %" PRId32, op->name,
                         type);
    TRY(profile_op_seconds(k->profile, k->cluster, type, op->kind, &op->attrs, &op->shapes,
                           op->dtype, op->key, &seconds, &source, err));
    if (k->profile->pace > 0) seconds *= k->profile->pace;
    if (!(seconds >= 0 && seconds <= units_s_from_ns(COST_MAX_NS)))
        return error_set(err, ERR_INPUT,
                         "operator %s takes %g s on %s: not a time that can be simulated", op->name,
                         seconds, k->cluster->types[type].name);
    *out_ns = units_ns_from_s(seconds);
    put(k, type, op->key, *out_ns);
    return OK;
}

int64_t cost_issue(const struct cost *k, int32_t type, const struct program_op *op)
{
    return units_ns_from_s(
        profile_issue(k->profile, k->cluster, type, op->kind, &op->attrs, &op->shapes));
}

int64_t cost_late_ns(const struct cost *k, int32_t n, int64_t work_ns)
{
    double late = (double)work_ns * skew_share(k->profile, n);
    return late < (double)COST_MAX_NS ? (int64_t)llround(late) : COST_MAX_NS;
}

static enum status take_model(struct cost *k, int32_t link, const struct link_model *m,
                              struct cost_link *out, struct error *err)
{
    if (!(m->bandwidth_Bps > 0 && m->bandwidth_Bps < HUGE_VAL) ||
        !(m->latency_s >= 0 && m->latency_s <= units_s_from_ns(COST_MAX_NS)))
        return error_set(err, ERR_INPUT,
                         "link %s: bandwidth %g B/s and latency %g s cannot be simulated",
                         k->cluster->links[link].name, m->bandwidth_Bps, m->latency_s);
    *out = (struct cost_link){m->bandwidth_Bps, units_ns_from_s(m->latency_s), NULL};
    if (!m->n_points) return OK;
    struct link_model *curve = ARENA_ARRAY(k->arena, struct link_model, 1);
    *curve = *m;
    out->curve = curve;
    return OK;
}

enum status cost_host_copy_ns(struct cost *k, int32_t type, int64_t bytes, int64_t *out, struct error *err)
{
    struct cost_link host = {0};
    if (type < 0 || type >= k->cluster->n_types) return error_set(err, ERR_INPUT, "unknown device type %" PRId32, type);
    TRY(profile_host_bandwidth(k->profile, &k->cluster->types[type], &host.bandwidth_Bps, err));
    *out = cost_occupancy_ns(&host, bytes);
    return OK;
}

static enum status known_link(const struct cost *k, int32_t link, struct error *err)
{
    return link >= 0 && link < k->cluster->n_links
               ? OK
               : error_set(err, ERR_INPUT, "unknown link %" PRId32, link);
}

enum status cost_link(struct cost *k, int32_t link, struct cost_link *out, struct error *err)
{
    struct link_model m;
    TRY(known_link(k, link, err));
    TRY(profile_link(k->profile, k->cluster, link, &m, err));
    return take_model(k, link, &m, out, err);
}

static struct link_ends sorted(const struct link_ends *e)
{
    int swap = e->type[0] > e->type[1] || (e->type[0] == e->type[1] && e->gpus[0] > e->gpus[1]);
    return (struct link_ends){
        {e->type[swap], e->type[!swap]}, {e->gpus[swap], e->gpus[!swap]}, e->at_once};
}

/* Few pairs of types, asked for over and over. */
enum status cost_link_of(struct cost *k, int32_t link, const struct link_ends *ends,
                         struct cost_link *out, struct error *err)
{
    struct link_model m;
    TRY(known_link(k, link, err));
    if (!link_of_every_pair(&k->cluster->links[link])) return cost_link(k, link, out, err);
    struct link_ends e = sorted(ends);
    if (e.type[0] < 0 || e.type[1] >= k->cluster->n_types)
        return error_set(err, ERR_INPUT, "link %s between unknown device types",
                         k->cluster->links[link].name);
    for (size_t i = 0; i < k->n_pairs; i++)
        if (k->pairs[i].link == link && !memcmp(&k->pairs[i].ends, &e, sizeof e)) {
            *out = k->pairs[i].cost;
            return OK;
        }
    TRY(profile_link_of(k->profile, k->cluster, link, &e, &m, err));
    TRY(take_model(k, link, &m, out, err));
    k->pairs = arena_grow(k->arena, k->pairs, k->n_pairs, &k->pair_capacity, sizeof *k->pairs);
    k->pairs[k->n_pairs++] = (struct cost_pair){link, e, *out};
    return OK;
}

enum status cost_program_link(struct cost *k, const struct program_link *l, int32_t index,
                              struct cost_link *out, struct error *err)
{
    if (l->paired) {
        struct link_ends ends = {
            {l->type[0], l->type[1]}, {l->gpus[0], l->gpus[1]}, l->gpus_at_once};
        return cost_link_of(k, l->of, &ends, out, err);
    }
    int32_t found = cost_link_index(k, index, l->name);
    if (found >= 0) return cost_link(k, found, out, err);
    return error_set(err, ERR_INPUT, "link %s is not a link of the cluster", l->name);
}

/* The place of the name, or the free one where it belongs. */
static int32_t *place_of(const struct cost *k, const char *name)
{
    size_t at = (size_t)rng_hash_text(1, name);
    for (;; at++) {
        int32_t *place = &k->by_name[at & (k->name_capacity - 1)];
        if (!*place || !strcmp(k->cluster->links[*place - 1].name, name)) return place;
    }
}

static void name_links(struct cost *k)
{
    const struct cluster *c = k->cluster;
    k->named = c->links, k->n_named = (size_t)c->n_links;
    for (k->name_capacity = 16; k->name_capacity < 2 * k->n_named;) k->name_capacity *= 2;
    k->by_name = ARENA_ARRAY(k->arena, int32_t, k->name_capacity);
    for (int32_t i = 0; i < c->n_links; i++) {
        int32_t *place = place_of(k, c->links[i].name);
        if (!*place) *place = i + 1;
    }
}

int32_t cost_link_index(struct cost *k, int32_t hint, const char *name)
{
    const struct cluster *c = k->cluster;
    if (hint >= 0 && hint < c->n_links && !strcmp(c->links[hint].name, name)) return hint;
    if (!k->by_name || k->named != c->links || k->n_named != (size_t)c->n_links) name_links(k);
    return *place_of(k, name) - 1;
}

int64_t cost_occupancy_ns(const struct cost_link *l, int64_t bytes)
{
    double Bps = l->curve ? link_model_Bps(l->curve, (double)bytes) : l->bandwidth_Bps;
    double seconds = (double)bytes / Bps;
    return seconds <= units_s_from_ns(COST_MAX_NS) ? units_ns_from_s(seconds) : COST_MAX_NS;
}

int64_t cost_profile_id(const struct cost *k) { return k->profile->id; }
const struct device_type *cost_type(const struct cost *k, int32_t type)
{
    return &k->cluster->types[type];
}
int32_t cost_types(const struct cost *k) { return k->cluster->n_types; }

bool cost_prices_collectives(const struct cost *k)
{
    return k->profile->n_collectives > 0 || k->cluster->nccl;
}

enum { REMEMBERED = INT32_MAX - 1 }; /* in the type's place */

bool cost_recall(const struct cost *k, uint64_t key, int64_t *out)
{
    const struct cost_entry *e = find(k, REMEMBERED, key);
    if (e->type) *out = e->ns;
    return e->type != 0;
}

void cost_remember(struct cost *k, uint64_t key, int64_t value) { put(k, REMEMBERED, key, value); }

const struct cluster *cost_cluster(const struct cost *k) { return k->cluster; }

int64_t cost_collective_ns(const struct cost *k, enum collective_kind kind,
                           enum collective_algorithm algorithm, const char *device,
                           int32_t n_ranks, int32_t n_nodes, int64_t bytes)
{
    double seconds;
    if (!collective_table_holds(k->profile->collectives, k->profile->n_collectives, kind, algorithm,
                                n_ranks, n_nodes, device, bytes, &seconds))
        return -1;
    int64_t ns = units_ns_from_s(seconds);
    return ns < COST_MAX_NS ? ns : COST_MAX_NS;
}
