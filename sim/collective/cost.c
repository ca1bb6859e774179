/* Each algorithm is a sequence of passes: a ring, a line, a tree, rounds of pairs. A pass reads the instant at which each member
 * is free and writes the instant at which its share is over. This is the only state between passes, so unequal nodes and
 * shards need no special cases.
 * Instants saturate at MAX_NS, 73 years, which is reported at the end. */
#include "sim/collective/cost.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/collective/rounds.h"
#include "core/program/program.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#define MAX_NS (INT64_MAX / 4)
#define MAX_BYTES ((int64_t)1 << 50)

struct walk {
    const struct collective_case *c;
    const struct collective_hops *hops;
    struct arena *scratch;
    int64_t *free_ns; /* (members) end of each member's current pass */
};

/* --- shapes ---------------------------------------------------------------------------------- */

int64_t collective_chunk_of(int64_t elements, int32_t c, int32_t n)
{
    const struct collective g = {.elements = elements, .n_members = n};
    int64_t first, last;
    c %= n;
    collective_chunk(&g, c < 0 ? c + n : c, &first, &last);
    return last - first;
}

int32_t collective_pieces(const struct collective_case *c, int64_t elements)
{
    int64_t piece = c->piece_bytes > 0 ? c->piece_bytes : COLLECTIVE_PIECE_BYTES;
    int64_t bytes = elements * c->element_bytes, n = bytes / piece + (bytes % piece != 0);
    if (n > elements) n = elements;
    return n > COLLECTIVE_PIECES ? COLLECTIVE_PIECES : (int32_t)n;
}

/* Numbered in order: the lowest set bit is the height; a parent is one higher, on the side on which it exists. */
int32_t collective_parent(int32_t member, int32_t n)
{
    if (!member) return -1;
    int32_t low = member & -member, below = member ^ low;
    int64_t parent = (int64_t)below | (int64_t)low << 1;
    return parent < n ? (int32_t)parent : below;
}

/* --- checks ---------------------------------------------------------------------------------- */

static enum status check_algorithm(const struct collective_case *c, struct error *err)
{
    if ((int)c->kind < 0 || c->kind >= COLLECTIVE_KIND_COUNT || (int)c->algorithm < 0 ||
        c->algorithm >= COLLECTIVE_ALGORITHM_COUNT)
        return error_set(err, ERR_INPUT, "unknown kind or algorithm of a collective");
    if (!collective_can(c->kind, c->algorithm))
        return error_set(err, ERR_INPUT, "%s has no algorithm %s; choose %s",
                         collective_kind_name(c->kind), collective_algorithm_name(c->algorithm),
                         collective_choices(c->kind, false).text);
    const char *misfit = collective_misfit(c->algorithm, c->n_members, true);
    return misfit ? error_set(err, ERR_INPUT, "%s is for %s, not for %" PRId32,
                              collective_algorithm_name(c->algorithm), misfit, c->n_members)
                  : OK;
}

static enum status check_shards(const struct collective_case *c, struct error *err)
{
    int64_t left = c->elements;
    if (!c->shards) return OK;
    if (c->kind != COLLECTIVE_ALL_GATHER && c->kind != COLLECTIVE_REDUCE_SCATTER)
        return error_set(err, ERR_INPUT, "%s has no shards", collective_kind_name(c->kind));
    for (int32_t i = 0; i < c->n_members; i++) {
        if (c->shards[i] < 0 || c->shards[i] > left)
            return error_set(err, ERR_INPUT,
                             "shard %" PRId32 " of %" PRId64 " elements does not fit in %" PRId64,
                             i, c->shards[i], c->elements);
        left -= c->shards[i];
    }
    return left ? error_set(err, ERR_INPUT, "the shards leave %" PRId64 " of %" PRId64 " elements",
                            left, c->elements)
                : OK;
}

static enum status check_nodes(const struct collective_case *c, struct error *err)
{
    int32_t run = 1, first_run = 0;
    for (int32_t i = 1; c->node && i <= c->n_members; i++, run++) {
        if (i < c->n_members && c->node[i] == c->node[i - 1]) continue;
        if (i < c->n_members && c->node[i] < c->node[i - 1])
            return error_set(err, ERR_INPUT, "members of one node must be consecutive");
        if (!first_run) first_run = run;
        if (c->algorithm == ALGORITHM_HIERARCHICAL && run != first_run)
            return error_set(err, ERR_INPUT,
                             "hierarchical needs the same number of members on every node: one has %" PRId32
                             ", another %" PRId32,
                             first_run, run);
        run = 0;
    }
    return OK;
}

