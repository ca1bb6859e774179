/* core/collective/meeting_steps.c - who sends what to whom in each step of a meeting.
 *
 * Rings pass on pieces: in step k of a ring of n the one at place i sends piece i−k where pieces are gathered, i−1−k where
 * they are summed, and receives the one before it. A hierarchical meeting is such rings one after the other: inside a
 * tier they pass on ordered channel groups, between tiers the parts of one ordered channel group. A summing ring leaves place i with piece i, which is
 * where a gathering one begins.
 */
#include "core/collective/meeting.h"

#include "core/base/arena.h"

static int32_t modulo(int32_t i, int32_t n) { return (i % n + n) % n; }

/* ---- tiers ------------------------------------------------------------------------------------ */

int32_t meeting_tiers_of(const int32_t *node, int32_t n, int32_t *out)
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
static int64_t part_elements(const struct meeting *m, int32_t place, const int32_t *at)
{
    int64_t first, last;
    if (m->kind == MEETING_all_reduce) {
        meeting_chunk(m, place, &first, &last);
        return last - first;
    }
    return meeting_elements(m, at[place], at[place]);
}

void meeting_set_tiers(struct arena *a, struct meeting *m)
{
    int32_t *place = ARENA_ARRAY(a, int32_t, (size_t)m->n),
            *at = ARENA_ARRAY(a, int32_t, (size_t)m->n);
    int64_t *first = ARENA_ARRAY(a, int64_t, (size_t)m->n + 1);
    m->n_tiers = 0;
    for (int32_t i = 0; i < m->n; i++)
        if (m->tier[i] >= m->n_tiers) m->n_tiers = m->tier[i] + 1;
    for (int32_t i = 0; i < m->n; i++) {
        place[i] = m->tier[i];
        for (int32_t k = 0; k < i; k++) place[i] += m->tier[k] == m->tier[i] ? m->n_tiers : 0;
        at[place[i]] = i;
    }
    for (int32_t p = 0; p < m->n; p++) first[p + 1] = first[p] + part_elements(m, p, at);
    m->place = place, m->at = at, m->first = first;
}

bool meeting_sends(const struct meeting *m, int32_t i, int32_t k)
{
    if (i == k) return false;
    if (m->way == MEETING_BY_pairs) return true;
    if (m->way == MEETING_BY_ring) return k == (i + 1) % m->n;
    int32_t across = m->n_tiers, p = m->place[i], q = m->place[k];
    if (m->tier[i] == m->tier[k]) return q == (p + across) % m->n;
    return p / across == q / across && m->tier[k] == (m->tier[i] + 1) % across;
}

/* ---- rings ------------------------------------------------------------------------------------ */

struct ring {           /* that one member is in, for a few steps */
    int32_t n, self;    /* places, and this member's */
    int32_t step;       /* of the ring's */
    bool sums, channel_groups; /* ordered channel groups: inside a tier */
};

int32_t meeting_steps(const struct meeting *m)
{
    int32_t once = m->n - 1;
    if (m->way == MEETING_BY_hierarchical) once = m->n_tiers - 1 + m->n / m->n_tiers - 1;
    return m->kind == MEETING_all_reduce ? 2 * once : once;
}

/* Which ring a step is of: of tiers inside, between, between, inside those that there are. */
static struct ring ring_of(const struct meeting *m, int32_t member, int32_t step)
{
    bool sums = m->kind != MEETING_all_gather, tiers = m->way == MEETING_BY_hierarchical;
    int32_t across = tiers ? m->n_tiers : m->n, inside = m->n / across;
    int32_t place = tiers ? m->place[member] : member, once = across + inside - 2;
    if (sums && step >= once) sums = false, step -= once;
    bool channel_groups = sums ? step < inside - 1 : step >= across - 1;
    if (sums && !channel_groups) step -= inside - 1;
    if (!sums && channel_groups) step -= across - 1;
    return (struct ring){.n = channel_groups ? inside : across,
                         .self = channel_groups ? place / across : place % across,
                         .step = step,
                         .sums = sums,
                         .channel_groups = channel_groups};
}

/* The member at place k of the ring. */
static int32_t member_at(const struct meeting *m, int32_t member, const struct ring *r, int32_t k)
{
    k = modulo(k, r->n);
    if (m->way == MEETING_BY_ring) return k;
    int32_t p = m->place[member], t = m->n_tiers;
    return m->at[r->channel_groups ? k * t + p % t : p / t * t + k];
}

/* Elements [*first, *first + what is returned) of a ring's piece, as on the wire; *own: those that are not padding. */
static int64_t piece(const struct meeting *m, int32_t member, const struct ring *r, int32_t k,
                     int64_t *first, int64_t *own)
{
    int64_t last;
    k = modulo(k, r->n);
    if (m->way == MEETING_BY_hierarchical) {
        int32_t t = m->n_tiers, p = r->channel_groups ? k * t : m->place[member] / t * t + k;
        *first = m->first[p];
        return *own = m->first[r->channel_groups ? p + t : p + 1] - *first;
    }
    if (m->kind == MEETING_all_reduce) {
        meeting_chunk(m, k, first, &last);
        return *own = last - *first;
    }
    *first = k * m->most, *own = meeting_elements(m, k, k);
    return m->most;
}

int64_t meeting_chunk_first(const struct meeting *m, int32_t member)
{
    return m->way == MEETING_BY_ring ? member * m->most : m->first[m->place[member]];
}

static struct meeting_step round_step(const struct meeting *m, int32_t member, int32_t step)
{
    struct ring r = ring_of(m, member, step);
    int32_t out = r.sums ? r.self - 1 - r.step : r.self - r.step;
    int64_t own;
    struct meeting_step s = {.to = member_at(m, member, &r, r.self + 1),
                             .from = member_at(m, member, &r, r.self - 1)};
    s.send = piece(m, member, &r, out, &s.out_first, &own);
    s.receive = piece(m, member, &r, out - 1, &s.in_first, &own);
    s.adds = r.sums ? own : 0;
    return s;
}

struct meeting_step meeting_step(const struct meeting *m, int32_t member, int32_t step)
{
    int32_t n = m->n, i = member;
    struct meeting_step s;
    if (m->way == MEETING_BY_pairs) {
        s = (struct meeting_step){.to = modulo(i + step + 1, n), .from = modulo(i - step - 1, n)};
        s.send = meeting_elements(m, i, s.to);
        s.receive = meeting_elements(m, s.from, i);
        s.adds = m->kind == MEETING_reduce_scatter ? s.receive : 0;
    } else
        s = round_step(m, i, step);
    if (!s.send) s.to = -1;
    if (!s.receive) s.from = -1;
    return s;
}
