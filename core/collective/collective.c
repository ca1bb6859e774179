#include "core/collective/collective.h"

#include "core/base/arena.h"
#include "core/collective/rounds.h"
#include "core/graph/half.h"

#include <string.h>

bool collective_has_from(enum collective_kind k)
{
    return k == COLLECTIVE_ALL_GATHER || k == COLLECTIVE_ALL_TO_ALL;
}
bool collective_has_to(enum collective_kind k)
{
    return k == COLLECTIVE_REDUCE_SCATTER || k == COLLECTIVE_ALL_TO_ALL;
}
/* ---- validity --------------------------------------------------------------------------------- */

static bool ascending(const struct collective_cut *c, int32_t member)
{
    int64_t at = 0;
    for (int32_t r = 0; r < c->n_runs; r++) {
        int32_t i = member * c->n_runs + r;
        if (c->first[i] < at || c->count[i] < 0) return false;
        at = c->first[i] + c->count[i];
    }
    return true;
}

static bool overlap(const struct collective_cut *c, int32_t x, int32_t y)
{
    return c->first[x] < c->first[y] + c->count[y] && c->first[y] < c->first[x] + c->count[x] &&
           c->count[x] > 0 && c->count[y] > 0;
}

/* Disjoint runs of the right total length cover everything. */
static bool covers(const struct collective_cut *c, int32_t n, int64_t dim)
{
    int64_t total = 0;
    bool in_a_row = true;
    for (int32_t i = 0; i < n * c->n_runs; i++) {
        if (c->first[i] < 0 || c->count[i] < 0 || c->first[i] > dim || c->count[i] > dim - total)
            return false;
        in_a_row &= c->first[i] == total || !c->count[i];
        total += c->count[i];
    }
    if (total != dim) return false;
    for (int32_t i = 0; !in_a_row && i < n * c->n_runs; i++) {
        if (c->first[i] > dim - c->count[i]) return false;
        for (int32_t k = 0; k < i; k++)
            if (overlap(c, i, k)) return false;
    }
    return true;
}

static enum status check_cut(const struct collective *m, const struct collective_cut *c, bool has,
                             struct error *err)
{
    if (!has) return OK;
    if (c->dimension < 0 || c->dimension >= m->whole.rank)
        return error_set(err, ERR_INPUT, "cuts dimension %d of %d", (int)c->dimension,
                         (int)m->whole.rank);
    if (c->n_runs < 1 || m->n_members > COLLECTIVE_RUNS_MAX / c->n_runs)
        return error_set(err, ERR_INPUT, "%d runs of %d members, not 1 to %d altogether",
                         (int)c->n_runs, (int)m->n_members, (int)COLLECTIVE_RUNS_MAX);
    for (int32_t i = 0; i < m->n_members; i++)
        if (!ascending(c, i))
            return error_set(err, ERR_INPUT, "runs of member %d do not ascend", (int)i);
    return covers(c, m->n_members, m->whole.dim[c->dimension])
               ? OK
               : error_set(err, ERR_INPUT, "the members' runs do not cover dimension %d exactly once",
                           (int)c->dimension);
}

static enum status check_tiers(const struct collective *m, struct error *err)
{
    int32_t n_tiers = 0, each = 0;
    if (!collective_rounds_of(m->algorithm)->tiers) return OK;
    for (int32_t i = 0; i < m->n_members; i++) {
        if (m->tier[i] < 0 || m->tier[i] > n_tiers)
            return error_set(err, ERR_INPUT, "tiers are not counted from 0 in members' order");
        if (m->tier[i] == n_tiers) n_tiers++;
        each += m->tier[i] == 0;
    }
    for (int32_t t = 0; t < n_tiers; t++) {
        int32_t here = 0;
        for (int32_t i = 0; i < m->n_members; i++) here += m->tier[i] == t;
        if (here != each)
            return error_set(err, ERR_INPUT, "tier %d has %d members, tier 0 has %d", (int)t,
                             (int)here, (int)each);
    }
    return OK;
}