enum status collective_check(const struct collective_case *c, struct error *err)
{
    TRY(check_algorithm(c, err));
    if (c->n_members < 1 || c->n_members > COLLECTIVE_MEMBERS)
        return error_set(err, ERR_INPUT, "%" PRId32 " members: must be 1 to %d", c->n_members,
                         (int)COLLECTIVE_MEMBERS);
    if (c->element_bytes < 1 || c->elements < 0 || c->piece_bytes < 0 ||
        c->elements > MAX_BYTES / c->element_bytes / c->n_members)
        return error_set(err, ERR_INPUT,
                         "%" PRId64 " elements of %" PRId32 " bytes for %" PRId32
                         " members: the total must be at most 1 PiB",
                         c->elements, c->element_bytes, c->n_members);
    TRY(check_shards(c, err));
    return check_nodes(c, err);
}

/* --- passes ---------------------------------------------------------------------------------- */

struct moved {
    int64_t left_ns, arrival_ns;
};
static struct moved move(const struct cost_link *hop, int64_t ready_ns, int64_t bytes)
{
    int64_t left = ready_ns + cost_occupancy_ns(hop, bytes), arrival = left + hop->latency_ns;
    return (struct moved){left < MAX_NS ? left : MAX_NS, arrival < MAX_NS ? arrival : MAX_NS};
}

/* From each of the first n_hops members to the next one; the last is followed by the first. */
static struct cost_link *hops_of(const struct walk *w, const int32_t *member, int32_t n,
                                 int32_t n_hops)
{
    struct cost_link *hops = ARENA_ARRAY(w->scratch, struct cost_link, (size_t)n);
    for (int32_t i = 0; i < n_hops; i++)
        hops[i] = w->hops->hop(w->hops->of, member[i], member[(i + 1) % n]);
    return hops;
}

static bool alike(const struct walk *w, const int32_t *member, int32_t n, const int64_t *chunk,
                  const struct cost_link *hops)
{
    for (int32_t i = 1; i < n; i++)
        if (chunk[i] != chunk[0] || hops[i].bandwidth_Bps != hops[0].bandwidth_Bps ||
            hops[i].latency_ns != hops[0].latency_ns ||
            w->free_ns[member[i]] != w->free_ns[member[0]])
            return false;
    return true;
}

/* In step k the i-th of n members sends chunk (i + ahead − k) mod n to the next one. */
static void ring(const struct walk *w, const int32_t *member, int32_t n, const int64_t *chunk,
                 int32_t ahead, int32_t steps)
{
    if (n < 2) return;
    const struct cost_link *hops = hops_of(w, member, n, n);
    int64_t *now = ARENA_ARRAY(w->scratch, int64_t, (size_t)n),
            *next = ARENA_ARRAY(w->scratch, int64_t, (size_t)n);
    if (alike(w, member, n, chunk, hops)) {
        int64_t each = move(&hops[0], 0, chunk[0]).arrival_ns, t = w->free_ns[member[0]];
        if (!chunk[0]) each = 0;
        t = each && steps > (MAX_NS - t) / each ? MAX_NS : t + steps * each;
        for (int32_t i = 0; i < n; i++) w->free_ns[member[i]] = t;
        return;
    }
    for (int32_t i = 0; i < n; i++) now[i] = w->free_ns[member[i]];
    for (int32_t k = 0; k < steps; k++) {
        for (int32_t i = 0; i < n; i++) next[i] = now[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t to = (i + 1) % n, c = (i + ahead - k) % n;
            int64_t bytes = chunk[c < 0 ? c + n : c];
            if (!bytes) continue;
            struct moved m = move(&hops[i], units_max(now[i], now[to]), bytes);
            next[i] = units_max(next[i], m.left_ns);
            next[to] = units_max(next[to], m.arrival_ns);
        }
        int64_t *swap = now;
        now = next, next = swap;
    }
    for (int32_t i = 0; i < n; i++) w->free_ns[member[i]] = now[i];
}

