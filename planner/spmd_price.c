#include "planner/spmd_price.h"

#include "core/arena.h"

#include <string.h>

struct parts { /* of tensors of one shape in one placement */
    struct shape whole;
    int32_t placement;
    struct shape *local;      /* (n_devices) */
    struct tensor_part *part; /* (n_devices) */
};
struct priced {
    struct shape whole;
    int64_t element_bytes;
    enum op_kind kind;
    int32_t axis, before, after;
    int64_t ns;
};

struct spmd_price {
    struct arena *a;
    const struct sharding *s;
    struct cost_link *hop; /* (n_devices, n_devices) */
    uint32_t ways;
    const int32_t *node;
    int32_t n_placements, n_parts, n_prices;
    size_t placement_capacity, parts_capacity, price_capacity, n_table;
    struct placement *placements;
    struct parts **parts;
    struct priced *prices;
    int32_t *table; /* of prices, 0: none */
};

struct spmd_price *spmd_price_new(struct arena *a, const struct sharding *s, spmd_hop *hop,
                                  const void *of, uint32_t ways, const int32_t *node)
{
    struct spmd_price *y = ARENA_ARRAY(a, struct spmd_price, 1);
    int32_t n = s->n_devices;
    *y = (struct spmd_price){.a = a, .s = s, .ways = ways, .node = node, .n_table = 256};
    y->table = ARENA_ARRAY(a, int32_t, y->n_table);
    y->hop = ARENA_ARRAY(a, struct cost_link, (size_t)n * (size_t)n);
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n; k++)
            if (i != k) y->hop[i * n + k] = hop(of, i, k);
    spmd_placement(y, &(struct placement){0});
    return y;
}

/* --- placements and parts --- */

static bool same_words(const struct placement *x, const struct placement *y)
{
    for (int32_t k = 0; k < MESH_AXES_MAX; k++) {
        const struct on_axis *a = &x->axis[k], *b = &y->axis[k];
        if (a->how != b->how) return false;
        if (a->how != PLACED_SPLIT) continue;
        if (a->dim != b->dim || a->ratio != b->ratio || a->grain.n_units != b->grain.n_units ||
            a->grain.n_sections != b->grain.n_sections ||
            memcmp(a->grain.unit, b->grain.unit, sizeof a->grain.unit) != 0)
            return false;
    }
    return true;
}

int32_t spmd_placement(struct spmd_price *y, const struct placement *p)
{
    for (int32_t k = 0; k < y->n_placements; k++)
        if (same_words(&y->placements[k], p)) return k;
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

static const struct parts *parts_of(struct spmd_price *y, const struct shape *whole,
                                    int32_t placement)
{
    for (int32_t k = 0; k < y->n_parts; k++)
        if (y->parts[k]->placement == placement && shape_equal(&y->parts[k]->whole, whole))
            return y->parts[k];
    struct parts *x = ARENA_ARRAY(y->a, struct parts, 1);
    size_t n = (size_t)y->s->n_devices;
    *x = (struct parts){.whole = *whole, .placement = placement};
    x->local = ARENA_ARRAY(y->a, struct shape, n);
    x->part = ARENA_ARRAY(y->a, struct tensor_part, n);
    struct arena *scratch = arena_new();
    for (int32_t d = 0; d < y->s->n_devices; d++) {
        x->local[d] =
            placement_local(scratch, y->s, &y->placements[placement], whole, d, &x->part[d]);
        arena_reset(scratch);
    }
    arena_free(scratch);
    y->parts = arena_grow(y->a, y->parts, (size_t)y->n_parts, &y->parts_capacity, sizeof *y->parts);
    y->parts[y->n_parts++] = x;
    return x;
}

const struct shape *spmd_parts(struct spmd_price *y, const struct shape *whole, int32_t placement)
{
    return parts_of(y, whole, placement)->local;
}

/* --- steps on links of their own --- */

static int64_t later(int64_t x, int64_t y) { return x > y ? x : y; }

/* A message starts when both ends have come to the step; a member goes on when its own has left and the one to it is there. */
int64_t spmd_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop)
{
    int64_t now[2][256] = {{0}}, last = 0;
    for (int32_t k = 1; k < n; k++) {
        int64_t *from = now[k % 2 ? 0 : 1], *to = now[k % 2 ? 1 : 0];
        for (int32_t i = 0; i < n; i++) to[i] = from[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t other = (i + k) % n;
            const struct cost_link *h = &hop[i * n + other];
            if (!bytes[i * n + other]) continue;
            int64_t left = later(from[i], from[other]) + cost_occupancy_ns(h, bytes[i * n + other]);
            to[i] = later(to[i], left);
            to[other] = later(to[other], left + h->latency_ns);
        }
        for (int32_t i = 0; i < n; i++) last = later(last, to[i]);
    }
    return last;
}