enum status collective_rounds_valid(const struct collective *m, struct error *err)
{
    if ((int)m->kind < 0 || m->kind >= COLLECTIVE_CALL_KINDS || (int)m->algorithm < 0 ||
        m->algorithm >= COLLECTIVE_ALGORITHM_COUNT || m->n_members < 1)
        return error_set(err, ERR_INPUT, "bad numbers");
    if (!collective_in_calls(m->kind, m->algorithm))
        return error_set(err, ERR_INPUT, "%s does not support algorithm %s", collective_kind_word(m->kind),
                         collective_algorithm_name(m->algorithm));
    const char *misfit = collective_misfit(m->algorithm, m->n_members, true);
    if (misfit)
        return error_set(err, ERR_INPUT, "%s needs %s, not %d",
                         collective_algorithm_name(m->algorithm), misfit, (int)m->n_members);
    return check_tiers(m, err);
}

enum status collective_valid(const struct collective *m, struct error *err)
{
    int64_t elements = 1;
    if (m->whole.rank < 1 || m->whole.rank > SHAPE_RANK_MAX) return error_set(err, ERR_INPUT, "bad numbers");
    TRY(collective_rounds_valid(m, err));
    for (int32_t i = 0; i < m->whole.rank; i++)
        if (m->whole.dim[i] < 0 || __builtin_mul_overflow(elements, m->whole.dim[i], &elements) ||
            elements > INT64_C(1) << 50)
            return error_set(err, ERR_INPUT, "too large");
    TRY(check_cut(m, &m->from, collective_has_from(m->kind), err));
    return check_cut(m, &m->to, collective_has_to(m->kind), err);
}

/* ---- sizes ------------------------------------------------------------------------------------ */

int64_t collective_cut_count(const struct collective_cut *c, int32_t member)
{
    int64_t n = 0;
    for (int32_t r = 0; r < c->n_runs; r++) n += c->count[member * c->n_runs + r];
    return n;
}

static struct shape shard(const struct collective *m, const struct collective_cut *c,
                          int32_t member)
{
    struct shape s = m->whole;
    s.dim[c->dimension] = collective_cut_count(c, member);
    return s;
}

struct shape collective_in(const struct collective *m, int32_t member)
{
    return collective_has_from(m->kind) ? shard(m, &m->from, member) : m->whole;
}

struct shape collective_out(const struct collective *m, int32_t member)
{
    return collective_has_to(m->kind) ? shard(m, &m->to, member) : m->whole;
}

/* Indices common to runs a and b; optionally as runs relative to the first index of a's own shard
 * (in_a) or b's. */
static int64_t common(const struct collective_cut *a, int32_t i, const struct collective_cut *b,
                      int32_t k, bool in_a, int64_t *first, int64_t *count, int32_t *n_runs)
{
    int64_t total = 0, before_a = 0;
    for (int32_t x = 0; x < a->n_runs; x++) {
        int64_t a0 = a->first[i * a->n_runs + x], an = a->count[i * a->n_runs + x], before_b = 0;
        for (int32_t y = 0; y < b->n_runs; y++) {
            int64_t b0 = b->first[k * b->n_runs + y], bn = b->count[k * b->n_runs + y];
            int64_t low = a0 > b0 ? a0 : b0, high = a0 + an < b0 + bn ? a0 + an : b0 + bn;
            if (low < high) {
                total += high - low;
                if (first) {
                    first[*n_runs] = in_a ? before_a + low - a0 : before_b + low - b0;
                    count[(*n_runs)++] = high - low;
                }
            }
            before_b += bn;
        }
        before_a += an;
    }
    return total;
}

