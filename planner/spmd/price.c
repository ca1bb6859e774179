/* planner/spmd/price.c - shards by placement, and the time of the messages of a collective over them.
 *
 * Sizes are in bytes, times in ns. The shards of a shape in a placement are found once (O(devices)), and the cost of a conversion or a sum
 * between two placements once for each set of groups along an axis (O(devices · steps)).
 */
#include "planner/spmd/price.h"

#include "core/base/arena.h"
#include "core/base/hash_map.h"
#include "core/base/units.h"
#include "core/collective/tensor_shard.h"
#include "core/collective/rounds.h"
#include "sim/collective/rounds.h"
#include <string.h>
static const enum op_kind SUM_OF_GRADIENTS = OP_KIND_COUNT + 1; /* OP_KIND_COUNT: no conversion */

struct shards { /* shards of tensors of one shape in one placement */
    struct shape whole;
    int32_t placement;
    struct shape *local;      /* (n_devices) */
    struct tensor_shard *shard; /* (n_devices) */
};
struct priced {
    struct shape whole;
    int64_t element_bytes;
    enum op_kind kind;
    int32_t axis, before, after;
    bool joined; /* bucketed with others: without latencies */
    int64_t ns;
    enum collective_algorithm algorithm;
};

struct members {     /* devices of a group along an axis; joined: the same without latencies */
    int32_t *member; /* (n) */
    struct cost_link *hop[2]; /* (n, n) each; NULL: not computed yet */
};

struct spmd_price {
    struct arena *a;
    const struct sharding *s;
    struct cost_link *hop; /* (n_devices, n_devices) */
    uint32_t algorithms;
    const int32_t *node;
    const bool *bus;
    int32_t n_placements, n_shards;
    size_t placement_capacity, shards_capacity;
    struct placement *placements;
    struct shards **shards;
    struct hash_map prices; /* of struct priced, by question */
    /* (n_devices, mesh[axis]) [d][k]: simultaneous messages on the link of d's node or of its peer's, if every device sends
     * to the peer k positions further along the axis; NULL: no shared links */
    int32_t *share[MESH_AXES_MAX + 1];
    int64_t n_collectives, n_pairs; /* priced */
    spmd_measured *measured;     /* NULL: no measurements */
    const void *of;
    struct members *groups[MESH_AXES_MAX + 1]; /* (n_devices) groups by first member; NULL: none yet */
};

/* After the axes of the mesh: one axis of all devices in a row, for all-reduces over both axes. */
static int32_t places_along(const struct spmd_price *y, int32_t axis)
{
    return axis == SPMD_ALL_AXES ? y->s->n_devices : y->s->mesh[axis];
}

static int32_t place_along(const struct spmd_price *y, int32_t device, int32_t axis)
{
    return axis == SPMD_ALL_AXES ? device : sharding_place(y->s, device, axis);
}

static void group_along(const struct spmd_price *y, int32_t device, int32_t axis, int32_t *member)
{
    if (axis < SPMD_ALL_AXES) {
        sharding_group(y->s, device, axis, member);
        return;
    }
    for (int32_t d = 0; d < y->s->n_devices; d++) member[d] = d;
}

/* Counts messages to the peer k positions further along the axis, for all groups at once: messages between nodes share the
 * nodes' links, messages within a node with a bus share the bus. */
static int32_t *find_shares(struct spmd_price *y, int32_t axis)
{
    int32_t n = y->s->n_devices, places = places_along(y, axis), member[256];
    int32_t *share = ARENA_ARRAY(y->a, int32_t, (size_t)n * (size_t)places);
    int32_t *out = ARENA_ARRAY(y->a, int32_t, (size_t)n),
            *in = ARENA_ARRAY(y->a, int32_t, (size_t)n);
    int32_t *inside = ARENA_ARRAY(y->a, int32_t, (size_t)n),
            *first = ARENA_ARRAY(y->a, int32_t, (size_t)n); /* representative device of each one's node */
    for (int32_t d = 0; d < n; d++)
        while (y->node[first[d]] != y->node[d]) first[d]++;
    for (int32_t k = 1; k < places; k++) {
        memset(out, 0, (size_t)n * sizeof *out), memset(in, 0, (size_t)n * sizeof *in);
        memset(inside, 0, (size_t)n * sizeof *inside);
        for (int pass = 0; pass < 2; pass++)
            for (int32_t d = 0; d < n; d++) {
                group_along(y, d, axis, member);
                int32_t to = member[(place_along(y, d, axis) + k) % places];
                bool leaves = first[to] != first[d];
                int32_t *mine = &share[d * places + k];
                bool bus = !leaves && y->bus && y->bus[d];
                if (!pass && leaves) out[first[d]]++, in[first[to]]++;
                if (!pass && bus) inside[first[d]]++;
                if (!pass) continue;
                *mine = leaves ? out[first[d]] : bus ? inside[first[d]] : 1;
                if (leaves && in[first[to]] > *mine) *mine = in[first[to]];
            }
    }
    return share;
}

