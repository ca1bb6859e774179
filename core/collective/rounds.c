/* core/collective/rounds.c - the messages of each algorithm, round by round.
 *
 * Rings forward pieces: in step k of a ring of n the member at place i sends piece i−k when gathering, i−1−k when
 * reducing, and receives the previous one. A hierarchical collective is a sequence of such rings: inside a
 * tier they forward blocks, between tiers the shards of one block. A reducing ring leaves piece i at place i, where
 * a gathering one begins.
 */
#include "core/collective/rounds.h"

#include "core/base/arena.h"

static int32_t modulo(int32_t i, int32_t n) { return (i % n + n) % n; }

/* ---- tiers ------------------------------------------------------------------------------------ */

int32_t collective_tiers_of(const int32_t *node, int32_t n, int32_t *out)
{
    int32_t n_tiers = 0, each = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t k = 0;
        while (k < i && node[k] != node[i]) k++;
        out[i] = k < i ? out[k] : n_tiers++;
        each += out[i] == 0;
    }
    for (int32_t t = 1; t < n_tiers; t++) {
        int32_t here = 0;
        for (int32_t i = 0; i < n; i++) here += out[i] == t;
        if (here != each) return 0;
    }
    return each;
}

/* Elements of the part at a place: all_reduce's even chunks, or a member's. */
static int64_t shard_elements(const struct collective *m, int32_t place, const int32_t *at)
{
    int64_t first, last;
    if (m->kind == COLLECTIVE_ALL_REDUCE) {
        collective_chunk(m, place, &first, &last);
        return last - first;
    }
    return collective_elements(m, at[place], at[place]);
}

void collective_set_tiers(struct arena *a, struct collective *m)
{
    int32_t *place = ARENA_ARRAY(a, int32_t, (size_t)m->n_members),
            *at = ARENA_ARRAY(a, int32_t, (size_t)m->n_members);
    int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)m->n_members + 1);
    m->n_tiers = 0;
    for (int32_t i = 0; i < m->n_members; i++)
        if (m->tier[i] >= m->n_tiers) m->n_tiers = m->tier[i] + 1;
    for (int32_t i = 0; i < m->n_members; i++) {
        place[i] = m->tier[i];
        for (int32_t k = 0; k < i; k++) place[i] += m->tier[k] == m->tier[i] ? m->n_tiers : 0;
        at[place[i]] = i;
    }
    for (int32_t p = 0; p < m->n_members; p++) first[p + 1] = first[p] + shard_elements(m, p, at);
    m->place = place, m->at = at, m->first = first;
}

/* ---- rounds of a ring ------------------------------------------------------------------------- */

struct ring {                  /* a member's position in a ring, for some rounds */
    int32_t n, self;           /* places, and this member's */
    int32_t step;              /* of the ring's */
    bool sums, blocks; /* pieces are blocks: inside a tier */
};

/* Elements [*first, *first + what is returned) of a ring's piece, as on the wire; *own: those that are not padding. */
typedef int64_t piece_of(const struct collective *m, int32_t member, const struct ring *r,
                         int32_t k, int64_t *first, int64_t *own);

/* Member `self` of the ring passes a piece on from the member at the place before it to the one behind. */
static struct collective_round pass_on(const struct collective *m, int32_t member, const struct ring *r,
                                   int32_t to, int32_t from, piece_of *piece)
{
    int32_t out = r->sums ? r->self - 1 - r->step : r->self - r->step;
    int64_t own;
    struct collective_round s = {.to = to, .from = from};
    s.send = piece(m, member, r, out, &s.out_first, &own);
    s.receive = piece(m, member, r, out - 1, &s.in_first, &own);
    s.adds = r->sums ? own : 0;
    return s;
}

/* ---- ring ------------------------------------------------------------------------------------- */

static int32_t buffer_ring_count(const struct collective *m)
{
    return (m->kind == COLLECTIVE_ALL_REDUCE ? 2 : 1) * (m->n_members - 1);
}

static bool ring_sends(const struct collective *m, int32_t from, int32_t to)
{
    return to == (from + 1) % m->n_members;
}

static int64_t ring_piece(const struct collective *m, int32_t member, const struct ring *r,
                          int32_t k, int64_t *first, int64_t *own)
{
    int64_t last;
    (void)member;
    k = modulo(k, r->n);
    if (m->kind == COLLECTIVE_ALL_REDUCE) {
        collective_chunk(m, k, first, &last);
        return *own = last - *first;
    }
    *first = k * m->most, *own = collective_elements(m, k, k);
    return m->most;
}