int64_t collective_elements(const struct collective *m, int32_t i, int32_t k)
{
    struct shape s;
    switch (m->kind) {
    case COLLECTIVE_ALL_GATHER:
        s = shard(m, &m->from, i);
        break;
    case COLLECTIVE_REDUCE_SCATTER:
        s = shard(m, &m->to, k);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        s = shard(m, &m->from, i);
        if (m->from.dimension == m->to.dimension)
            s.dim[m->to.dimension] = common(&m->from, i, &m->to, k, true, NULL, NULL, NULL);
        else
            s.dim[m->to.dimension] = collective_cut_count(&m->to, k);
        break;
    default:
        return 0;
    }
    return shape_elements(&s);
}

void collective_chunk(const struct collective *m, int32_t c, int64_t *first, int64_t *last)
{
    int64_t e = collective_of_tensor(m) ? shape_elements(&m->whole) : m->elements;
    *first = collective_chunk_start(e, c, m->n_members);
    *last = collective_chunk_start(e, c + 1, m->n_members);
}

/* ---- regions ---------------------------------------------------------------------------------- */

bool region_valid(const struct region *r)
{
    if (r->n_dims < 0 || r->n_dims > r->shape.rank) return false;
    for (int32_t d = 0, least = 0; d < r->n_dims; d++) {
        int32_t dimension = r->dim[d].dimension;
        int64_t at = 0;
        if (dimension < least || dimension >= r->shape.rank) return false;
        for (int32_t k = 0; k < r->dim[d].n_runs; k++) {
            int64_t first = r->dim[d].first[k], n = r->dim[d].count[k];
            if (first < at || n < 0 || n > r->shape.dim[dimension] - first) return false;
            at = first + n;
        }
        least = dimension + 1;
    }
    return true;
}

int64_t region_elements(const struct region *r)
{
    struct shape s = r->shape;
    for (int32_t d = 0; d < r->n_dims; d++) {
        int64_t n = 0;
        for (int32_t k = 0; k < r->dim[d].n_runs; k++) n += r->dim[d].count[k];
        s.dim[r->dim[d].dimension] = n;
    }
    return shape_elements(&s);
}

struct walk {
    const struct region *r;
    region_run *run;
    void *owner;
    int64_t packed;
};

/* From dimension d and the cut-th cut dimension on; whatever lies behind the last of them is in one piece. */
static void walk(struct walk *w, int32_t d, int32_t cut, int64_t at)
{
    const struct region *r = w->r;
    int64_t stride = 1;
    for (int32_t i = d + 1; i < r->shape.rank; i++) stride *= r->shape.dim[i];
    if (cut == r->n_dims) { /* no dimension is cut */
        int64_t all = stride * (r->shape.rank ? r->shape.dim[d] : 1);
        if (all) w->run(w->owner, at, w->packed, all);
        w->packed += all;
        return;
    }
    if (r->dim[cut].dimension != d) {
        for (int64_t i = 0; i < r->shape.dim[d]; i++) walk(w, d + 1, cut, at + i * stride);
        return;
    }
    for (int32_t k = 0; k < r->dim[cut].n_runs; k++) {
        int64_t first = r->dim[cut].first[k], count = r->dim[cut].count[k];
        for (int64_t i = 0; cut + 1 < r->n_dims && i < count; i++)
            walk(w, d + 1, cut + 1, at + (first + i) * stride);
        if (cut + 1 < r->n_dims || !count || !stride) continue;
        w->run(w->owner, at + first * stride, w->packed, count * stride);
        w->packed += count * stride;
    }
}

void region_walk(const struct region *r, region_run *run, void *owner)
{
    struct walk w = {r, run, owner, 0};
    if (region_elements(r)) walk(&w, 0, 0, 0);
}

struct copying {
    enum dtype dtype;
    char *operand, *packed;
    enum region_copy how;
};