struct spmd_price *spmd_price_new(struct arena *a, const struct sharding *s, spmd_hop *hop,
                                  const void *of, uint32_t algorithms, const int32_t *node,
                                  const bool *bus, spmd_measured *measured)
{
    struct spmd_price *y = ARENA_ARRAY(a, struct spmd_price, 1);
    int32_t n = s->n_devices;
    *y = (struct spmd_price){.a = a,
                             .s = s,
                             .algorithms = algorithms,
                             .node = node,
                             .bus = bus,
                             .measured = measured,
                             .of = of,
                             .prices = {.arena = a}};
    y->hop = ARENA_ARRAY(a, struct cost_link, (size_t)n * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n; k++)
            if (i != k) y->hop[i * n + k] = hop(of, i, k);
    for (int32_t x = 0; node && x < s->n_axes; x++) y->share[x] = find_shares(y, x);
    if (node && s->n_axes > 1) y->share[SPMD_ALL_AXES] = find_shares(y, SPMD_ALL_AXES);
    spmd_placement(y, &(struct placement){0});
    return y;
}

int32_t spmd_placement(struct spmd_price *y, const struct placement *p)
{
    for (int32_t k = 0; k < y->n_placements; k++)
        if (placement_said_alike(&y->placements[k], p)) return k;
    for (int32_t k = 0; k < y->n_placements; k++)
        if (placement_equal(y->s, &y->placements[k], p)) return k;
    y->placements = arena_grow(y->a, y->placements, (size_t)y->n_placements, &y->placement_capacity,
                               sizeof *y->placements);
    y->placements[y->n_placements] = *p;
    return y->n_placements++;
}

const struct placement *spmd_placement_of(const struct spmd_price *y, int32_t placement)
{
    return &y->placements[placement];
}

int32_t spmd_placements(const struct spmd_price *y) { return y->n_placements; }

int64_t spmd_collectives_priced(const struct spmd_price *y, int64_t *pairs)
{
    *pairs = y->n_pairs;
    return y->n_collectives;
}

bool spmd_is_own(const struct spmd_price *y, int32_t placement)
{
    const struct on_axis *axis = y->placements[placement].axis;
    return axis[0].how == PLACED_OWN || axis[1].how == PLACED_OWN;
}

static const struct shards *shards_of(struct spmd_price *y, const struct shape *whole,
                                    int32_t placement)
{
    for (int32_t k = 0; k < y->n_shards; k++)
        if (y->shards[k]->placement == placement && shape_equal(&y->shards[k]->whole, whole))
            return y->shards[k];
    struct shards *x = ARENA_ARRAY(y->a, struct shards, 1);
    size_t n = (size_t)y->s->n_devices;
    *x = (struct shards){.whole = *whole, .placement = placement};
    x->local = ARENA_ARRAY(y->a, struct shape, n);
    x->shard = ARENA_ARRAY(y->a, struct tensor_shard, n);
    struct arena *scratch = arena_new();
    placement_shards(scratch, y->s, &y->placements[placement], whole, x->local, x->shard);
    arena_free(scratch);
    y->shards = arena_grow(y->a, y->shards, (size_t)y->n_shards, &y->shards_capacity, sizeof *y->shards);
    y->shards[y->n_shards++] = x;
    return x;
}

const struct shape *spmd_shards(struct spmd_price *y, const struct shape *whole, int32_t placement)
{
    return shards_of(y, whole, placement)->local;
}

struct participants { /* members, by index among the stage's devices */
    struct spmd_price *y;
    int32_t n, axis;
    const int32_t *member;
    const struct cost_link *hop; /* (n, n) */
    const struct shards *before, *after;
    int64_t element_bytes;
    bool joined;
    struct arena *scratch; /* of the current step */
};