/* Down a line of n members in pieces: a member forwards a piece after its arrival and after the previous piece. */
static void line(const struct walk *w, const int32_t *member, int32_t n, int64_t elements)
{
    int32_t pieces = collective_pieces(w->c, elements);
    if (n < 2) return;
    const struct cost_link *hops = hops_of(w, member, n, n - 1);
    int64_t *start = ARENA_ARRAY(w->scratch, int64_t, (size_t)n),
            *left = ARENA_ARRAY(w->scratch, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) start[i] = w->free_ns[member[i]];
    for (int32_t p = 0; p < pieces; p++) {
        int64_t bytes = collective_chunk_of(elements, p, pieces) * w->c->element_bytes;
        int64_t here = start[0];
        for (int32_t i = 0; i + 1 < n; i++) {
            int64_t ready = units_max(units_max(here, start[i]), start[i + 1]);
            struct moved m = move(&hops[i], units_max(ready, left[i]), bytes);
            left[i] = m.left_ns;
            here = m.arrival_ns;
            w->free_ns[member[i]] = units_max(w->free_ns[member[i]], m.left_ns);
            w->free_ns[member[i + 1]] = units_max(w->free_ns[member[i + 1]], m.arrival_ns);
        }
    }
}

/* All members, root 0: reduction upwards if `up`, results downwards. Children have a lower lowest bit than their parents, so that
 * iterating over the bits in order visits children first. */
static void tree(const struct walk *w, bool up)
{
    int32_t n = w->c->n_members, pieces = collective_pieces(w->c, w->c->elements), at = 0;
    int32_t *order = ARENA_ARRAY(w->scratch, int32_t, (size_t)n);
    int64_t *start = ARENA_ARRAY(w->scratch, int64_t, (size_t)n),
            *up_left = ARENA_ARRAY(w->scratch, int64_t, (size_t)n),
            *down_left = ARENA_ARRAY(w->scratch, int64_t, (size_t)n),
            *here = ARENA_ARRAY(w->scratch, int64_t, (size_t)n);
    for (int64_t low = 1; low < n; low *= 2)
        for (int64_t i = low; i < n; i += 2 * low) order[at++] = (int32_t)i;
    for (int32_t i = 0; i < n; i++) start[i] = w->free_ns[i];
    for (int32_t p = 0; p < pieces; p++) {
        int64_t bytes = collective_chunk_of(w->c->elements, p, pieces) * w->c->element_bytes;
        for (int32_t i = 0; i < n; i++) here[i] = start[i];
        for (int32_t k = 0; up && k < n - 1; k++) {
            int32_t i = order[k], to = collective_parent(i, n);
            struct cost_link hop = w->hops->hop(w->hops->of, i, to);
            struct moved m =
                move(&hop, units_max(units_max(here[i], start[to]), up_left[i]), bytes);
            up_left[i] = m.left_ns;
            here[to] = units_max(here[to], m.arrival_ns);
            w->free_ns[i] = units_max(w->free_ns[i], m.left_ns);
        }
        w->free_ns[0] = units_max(w->free_ns[0], here[0]);
        for (int32_t k = n - 2; k >= 0; k--) {
            int32_t i = order[k], from = collective_parent(i, n);
            struct cost_link hop = w->hops->hop(w->hops->of, from, i);
            struct moved m =
                move(&hop, units_max(units_max(here[from], start[i]), down_left[i]), bytes);
            down_left[i] = m.left_ns;
            here[i] = m.arrival_ns;
            w->free_ns[from] = units_max(w->free_ns[from], m.left_ns);
            w->free_ns[i] = units_max(w->free_ns[i], m.arrival_ns);
        }
    }
}

static void pairs(const struct walk *w)
{
    int32_t n = w->c->n_members;
    int64_t *now = ARENA_ARRAY(w->scratch, int64_t, (size_t)n);
    for (int32_t k = 1; k < n; k++) {
        for (int32_t i = 0; i < n; i++) now[i] = w->free_ns[i];
        for (int32_t i = 0; i < n; i++) {
            int32_t to = (i + k) % n;
            int64_t bytes = collective_chunk_of(w->c->elements, to, n) * w->c->element_bytes;
            if (!bytes) continue;
            struct cost_link hop = w->hops->hop(w->hops->of, i, to);
            struct moved m = move(&hop, units_max(now[i], now[to]), bytes);
            w->free_ns[i] = units_max(w->free_ns[i], m.left_ns);
            w->free_ns[to] = units_max(w->free_ns[to], m.arrival_ns);
        }
    }
}

/* --- rounds ---------------------------------------------------------------------------------- */