static struct collective_round ring_round(const struct collective *m, int32_t member, int32_t round)
{
    int32_t n = m->n_members;
    bool sums = m->kind != COLLECTIVE_ALL_GATHER && round < n - 1;
    struct ring r = {n, member, !sums && round >= n - 1 ? round - (n - 1) : round, sums, false};
    return pass_on(m, member, &r, modulo(member + 1, n), modulo(member - 1, n), ring_piece);
}

static int64_t ring_chunk_first(const struct collective *m, int32_t member)
{
    return member * m->most;
}

static int64_t ring_most(const struct collective *m)
{
    int64_t most = 0;
    if (m->kind == COLLECTIVE_ALL_REDUCE)
        return (shape_elements(&m->whole) + m->n_members - 1) / m->n_members;
    for (int32_t i = 0; i < m->n_members; i++) {
        int64_t e = collective_elements(m, i, i);
        if (e > most) most = e;
    }
    return most;
}

const struct collective_rounds collective_rounds_ring = {.padded = true,
                                                         .count = buffer_ring_count,
                                                         .round = ring_round,
                                                         .sends = ring_sends,
                                                         .chunk_first = ring_chunk_first,
                                                         .most = ring_most};

/* ---- pairs ------------------------------------------------------------------------------------ */

static int32_t pairs_count(const struct collective *m) { return m->n_members - 1; }

static bool pairs_sends(const struct collective *m, int32_t from, int32_t to)
{
    (void)m;
    return from != to;
}

static struct collective_round pairs_round(const struct collective *m, int32_t i, int32_t round)
{
    int32_t n = m->n_members;
    struct collective_round s = {.to = modulo(i + round + 1, n), .from = modulo(i - round - 1, n)};
    s.send = collective_elements(m, i, s.to);
    s.receive = collective_elements(m, s.from, i);
    s.adds = m->kind == COLLECTIVE_REDUCE_SCATTER ? s.receive : 0;
    return s;
}

/* The part that an all_to_all member keeps counts too, because it uses the same staging. */
static int64_t pairs_most(const struct collective *m)
{
    int64_t most = 0;
    for (int32_t i = 0; i < m->n_members; i++)
        for (int32_t k = 0; k < (m->kind == COLLECTIVE_ALL_TO_ALL ? m->n_members : 1); k++) {
            int64_t e = collective_elements(m, i, m->kind == COLLECTIVE_ALL_TO_ALL ? k : i);
            if (e > most) most = e;
        }
    return most;
}

const struct collective_rounds collective_rounds_pairs = {.direct = true,
                                                          .count = pairs_count,
                                                          .round = pairs_round,
                                                          .sends = pairs_sends,
                                                          .most = pairs_most};

/* ---- hierarchical ----------------------------------------------------------------------------- */

static int32_t hierarchical_count(const struct collective *m)
{
    int32_t once = m->n_tiers - 1 + m->n_members / m->n_tiers - 1;
    return m->kind == COLLECTIVE_ALL_REDUCE ? 2 * once : once;
}

static bool hierarchical_sends(const struct collective *m, int32_t i, int32_t k)
{
    int32_t across = m->n_tiers, p = m->place[i], q = m->place[k];
    if (m->tier[i] == m->tier[k]) return q == (p + across) % m->n_members;
    return p / across == q / across && m->tier[k] == (m->tier[i] + 1) % across;
}

/* Which ring a round is of: of tiers inside, between, between, inside those that there are. */
static struct ring ring_of(const struct collective *m, int32_t member, int32_t step)
{
    bool sums = m->kind != COLLECTIVE_ALL_GATHER;
    int32_t across = m->n_tiers, inside = m->n_members / across;
    int32_t place = m->place[member], once = across + inside - 2;
    if (sums && step >= once) sums = false, step -= once;
    bool blocks = sums ? step < inside - 1 : step >= across - 1;
    if (sums && !blocks) step -= inside - 1;
    if (!sums && blocks) step -= across - 1;
    return (struct ring){.n = blocks ? inside : across,
                         .self = blocks ? place / across : place % across,
                         .step = step,
                         .sums = sums,
                         .blocks = blocks};
}

/* The member at place k of the ring. */
static int32_t member_at(const struct collective *m, int32_t member, const struct ring *r,
                         int32_t k)
{
    int32_t p = m->place[member], t = m->n_tiers;
    k = modulo(k, r->n);
    return m->at[r->blocks ? k * t + p % t : p / t * t + k];
}