/* Messages that share the link of member i's message to the peer k positions further, itself included. */
static int64_t sharing(const struct participants *m, int32_t i, int32_t k)
{
    const int32_t *share = m->y->share[m->axis];
    return share ? share[m->member[i] * m->n + k] : 1;
}

static int64_t ring_ns(const struct participants *m, int32_t steps, int64_t chunk_bytes)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < m->n && chunk_bytes; i++) {
        const struct cost_link *h = &m->hop[i * m->n + (i + 1) % m->n];
        int64_t ns = cost_occupancy_ns(h, chunk_bytes * sharing(m, i, 1)) + h->latency_ns;
        slowest = units_max(slowest, ns);
    }
    return steps * slowest;
}

static int64_t pairs_ns(const struct participants *m, int64_t *bytes)
{
    for (int32_t i = 0; i < m->n; i++)
        for (int32_t k = 1; k < m->n; k++) bytes[i * m->n + (i + k) % m->n] *= sharing(m, i, k);
    return collective_pairs_ns(m->n, bytes, m->hop);
}

static int64_t shard_elements(const struct participants *m, const struct shards *p, int32_t i)
{
    return shape_elements(&p->local[m->member[i]]);
}

struct rounds_of { /* state of pricing by rounds */
    const struct participants *m;
    const struct collective *c;
    int64_t inside,
        between; /* by tier: messages that share a link within a node, and between nodes */
};

static struct cost_link hop_of(const void *of, int32_t from, int32_t to)
{
    const struct participants *m = ((const struct rounds_of *)of)->m;
    return m->hop[from * m->n + to];
}

static int64_t beside(const void *of, int32_t from, int32_t to)
{
    const struct rounds_of *r = of;
    if (!r->c->tier) return sharing(r->m, from, (to - from + r->m->n) % r->m->n);
    return r->c->tier[from] == r->c->tier[to] ? r->inside : r->between;
}

/* Time by rounds; -1: the algorithm does not support these members. Shards are slices of one row. */
static int64_t rounds_ns(struct participants *m, enum collective_kind kind, enum collective_algorithm w,
                         const struct shards *p)
{
    int32_t *node = ARENA_ARRAY(m->scratch, int32_t, (size_t)m->n),
            *tier = ARENA_ARRAY(m->scratch, int32_t, (size_t)m->n);
    int64_t *first = ARENA_ARRAY(m->scratch, int64_t, (size_t)m->n),
            *count = ARENA_ARRAY(m->scratch, int64_t, (size_t)m->n), at = 0;
    for (int32_t i = 0; i < m->n && m->y->node; i++) node[i] = m->y->node[m->member[i]];
    int32_t each = m->y->node ? collective_tiers_of(node, m->n, tier) : 0;
    bool tiers = collective_rounds_of(w)->tiers;
    if (collective_misfit(w, m->n, each > 1 && each < m->n)) return -1;
    for (int32_t i = 0; i < m->n; i++) {
        first[i] = at, count[i] = shard_elements(m, p, i);
        at += count[i];
    }
    struct collective x = {.kind = kind,
                           .algorithm = w,
                           .n_members = m->n,
                           .whole = {1, {at}},
                           .from = {0, 1, first, count},
                           .to = {0, 1, first, count},
                           .tier = tiers ? tier : NULL};
    if (kind == COLLECTIVE_ALL_REDUCE) x.whole.dim[0] = count[0];
    if (tiers) collective_set_tiers(m->scratch, &x);
    x.most = collective_max(&x);
    struct rounds_of r = {m, &x, 1, 1};
    for (int32_t i = 0; tiers && i < m->n; i++) {
        if (m->y->bus && m->y->bus[m->member[i]]) r.inside = each;
        r.between = units_max(r.between, sharing(m, i, each));
    }
    const struct collective_hops hops = {hop_of, &r, beside};
    int64_t *end = ARENA_ARRAY(m->scratch, int64_t, 2 * (size_t)m->n), slowest = 0;
    collective_rounds_ns(&x, m->element_bytes, &hops, end, end + m->n);
    for (int32_t i = 0; i < m->n; i++) slowest = units_max(slowest, end[i]);
    return slowest;
}

static int64_t sum_ns(const struct participants *m, const struct shards *p)
{
    int64_t elements = shard_elements(m, p, 0), chunk = (elements + m->n - 1) / m->n;
    return ring_ns(m, 2 * (m->n - 1), chunk * m->element_bytes);
}

/* Exchange by pairs: every shard to all (all-gather), partial values of each shard to its owner (reduce-scatter), or the
 * intersections of old and new shards (all-to-all). */