struct collective *collective_of_case(struct arena *a, const struct collective_case *c)
{
    size_t n = (size_t)c->n_members;
    struct collective *m = ARENA_ARRAY(a, struct collective, 1);
    int64_t *first = ARENA_ARRAY(a, int64_t, n), *count = ARENA_ARRAY(a, int64_t, n), at = 0;
    int32_t *tier = ARENA_ARRAY(a, int32_t, n);
    for (int32_t i = 0; i < c->n_members; i++) {
        first[i] = at;
        at += count[i] =
            c->shards ? c->shards[i] : collective_chunk_of(c->elements, i, c->n_members);
    }
    *m = (struct collective){.kind = c->kind,
                             .algorithm = c->algorithm,
                             .n_members = c->n_members,
                             .elements = c->elements,
                             .whole = {1, {c->elements}},
                             .from = {0, 1, first, count},
                             .to = {0, 1, first, count}};
    if (collective_rounds_of(c->algorithm)->tiers) {
        if (c->node) (void)collective_tiers_of(c->node, c->n_members, tier);
        m->tier = tier;
        collective_set_tiers(a, m);
    }
    m->most = collective_max(m);
    return m;
}

static void rounds(const struct walk *w)
{
    int64_t *next = ARENA_ARRAY(w->scratch, int64_t, (size_t)w->c->n_members);
    collective_rounds_ns(collective_of_case(w->scratch, w->c), w->c->element_bytes, w->hops,
                         w->free_ns, next);
}

/* --- algorithms ------------------------------------------------------------------------------------ */

static int32_t *members(const struct walk *w, int32_t first, int32_t n, int32_t step)
{
    int32_t *out = ARENA_ARRAY(w->scratch, int32_t, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        int32_t m = (first + i * step) % w->c->n_members;
        out[i] = m < 0 ? m + w->c->n_members : m;
    }
    return out;
}