static int64_t hierarchical_piece(const struct collective *m, int32_t member, const struct ring *r,
                                  int32_t k, int64_t *first, int64_t *own)
{
    int32_t t = m->n_tiers;
    k = modulo(k, r->n);
    int32_t p = r->blocks ? k * t : m->place[member] / t * t + k;
    *first = m->first[p];
    return *own = m->first[r->blocks ? p + t : p + 1] - *first;
}

static struct collective_round hierarchical_round(const struct collective *m, int32_t member,
                                              int32_t round)
{
    struct ring r = ring_of(m, member, round);
    return pass_on(m, member, &r, member_at(m, member, &r, r.self + 1),
                   member_at(m, member, &r, r.self - 1), hierarchical_piece);
}

static int64_t hierarchical_chunk_first(const struct collective *m, int32_t member)
{
    return m->first[m->place[member]];
}

/* Blocks. */
static int64_t hierarchical_most(const struct collective *m)
{
    int64_t most = 0;
    for (int32_t at = 0; at < m->n_members; at += m->n_tiers) {
        int64_t e = m->first[at + m->n_tiers] - m->first[at];
        if (e > most) most = e;
    }
    return most;
}

const struct collective_rounds collective_rounds_hierarchical = {.tiers = true,
                                                                 .count = hierarchical_count,
                                                                 .round = hierarchical_round,
                                                                 .sends = hierarchical_sends,
                                                                 .chunk_first =
                                                                     hierarchical_chunk_first,
                                                                 .most = hierarchical_most};

/* ---- halving-doubling ------------------------------------------------------------------------- */

static int64_t elements_of(const struct collective *m)
{
    return collective_of_tensor(m) ? shape_elements(&m->whole) : m->elements;
}

struct halving {
    int32_t p, levels, pairs; /* p = 2^levels ranks; the first so many pairs of members have one rank each */
    int32_t rank;             /* this member's; -1: its neighbour has its vector */
};

static struct halving halving_of(const struct collective *m, int32_t member)
{
    struct halving h = {.p = 1};
    while (2 * h.p <= m->n_members) h.p *= 2, h.levels++;
    h.pairs = m->n_members - h.p;
    h.rank = member >= 2 * h.pairs ? member - h.pairs : member % 2 ? member / 2 : -1;
    return h;
}

static int32_t member_of_rank(const struct halving *h, int32_t rank)
{
    return rank < h->pairs ? 2 * rank + 1 : rank + h->pairs;
}

/* What a rank adds after so many halvings. */
static int64_t half_of(const struct collective *m, const struct halving *h, int32_t rank, int32_t halvings, int64_t *first)
{
    int32_t c = 0;
    for (int32_t j = 0; j < halvings; j++) c = 2 * c + (rank >> j & 1);
    *first = collective_chunk_start(elements_of(m), c << (h->levels - halvings), h->p);
    return collective_chunk_start(elements_of(m), (c + 1) << (h->levels - halvings), h->p) - *first;
}

static int32_t halving_count(const struct collective *m)
{
    struct halving h = halving_of(m, 0);
    return 2 * h.levels + (h.pairs ? 2 : 0);
}

static bool halving_sends(const struct collective *m, int32_t from, int32_t to)
{
    struct halving f = halving_of(m, from), t = halving_of(m, to);
    if (f.rank < 0 || t.rank < 0) return from / 2 == to / 2;
    int32_t apart = f.rank ^ t.rank;
    return (apart & (apart - 1)) == 0;
}

/* Before (sums) or after: all elements between a member without a rank and its neighbour. */
static struct collective_round fold_pair(const struct collective *m, const struct halving *h, int32_t member, bool sums)
{
    struct collective_round s = {.to = -1, .from = -1};
    if (member >= 2 * h->pairs) return s;
    if ((h->rank < 0) == sums)
        s.to = member ^ 1, s.send = elements_of(m);
    else
        s.from = member ^ 1, s.receive = elements_of(m), s.adds = sums ? s.receive : 0;
    return s;
}

static struct collective_round halving_round(const struct collective *m, int32_t member, int32_t round)
{
    struct halving h = halving_of(m, member);
    int32_t last = halving_count(m) - 1, step = round - (h.pairs > 0);
    if (h.pairs && (round == 0 || round == last)) return fold_pair(m, &h, member, round == 0);
    struct collective_round s = {.to = -1, .from = -1};
    if (h.rank < 0) return s;
    bool sums = step < h.levels;
    int32_t level = sums ? step : 2 * h.levels - 1 - step, other = h.rank ^ (1 << level);
    s.to = s.from = member_of_rank(&h, other);
    s.send = half_of(m, &h, sums ? other : h.rank, level + 1, &s.out_first);
    s.receive = half_of(m, &h, sums ? h.rank : other, level + 1, &s.in_first);
    s.adds = sums ? s.receive : 0;
    return s;
}