static int64_t spread_ns(struct participants *m, const struct shards *p, const struct shape *whole,
                         enum collective_kind kind, enum collective_algorithm algorithm)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < m->n; i++) largest = units_max(largest, shard_elements(m, p, i));
    if (algorithm == ALGORITHM_RING) return ring_ns(m, m->n - 1, largest * m->element_bytes);
    int64_t *bytes = ARENA_ARRAY(m->scratch, int64_t, (size_t)m->n * (size_t)m->n);
    for (int32_t i = 0; i < m->n; i++)
        for (int32_t k = 0; k < m->n; k++)
            bytes[i * m->n + k] =
                m->element_bytes *
                (kind == COLLECTIVE_ALL_TO_ALL
                     ? tensor_shard_part_overlap(whole, &m->before->shard[m->member[i]],
                                    &m->after->shard[m->member[k]])
                     : shard_elements(m, p, kind == COLLECTIVE_ALL_GATHER ? i : k));
    return pairs_ns(m, bytes);
}

/* Memoised, because many steps are priced and a group has as many hops as pairs. */
static const struct members *group_at(struct spmd_price *y, int32_t device, int32_t axis,
                                      bool joined)
{
    size_t n = (size_t)places_along(y, axis), all = (size_t)y->s->n_devices;
    if (!y->groups[axis]) y->groups[axis] = ARENA_ARRAY(y->a, struct members, all);
    struct members *g = &y->groups[axis][device];
    if (!g->member) {
        g->member = ARENA_ARRAY(y->a, int32_t, n);
        group_along(y, device, axis, g->member);
    }
    if (g->hop[joined]) return g;
    struct cost_link *hop = g->hop[joined] = ARENA_ARRAY(y->a, struct cost_link, n * n);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n; k++) {
            hop[i * n + k] = y->hop[(size_t)g->member[i] * all + (size_t)g->member[k]];
            if (joined) hop[i * n + k].latency_ns = 0;
        }
    return g;
}

static struct participants group_of(struct spmd_price *y, const struct priced *p, int32_t device,
                            struct arena *scratch)
{
    const struct members *g = group_at(y, device, p->axis, p->joined);
    return (struct participants){.y = y,
                         .n = places_along(y, p->axis),
                         .axis = p->axis,
                         .member = g->member,
                         .hop = g->hop[p->joined],
                         .before = shards_of(y, &p->whole, p->before),
                         .after = shards_of(y, &p->whole, p->after),
                         .element_bytes = p->element_bytes,
                         .joined = p->joined,
                         .scratch = scratch};
}

static const struct shards *dealt_out(const struct participants *m, enum op_kind kind)
{
    return kind == OP_group_reduce_scatter ? m->after : m->before;
}

/* Measured time, -1: none. Bucketed all-reduces and all-to-all have no single size for the lookup. */
static int64_t measured_ns(const struct participants *m, enum collective_kind k,
                           enum collective_algorithm algorithm, const struct shards *p)
{
    int64_t largest = 0;
    if (!m->y->measured || m->joined || k == COLLECTIVE_ALL_TO_ALL) return -1;
    for (int32_t i = 0; i < m->n; i++) largest = units_max(largest, shard_elements(m, p, i));
    int64_t bytes = (k == COLLECTIVE_ALL_REDUCE ? largest : m->n * largest) * m->element_bytes;
    return m->y->measured(m->y->of, k, algorithm, m->member, m->n, bytes);
}

/* Time of one group's collective by one algorithm; -1: not supported. */
static int64_t group_ns(struct participants *m, const struct shape *whole, enum op_kind kind,
                        enum collective_algorithm algorithm)
{
    const struct shards *p = dealt_out(m, kind);
    enum collective_kind k = kind == OP_group_all_to_all       ? COLLECTIVE_ALL_TO_ALL
                             : kind == OP_group_all_gather     ? COLLECTIVE_ALL_GATHER
                             : kind == OP_group_reduce_scatter ? COLLECTIVE_REDUCE_SCATTER
                                                               : COLLECTIVE_ALL_REDUCE;
    if (!collective_in_calls(k, algorithm)) return -1;
    int64_t ns = measured_ns(m, k, algorithm, p);
    if (ns >= 0) return ns;
    if (algorithm != ALGORITHM_RING && algorithm != ALGORITHM_PAIRS)
        return kind == SUM_OF_GRADIENTS ? -1 : rounds_ns(m, k, algorithm, p);
    return k == COLLECTIVE_ALL_REDUCE ? sum_ns(m, p) : spread_ns(m, p, whole, k, algorithm);
}