static int64_t *chunks(const struct walk *w, int64_t elements, int32_t n)
{
    int64_t *out = ARENA_ARRAY(w->scratch, int64_t, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        out[i] = collective_chunk_of(elements, i, n) * w->c->element_bytes;
    return out;
}

static int64_t shard(const struct collective_case *c, int32_t i)
{
    return c->shards ? c->shards[i] : collective_chunk_of(c->elements, i, c->n_members);
}

/* All-gather: member i starts with shard i; reduce-scatter: member i ends with it. */
static void shards_round(const struct walk *w)
{
    const struct collective_case *c = w->c;
    int32_t n = c->n_members;
    int64_t *chunk = ARENA_ARRAY(w->scratch, int64_t, (size_t)n), most = 0;
    for (int32_t i = 0; i < n; i++) {
        chunk[i] = shard(c, i) * c->element_bytes;
        most = units_max(most, chunk[i]);
    }
    for (int32_t i = 0; c->algorithm == ALGORITHM_PADDED && i < n; i++) chunk[i] = most;
    ring(w, members(w, 0, n, 1), n, chunk, c->kind == COLLECTIVE_ALL_GATHER ? 0 : -1, n - 1);
}

static void grouped(const struct walk *w)
{
    int32_t n = w->c->n_members, last = w->c->kind == COLLECTIVE_ALL_GATHER ? 0 : 1;
    for (int32_t i = 0; i < n; i++) line(w, members(w, i + last, n, 1), n, shard(w->c, i));
}

static int32_t node_end(const struct collective_case *c, int32_t first)
{
    int32_t end = first + 1;
    if (!c->node) return c->n_members;
    while (end < c->n_members && c->node[end] == c->node[first]) end++;
    return end;
}

static void leader(const struct walk *w)
{
    const struct collective_case *c = w->c;
    int32_t *leaders = ARENA_ARRAY(w->scratch, int32_t, (size_t)c->n_members), n = 0;
    for (int32_t i = 0, end; i < c->n_members; i = end) {
        end = node_end(c, i);
        leaders[n++] = i;
        line(w, members(w, end - 1, end - i, -1), end - i, c->elements);
    }
    ring(w, leaders, n, chunks(w, c->elements, n), 0, 2 * (n - 1));
    for (int32_t i = 0, end; i < c->n_members; i = end) {
        end = node_end(c, i);
        line(w, members(w, i, end - i, 1), end - i, c->elements);
    }
}

static void sharded(const struct walk *w)
{
    const struct collective_case *c = w->c;
    int32_t g = node_end(c, 0), nodes = c->n_members / g;
    for (int32_t i = 0; i < nodes; i++)
        ring(w, members(w, i * g, g, 1), g, chunks(w, c->elements, g), 0, g - 1);
    for (int32_t l = 0; l < g; l++) /* after its reduce-scatter local rank l has chunk l + 1 */
        ring(w, members(w, l, nodes, g), nodes,
             chunks(w, collective_chunk_of(c->elements, l + 1, g), nodes), 0, 2 * (nodes - 1));
    for (int32_t i = 0; i < nodes; i++)
        ring(w, members(w, i * g, g, 1), g, chunks(w, c->elements, g), 1, g - 1);
}

static void hierarchical(const struct walk *w)
{
    if (w->c->kind == COLLECTIVE_ALL_REDUCE)
        sharded(w);
    else
        rounds(w);
}

static void ring_all(const struct walk *w)
{
    const struct collective_case *c = w->c;
    int32_t n = c->n_members;
    if (c->kind != COLLECTIVE_ALL_REDUCE)
        shards_round(w);
    else
        ring(w, members(w, 0, n, 1), n, chunks(w, c->elements, n), 0, 2 * (n - 1));
}

static void pairs_all(const struct walk *w)
{
    if (w->c->kind == COLLECTIVE_ALL_TO_ALL)
        pairs(w);
    else
        rounds(w);
}

static void tree_all(const struct walk *w) { tree(w, w->c->kind == COLLECTIVE_ALL_REDUCE); }

static void chain(const struct walk *w)
{
    const struct collective_case *c = w->c;
    int32_t n = c->n_members;
    struct collective_case whole = *c;
    struct walk there = *w;
    if (c->kind == COLLECTIVE_ALL_REDUCE) { /* the full vector is one piece */
        whole.piece_bytes = units_max(1, c->elements * c->element_bytes);
        there.c = &whole;
    }
    line(&there, members(w, 0, n, 1), n, c->elements);
    if (c->kind == COLLECTIVE_ALL_REDUCE) line(&there, members(w, n - 1, n, -1), n, c->elements);
}

/* Closed forms; an algorithm in rounds needs none. */
static void all(const struct walk *w)
{
    static void (*const forms[COLLECTIVE_ALGORITHM_COUNT])(const struct walk *) = {
        [ALGORITHM_RING] = ring_all,       [ALGORITHM_PAIRS] = pairs_all,
        [ALGORITHM_TREE] = tree_all,       [ALGORITHM_LEADER] = leader,
        [ALGORITHM_CHAIN] = chain,         [ALGORITHM_HIERARCHICAL] = hierarchical,
        [ALGORITHM_PADDED] = shards_round, [ALGORITHM_GROUPED] = grouped};
    if (forms[w->c->algorithm])
        forms[w->c->algorithm](w);
    else if (collective_rounds_of(w->c->algorithm)->round)
        rounds(w);
    else
        BUG("algorithm %s has neither a closed form nor rounds",
            collective_algorithm_name(w->c->algorithm));
}

enum status collective_ns(const struct collective_case *c, const struct collective_hops *h,
                          const int64_t *start_ns, int64_t *end_ns, int64_t *out_ns,
                          struct error *err)
{
    TRY(collective_check(c, err));
    struct arena *scratch = arena_new();
    struct walk w = {c, h, scratch, ARENA_ARRAY(scratch, int64_t, (size_t)c->n_members)};
    for (int32_t i = 0; start_ns && i < c->n_members; i++) w.free_ns[i] = start_ns[i];
    all(&w);
    *out_ns = 0;
    for (int32_t i = 0; i < c->n_members; i++) {
        *out_ns = units_max(*out_ns, w.free_ns[i]);
        if (end_ns) end_ns[i] = w.free_ns[i];
    }
    arena_free(scratch);
    if (*out_ns < MAX_NS) return OK;
    return error_set(err, ERR_INPUT, "%s takes more than 73 years", collective_kind_name(c->kind));
}

void collective_split(int32_t k, const double *ring_Bps, int64_t elements, int64_t *out)
{
    double sum = 0;
    int64_t left = elements;
    for (int32_t i = 0; i < k; i++) sum += ring_Bps[i];
    for (int32_t i = 0; i < k; i++) {
        out[i] = (int64_t)floor((double)elements * (ring_Bps[i] / sum));
        if (out[i] > left) out[i] = left; /* doubles beyond 2^53 */
        left -= out[i];
    }
    while (left > 0) { /* fewer than k turns, except for rounding of very large counts */
        int32_t best = 0;
        double most = -INFINITY;
        for (int32_t i = 0; i < k; i++) {
            double owed = (double)elements * (ring_Bps[i] / sum) - (double)out[i];
            if (owed > most) most = owed, best = i;
        }
        int64_t step = left > k ? left / k : 1;
        out[best] += step;
        left -= step;
    }
}