int64_t spmd_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes, const struct cost_link *hop)
{
    int64_t slowest = 0;
    for (int32_t i = 0; i < n && chunk_bytes; i++) {
        const struct cost_link *h = &hop[i * n + (i + 1) % n];
        slowest = later(slowest, cost_occupancy_ns(h, chunk_bytes) + h->latency_ns);
    }
    return steps * slowest;
}

/* --- meetings of one group --- */

struct meet { /* members, by their places among the stage's devices */
    struct spmd_price *y;
    int32_t n, *member;
    struct cost_link *hop; /* (n, n) */
    const struct parts *before, *after;
    int64_t element_bytes;
};

/* Elements that both parts have: of each dimension the runs' overlap. */
static int64_t overlap(const struct shape *whole, const struct tensor_part *x,
                       const struct tensor_part *y)
{
    int64_t n = 1;
    for (int32_t d = 0; d < whole->rank; d++) {
        const struct run all = {0, whole->dim[d]}, *a = &all, *b = &all;
        int32_t na = 1, nb = 1;
        for (int32_t c = 0; c < x->n_cuts; c++)
            if (x->cut[c].dim == d) a = x->cut[c].run, na = x->cut[c].n_runs;
        for (int32_t c = 0; c < y->n_cuts; c++)
            if (y->cut[c].dim == d) b = y->cut[c].run, nb = y->cut[c].n_runs;
        int64_t sum = 0;
        for (int32_t i = 0; i < na; i++)
            for (int32_t k = 0; k < nb; k++) {
                int64_t first = later(a[i].first, b[k].first), end = a[i].first + a[i].n;
                if (b[k].first + b[k].n < end) end = b[k].first + b[k].n;
                sum += end > first ? end - first : 0;
            }
        n *= sum;
    }
    return n;
}

static int64_t part_elements(const struct meet *m, const struct parts *p, int32_t i)
{
    return shape_elements(&p->local[m->member[i]]);
}

/* Members on each node, where all nodes have as many, side by side, and more than one; else 0. */
static int32_t members_per_node(const struct meet *m)
{
    const int32_t *node = m->y->node;
    int32_t run = 1, per_node = 0;
    if (!node) return 0;
    for (int32_t i = 1; i <= m->n; i++, run++) {
        if (i < m->n && node[m->member[i]] == node[m->member[i - 1]]) continue;
        if (per_node && run != per_node) return 0;
        per_node = run, run = 0;
    }
    return per_node > 1 && per_node < m->n ? per_node : 0;
}

/* Inside nodes, between them, inside them. */
static int64_t tiers_ns(const struct meet *m, int64_t elements, int32_t per_node)
{
    int64_t inside = 0, between = 0;
    int32_t nodes = m->n / per_node;
    int64_t share = (elements + per_node - 1) / per_node, piece = (share + nodes - 1) / nodes;
    for (int32_t i = 0; i < m->n; i++) {
        int32_t next = i / per_node * per_node + (i + 1) % per_node, far = (i + per_node) % m->n;
        const struct cost_link *h = &m->hop[i * m->n + next], *f = &m->hop[i * m->n + far];
        inside = later(inside, cost_occupancy_ns(h, share * m->element_bytes) + h->latency_ns);
        between = later(between,
                        per_node * cost_occupancy_ns(f, piece * m->element_bytes) + f->latency_ns);
    }
    return 2 * (per_node - 1) * inside + 2 * (nodes - 1) * between;
}

static int64_t sum_ns(const struct meet *m, const struct parts *p)
{
    int64_t elements = part_elements(m, p, 0), chunk = (elements + m->n - 1) / m->n;
    int64_t ns = spmd_ring_ns(m->n, 2 * (m->n - 1), chunk * m->element_bytes, m->hop);
    int32_t per_node = m->y->ways & SPMD_TIERS ? members_per_node(m) : 0;
    int64_t tiers = per_node && elements ? tiers_ns(m, elements, per_node) : ns;
    return tiers < ns ? tiers : ns;
}

/* Everybody's part to everybody (all-gather), or everybody's term of each part to whom it belongs. */
static int64_t spread_ns(struct meet *m, const struct parts *p, bool gather)
{
    int64_t largest = 0, best = -1;
    for (int32_t i = 0; i < m->n; i++) largest = later(largest, part_elements(m, p, i));
    if (m->y->ways & SPMD_RING || !(m->y->ways & SPMD_PAIRS))
        best = spmd_ring_ns(m->n, m->n - 1, largest * m->element_bytes, m->hop);
    if (m->y->ways & SPMD_PAIRS) {
        int64_t *bytes = ARENA_ARRAY(m->y->a, int64_t, (size_t)m->n * (size_t)m->n);
        for (int32_t i = 0; i < m->n; i++)
            for (int32_t k = 0; k < m->n; k++)
                bytes[i * m->n + k] = part_elements(m, p, gather ? i : k) * m->element_bytes;
        int64_t ns = spmd_pairs_ns(m->n, bytes, m->hop);
        if (best < 0 || ns < best) best = ns;
    }
    return best;
}