/* The cheapest allowed algorithm, ties to the first. If no allowed one is supported, the first supported one. */
static void price_step(struct spmd_price *y, struct priced *p)
{
    bool allowed = false;
    struct arena *scratch = arena_new();
    p->ns = -1;
    for (int w = 0; w < COLLECTIVE_ALGORITHM_COUNT; w++) {
        int64_t slowest = 0;
        bool may = y->algorithms >> w & 1;
        if (!collective_rounds_of((enum collective_algorithm)w)->round || (!may && p->ns >= 0)) continue;
        for (int32_t d = 0; d < y->s->n_devices && slowest >= 0; d++) {
            if (place_along(y, d, p->axis)) continue; /* one for each group */
            struct participants m = group_of(y, p, d, scratch);
            int64_t ns = group_ns(&m, &p->whole, p->kind, (enum collective_algorithm)w);
            y->n_collectives++, y->n_pairs += (int64_t)m.n * m.n;
            arena_reset(scratch);
            slowest = ns < 0 ? ns : units_max(slowest, ns);
        }
        if (slowest < 0) continue;
        if (p->ns >= 0 && allowed && slowest >= p->ns) continue;
        p->ns = slowest, p->algorithm = (enum collective_algorithm)w, allowed = may;
    }
    arena_free(scratch);
    if (p->ns < 0) BUG("no algorithm for %s", op_kind_name(p->kind));
}

/* Equal for equal questions. */
static uint64_t key_of(const struct priced *p)
{
    const int64_t question[] = {p->kind, p->axis, p->before, p->after, p->joined, p->element_bytes};
    uint64_t h = hash_map_key(0, question, sizeof question);
    return hash_map_key(h, p->whole.dim, (size_t)p->whole.rank * sizeof *p->whole.dim);
}

static enum status priced_step(struct spmd_price *y, struct priced *p, struct error *err)
{
    int32_t n = places_along(y, p->axis);
    if (n < 2 || p->kind == OP_local_slice || p->kind == OP_KIND_COUNT) return OK;
    if (n > 256)
        return error_set(err, ERR_INPUT, "%d devices along one mesh axis: expected at most 256", n);
    struct hash_entry *e = hash_map_at(&y->prices, key_of(p));
    if (e->pointer)
        *p = *(const struct priced *)e->pointer;
    else
        price_step(y, p), e->pointer = arena_copy(y->a, p, sizeof *p);
    return OK;
}

enum status spmd_step_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                         enum op_kind kind, int32_t axis, int32_t before, int32_t after,
                         int64_t *out_ns, struct error *err)
{
    struct priced p = {*whole, element_bytes, kind, axis, before, after, false, 0, ALGORITHM_RING};
    TRY(priced_step(y, &p, err));
    *out_ns = p.ns;
    return OK;
}

enum status spmd_step_algorithm(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                          enum op_kind kind, int32_t axis, int32_t before, int32_t after,
                          enum collective_algorithm *algorithm, bool *even, struct error *err)
{
    struct priced p = {*whole, element_bytes, kind, axis, before, after, false, 0, ALGORITHM_RING};
    TRY(priced_step(y, &p, err));
    *algorithm = p.algorithm, *even = true;
    for (int32_t d = 0; d < y->s->n_devices; d++) {
        if (place_along(y, d, axis)) continue;
        struct participants m = group_of(y, &p, d, NULL);
        for (int32_t i = 1; i < m.n; i++)
            *even &= shard_elements(&m, dealt_out(&m, kind), i) ==
                     shard_elements(&m, dealt_out(&m, kind), 0);
    }
    return OK;
}

enum status spmd_gradient_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                             int32_t axis, int32_t placement, bool joined, int64_t *out_ns,
                             struct error *err)
{
    struct priced p = {*whole, element_bytes, SUM_OF_GRADIENTS, axis, placement, placement, joined, 0, ALGORITHM_RING};
    TRY(priced_step(y, &p, err));
    *out_ns = p.ns;
    return OK;
}

enum status spmd_reduce_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                        int32_t axis, int32_t placement, int64_t *out_ns, struct error *err)
{
    return spmd_step_ns(y, whole, element_bytes, OP_group_all_reduce, axis, placement, placement,
                        out_ns, err);
}