static void copy_run(void *owner, int64_t first, int64_t packed, int64_t n)
{
    const struct copying *c = owner;
    int64_t size = dtype_bytes(c->dtype);
    void *mine = c->operand + first * size, *other = c->packed + packed * size;
    if (c->how == REGION_PACK)
        memcpy(other, mine, (size_t)(n * size));
    else if (c->how == REGION_UNPACK)
        memcpy(mine, other, (size_t)(n * size));
    else if (c->dtype == DTYPE_fp32)
        for (int64_t i = 0; i < n; i++) ((float *)mine)[i] += ((float *)other)[i];
    else if (c->dtype == DTYPE_fp64)
        for (int64_t i = 0; i < n; i++) ((double *)mine)[i] += ((double *)other)[i];
    else if (dtype_is_half(c->dtype))
        half_add(c->dtype, mine, other, n);
    else
        BUG("a reduction of %s", dtype_name(c->dtype));
}

void region_copy(const struct region *r, enum dtype t, void *operand, void *packed,
                 enum region_copy how)
{
    struct copying c = {t, operand, packed, how};
    region_walk(r, copy_run, &c);
}

static void cut_by(struct region *r, const struct collective_cut *c, int32_t member)
{
    r->n_dims = 1;
    r->dim[0].dimension = c->dimension, r->dim[0].n_runs = c->n_runs;
    r->dim[0].first = c->first + member * c->n_runs;
    r->dim[0].count = c->count + member * c->n_runs;
}

/* Where both cuts are of one dimension, what i has and k is to have, within i's part or k's. */
static void cut_by_both(struct arena *a, struct region *r, const struct collective *m, int32_t i,
                        int32_t k, bool in_i)
{
    size_t most = (size_t)m->from.n_runs * (size_t)m->to.n_runs;
    int64_t *first = ARENA_ARRAY(a, int64_t, most), *count = ARENA_ARRAY(a, int64_t, most);
    int32_t n = 0;
    common(&m->from, i, &m->to, k, in_i, first, count, &n);
    r->n_dims = 1;
    r->dim[0].dimension = m->from.dimension, r->dim[0].n_runs = n;
    r->dim[0].first = first, r->dim[0].count = count;
}

struct region collective_from(struct arena *a, const struct collective *m, int32_t i, int32_t k)
{
    struct region r = {.shape = collective_in(m, i)};
    if (m->kind == COLLECTIVE_REDUCE_SCATTER) cut_by(&r, &m->to, k);
    if (m->kind != COLLECTIVE_ALL_TO_ALL) return r;
    if (m->from.dimension == m->to.dimension)
        cut_by_both(a, &r, m, i, k, true);
    else
        cut_by(&r, &m->to, k);
    return r;
}

struct region collective_into(struct arena *a, const struct collective *m, int32_t i, int32_t k)
{
    struct region r = {.shape = collective_out(m, k)};
    if (m->kind == COLLECTIVE_ALL_GATHER) cut_by(&r, &m->from, i);
    if (m->kind != COLLECTIVE_ALL_TO_ALL) return r;
    if (m->from.dimension == m->to.dimension)
        cut_by_both(a, &r, m, i, k, false);
    else
        cut_by(&r, &m->from, i);
    return r;
}

/* ---- staging ---------------------------------------------------------------------------------- */

struct collective_tensor_staging collective_tensor_staging(const struct collective *m)
{
    const struct collective_rounds *by = collective_rounds_of(m->algorithm);
    struct collective_tensor_staging s = {0, 0, 0};
    if (m->n_members < 2) return s;
    if (!by->direct && m->kind != COLLECTIVE_ALL_REDUCE)
        s.chunks = by->padded ? m->n_members * m->most : shape_elements(&m->whole);
    if (by->direct && m->kind != COLLECTIVE_ALL_GATHER) s.outgoing = m->most;
    if (by->direct || m->kind != COLLECTIVE_ALL_GATHER) s.incoming = m->most;
    return s;
}

static int64_t align_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t collective_tensor_staging_bytes(const struct collective *m, enum dtype t)
{
    struct collective_tensor_staging s = collective_tensor_staging(m);
    int64_t size = dtype_bytes(t);
    return align_up(s.chunks * size) + align_up(s.outgoing * size) + align_up(s.incoming * size);
}