static int64_t halving_most(const struct collective *m)
{
    int64_t all = elements_of(m);
    return halving_of(m, 0).pairs ? all : all - all / 2;
}

const struct collective_rounds collective_rounds_halving_doubling = {
    .count = halving_count, .round = halving_round, .sends = halving_sends, .most = halving_most};

/* ---- double tree ------------------------------------------------------------------------------ */

static int32_t tree_levels(int32_t n)
{
    int32_t levels = 0;
    while (1 << levels < n) levels++;
    return levels;
}

static int32_t tree_count(const struct collective *m) { return 2 * tree_levels(m->n_members); }

/* Position of a member in a tree; the second's differ in their lowest bit, and leaves of one tree are not those of the other. */
static int32_t tree_position(int32_t n, int32_t tree, int32_t member)
{
    if (!tree) return member;
    return n % 2 ? (member + 1) % n : n - 1 - member;
}

static int32_t tree_member(int32_t n, int32_t tree, int32_t position)
{
    if (!tree) return position;
    return n % 2 ? modulo(position - 1, n) : n - 1 - position;
}

static bool tree_sends(const struct collective *m, int32_t from, int32_t to)
{
    for (int32_t tree = 0; tree < 2; tree++) {
        int32_t x = tree_position(m->n_members, tree, from), y = tree_position(m->n_members, tree, to),
                child = x > y ? x : y, apart = x > y ? x - y : y - x;
        if (apart == (child & -child)) return true;
    }
    return false;
}

static struct collective_round tree_round(const struct collective *m, int32_t member, int32_t round)
{
    struct collective_round s = {.to = -1, .from = -1};
    int32_t n = m->n_members, levels = tree_levels(n);
    bool sums = round < levels;
    int32_t far = 1 << (sums ? round : 2 * levels - 1 - round);
    for (int32_t tree = 0; tree < 2; tree++) {
        int32_t x = tree_position(n, tree, member);
        bool child = x % (2 * far) == far, parent = x % (2 * far) == 0 && x + far < n;
        if (!child && !parent) continue;
        int32_t other = tree_member(n, tree, child ? x - far : x + far);
        int64_t first = collective_chunk_start(elements_of(m), tree, 2),
                count = collective_chunk_start(elements_of(m), tree + 1, 2) - first;
        if (child == sums)
            s.to = other, s.send = count, s.out_first = first;
        else
            s.from = other, s.receive = count, s.in_first = first, s.adds = sums ? count : 0;
    }
    return s;
}

static int64_t tree_most(const struct collective *m) { return elements_of(m) - elements_of(m) / 2; }

const struct collective_rounds collective_rounds_double_tree = {
    .count = tree_count, .round = tree_round, .sends = tree_sends, .most = tree_most};

/* ---- all -------------------------------------------------------------------------------------- */

const struct collective_rounds collective_rounds_none = {0};

const struct collective_rounds *collective_rounds_of(enum collective_algorithm w)
{
    static const struct collective_rounds *const rows[COLLECTIVE_ALGORITHM_COUNT] = {
#define X(id, name, kinds, native, rounds) &collective_rounds_##rounds,
        COLLECTIVE_ALGORITHMS(X)
#undef X
    };
    return rows[w];
}

const char *collective_misfit(enum collective_algorithm w, int32_t n, bool tiers)
{
    const struct collective_rounds *by = collective_rounds_of(w);
    if (by->tiers && !tiers)
        return "members on several nodes, equally many and at least two on each";
    return by->fits && !by->fits(n) ? by->members : NULL;
}

int64_t collective_chunk_first(const struct collective *m, int32_t member)
{
    return collective_rounds_of(m->algorithm)->chunk_first(m, member);
}

bool collective_sends(const struct collective *m, int32_t i, int32_t k)
{
    return i != k && collective_rounds_of(m->algorithm)->sends(m, i, k);
}

int32_t collective_steps(const struct collective *m)
{
    return m->n_members < 2 ? 0 : collective_rounds_of(m->algorithm)->count(m);
}

struct collective_round collective_round(const struct collective *m, int32_t member, int32_t step)
{
    struct collective_round s = collective_rounds_of(m->algorithm)->round(m, member, step);
    if (!s.send) s.to = -1;
    if (!s.receive) s.from = -1;
    return s;
}

int64_t collective_max(const struct collective *m)
{
    return m->n_members < 2 ? 0 : collective_rounds_of(m->algorithm)->most(m);
}