static int64_t turn_ns(struct meet *m, const struct shape *whole)
{
    int64_t *bytes = ARENA_ARRAY(m->y->a, int64_t, (size_t)m->n * (size_t)m->n);
    for (int32_t i = 0; i < m->n; i++)
        for (int32_t k = 0; k < m->n; k++)
            if (i != k)
                bytes[i * m->n + k] =
                    m->element_bytes *
                    overlap(whole, &m->before->part[m->member[i]], &m->after->part[m->member[k]]);
    return spmd_pairs_ns(m->n, bytes, m->hop);
}

/* kind over the parts of before (gather, all-to-all) or after (reduce-scatter) of the group that `device` is in. */
static int64_t group_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                        enum op_kind kind, int32_t axis, int32_t before, int32_t after,
                        int32_t device)
{
    struct meet m = {.y = y, .n = y->s->mesh[axis], .element_bytes = element_bytes};
    m.member = ARENA_ARRAY(y->a, int32_t, (size_t)m.n);
    m.hop = ARENA_ARRAY(y->a, struct cost_link, (size_t)m.n * (size_t)m.n);
    sharding_group(y->s, device, axis, m.member);
    for (int32_t i = 0; i < m.n; i++)
        for (int32_t k = 0; k < m.n; k++)
            m.hop[i * m.n + k] = y->hop[m.member[i] * y->s->n_devices + m.member[k]];
    m.before = parts_of(y, whole, before), m.after = parts_of(y, whole, after);
    if (kind == OP_group_all_gather) return spread_ns(&m, m.before, true);
    if (kind == OP_group_reduce_scatter) return spread_ns(&m, m.after, false);
    if (kind == OP_group_all_to_all) return turn_ns(&m, whole);
    return sum_ns(&m, m.before);
}

static uint64_t hash_price(const struct priced *p)
{
    uint64_t h = (uint64_t)p->kind * 31 + (uint64_t)p->axis;
    h = h * 1000003 + (uint64_t)p->before, h = h * 1000003 + (uint64_t)p->after;
    h = h * 1000003 + (uint64_t)p->element_bytes;
    for (int32_t d = 0; d < p->whole.rank; d++) h = h * 1000003 + (uint64_t)p->whole.dim[d];
    return h * UINT64_C(0x9E3779B97F4A7C15) >> 20;
}

static size_t bucket_of(const struct spmd_price *y, const struct priced *p)
{
    for (size_t at = (size_t)hash_price(p);; at++) {
        int32_t id = y->table[at & (y->n_table - 1)] - 1;
        if (id < 0) return at & (y->n_table - 1);
        const struct priced *x = &y->prices[id];
        if (x->kind == p->kind && x->axis == p->axis && x->before == p->before &&
            x->after == p->after && x->element_bytes == p->element_bytes &&
            shape_equal(&x->whole, &p->whole))
            return at & (y->n_table - 1);
    }
}

static void keep_price(struct spmd_price *y, const struct priced *p)
{
    y->prices =
        arena_grow(y->a, y->prices, (size_t)y->n_prices, &y->price_capacity, sizeof *y->prices);
    y->prices[y->n_prices++] = *p;
    if (2 * (size_t)y->n_prices > y->n_table) {
        y->n_table *= 4;
        y->table = ARENA_ARRAY(y->a, int32_t, y->n_table);
        for (int32_t k = 0; k < y->n_prices; k++) y->table[bucket_of(y, &y->prices[k])] = k + 1;
    } else
        y->table[bucket_of(y, p)] = y->n_prices;
}

enum status spmd_step_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                         enum op_kind kind, int32_t axis, int32_t before, int32_t after,
                         int64_t *out_ns, struct error *err)
{
    struct priced p = {*whole, element_bytes, kind, axis, before, after, 0};
    int32_t n = y->s->mesh[axis];
    *out_ns = 0;
    if (n < 2 || kind == OP_take_part || kind == OP_KIND_COUNT) return OK;
    if (n > 256)
        return error_set(err, ERR_INPUT, "%d devices share a stage; at most 256 along one axis", n);
    int32_t id = y->table[bucket_of(y, &p)] - 1;
    if (id >= 0) {
        *out_ns = y->prices[id].ns;
        return OK;
    }
    for (int32_t d = 0; d < y->s->n_devices; d++) {
        if (sharding_place(y->s, d, axis)) continue; /* one for each group */
        p.ns = later(p.ns, group_ns(y, whole, element_bytes, kind, axis, before, after, d));
    }
    keep_price(y, &p);
    *out_ns = p.ns;
    return OK;
}

enum status spmd_sum_ns(struct spmd_price *y, const struct shape *whole, int64_t element_bytes,
                        int32_t axis, int32_t placement, int64_t *out_ns, struct error *err)
{
    return spmd_step_ns(y, whole, element_bytes, OP_group_all_reduce, axis, placement, placement,
                        out_ns, err);
}
