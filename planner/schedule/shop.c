/* planner/schedule/shop.c - the shop, its reversal, timing and memory of words. */
#include "planner/schedule/shop.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"

#include <inttypes.h>
#include <string.h>

/* --- the shop --- */

static int32_t type_of(const struct shop *s, const struct schedule *shape, const int32_t *place,
                       int32_t stage, int kind)
{
    int32_t d = place[stage] / shape->n_chunks, c = place[stage] % shape->n_chunks;
    return d * s->n_types + c * SHOP_KINDS + kind;
}

static void join(struct shop *s, int32_t from, int32_t to, const struct pipeline_link *l,
                 int direction)
{
    struct shop_type *x = &s->type[from], *y = &s->type[to];
    x->after = to, y->before = from;
    if (!l || x->device == y->device) return;
    x->occupancy_ns = l->occupancy_ns[direction], x->latency_ns = l->latency_ns[direction];
}

static void price(struct shop *s, const struct pipeline *p, const struct schedule *shape,
                  const int32_t *place, int32_t v)
{
    const struct pipeline_stage *x = &p->stages[v];
    bool fused = x->fused_ns > 0;
    const int64_t ns[] = {x->forward_ns, fused ? x->fused_ns : x->input_ns,
                          fused ? 0 : x->weight_ns};
    const int64_t bytes[] = {x->forward_bytes, x->input_bytes, x->weight_bytes};
    for (int k = 0; k < SHOP_KINDS; k++) {
        int32_t t = type_of(s, shape, place, v, k);
        s->type[t] = (struct shop_type){.ns = ns[k],
                                        .bytes = bytes[k],
                                        .before = -1,
                                        .after = -1,
                                        .own_before = k == SHOP_W ? t - 1 : -1,
                                        .device = t / s->n_types};
    }
}

/* F of the chunks down the pipeline, then I and W on the return path. */
static void chain(struct shop *s, const struct schedule *shape, int32_t d)
{
    int32_t n = shape->n_chunks, by_stage[SHOP_TYPES_MAX];
    for (int32_t c = 0; c < n; c++) {
        int32_t i = c;
        for (; i > 0 && shape->stage[d * n + by_stage[i - 1]] > shape->stage[d * n + c]; i--)
            by_stage[i] = by_stage[i - 1];
        by_stage[i] = c;
    }
    uint8_t *out = &s->chain[d * s->n_types];
    for (int32_t i = 0; i < n; i++) *out++ = (uint8_t)(by_stage[i] * SHOP_KINDS + SHOP_F);
    for (int32_t i = n - 1; i >= 0; i--)
        for (int k = SHOP_I; k <= SHOP_W; k++) *out++ = (uint8_t)(by_stage[i] * SHOP_KINDS + k);
}

/* In each chunk F takes memory, and I and W free it (or, reversed, all the other way). */
static int64_t rise_of(const struct shop *s, int32_t d)
{
    int64_t rise = 0;
    for (int32_t t = d * s->n_types; t < (d + 1) * s->n_types; t += SHOP_KINDS) {
        const struct shop_type *x = &s->type[t];
        int sign = s->turned ? -1 : 1;
        if (sign * x[SHOP_F].bytes < 0 || sign * x[SHOP_I].bytes > 0 ||
            sign * x[SHOP_W].bytes > 0 || x[SHOP_F].bytes + x[SHOP_I].bytes + x[SHOP_W].bytes != 0)
            return -1;
        rise += sign * x[SHOP_F].bytes;
    }
    return rise;
}

/* Two pairs of stages that send in the same direction between two devices, one of them with occupancy. */
static enum status check_directions(const struct shop *s, struct error *err)
{
    int32_t n = s->n_devices * s->n_types;
    for (int32_t i = 0; i < n; i++) {
        const struct shop_type *x = &s->type[i];
        if (x->after < 0 || !x->occupancy_ns) continue;
        for (int32_t k = x->device * s->n_types; k < (x->device + 1) * s->n_types; k++)
            if (k != i && s->type[k].after >= 0 &&
                s->type[k].after / s->n_types == x->after / s->n_types)
                return error_set(err, ERR_INPUT,
                                 "messages of several chunks occupy the link from device %" PRId32
                                 " to %" PRId32 ": expected latency only, or one chunk per device",
                                 x->device, x->after / s->n_types);
    }
    return OK;
}

static void allocate(struct arena *a, struct shop *s)
{
    size_t n = (size_t)s->n_devices, types = n * (size_t)s->n_types;
    s->type = ARENA_ARRAY(a, struct shop_type, types);
    s->chain = ARENA_ARRAY(a, uint8_t, types);
    s->held = ARENA_ARRAY(a, int64_t, n), s->limit = ARENA_ARRAY(a, int64_t, n);
    s->rise = ARENA_ARRAY(a, int64_t, n);
}

enum status shop_make(struct arena *a, const struct pipeline *p, const struct schedule *shape,
                      struct shop *out, struct error *err)
{
    if (shape->n_chunks * SHOP_KINDS > SHOP_TYPES_MAX)
        return error_set(err, ERR_INPUT, "%" PRId32 " chunks per device: expected 1 … %d",
                         shape->n_chunks, SHOP_TYPES_MAX / SHOP_KINDS);
    TRY(pipeline_check(p, shape, err));
    struct shop *s = out;
    *s = (struct shop){.n_devices = p->n_devices,
                       .n_types = shape->n_chunks * SHOP_KINDS,
                       .microbatches = shape->n_microbatches};
    s->length = (int64_t)s->n_types * s->microbatches, s->n_nodes = s->length * s->n_devices;
    if (s->n_nodes >= UINT32_MAX / 2)
        return error_set(err, ERR_INPUT, "%" PRId64 " operations: too many to search", s->n_nodes);
    allocate(a, s);
    int32_t *place = ARENA_ARRAY(a, int32_t, (size_t)p->n_stages);
    for (int32_t i = 0; i < p->n_stages; i++) place[shape->stage[i]] = i;
    for (int32_t v = 0; v < p->n_stages; v++) price(s, p, shape, place, v);
    for (int32_t v = 0; v + 1 < p->n_stages; v++) {
        const struct pipeline_link *l = p->links ? &p->links[v] : NULL;
        join(s, type_of(s, shape, place, v, SHOP_F), type_of(s, shape, place, v + 1, SHOP_F), l, 0);
        join(s, type_of(s, shape, place, v + 1, SHOP_I), type_of(s, shape, place, v, SHOP_I), l, 1);
    }
    int32_t last = p->n_stages - 1;
    join(s, type_of(s, shape, place, last, SHOP_F), type_of(s, shape, place, last, SHOP_I), NULL,
         0);
    for (int32_t d = 0; d < s->n_devices; d++) {
        s->held[d] = p->devices ? p->devices[d].resident_bytes : 0;
        s->limit[d] = p->devices ? p->devices[d].limit_bytes : PIPELINE_NO_LIMIT;
        chain(s, shape, d);
        s->rise[d] = rise_of(s, d);
    }
    return check_directions(s, err);
}

/* Reversed, I follows W: predecessors and successors are exchanged. */
void shop_turn(struct arena *a, const struct shop *s, struct shop *out)
{
    *out = *s;
    allocate(a, out);
    out->turned = !s->turned;
    int32_t n = s->n_devices * s->n_types;
    for (int32_t t = 0; t < n; t++) {
        const struct shop_type *x = &s->type[t];
        struct shop_type *y = &out->type[t];
        *y = *x;
        y->bytes = -x->bytes;
        y->before = x->after, y->after = x->before;
        y->occupancy_ns = x->before >= 0 ? s->type[x->before].occupancy_ns : 0;
        y->latency_ns = x->before >= 0 ? s->type[x->before].latency_ns : 0;
        y->own_before = -1;
    }
    for (int32_t t = 0; t < n; t++)
        if (s->type[t].own_before >= 0) out->type[s->type[t].own_before].own_before = t;
    for (int32_t d = 0; d < s->n_devices; d++) {
        out->held[d] = s->held[d], out->limit[d] = s->limit[d];
        for (int32_t i = 0; i < s->n_types; i++) {
            int32_t at = d * s->n_types;
            out->chain[at + i] = s->chain[at + s->n_types - 1 - i];
            out->held[d] += s->type[at + i].bytes * s->microbatches;
        }
        out->rise[d] = rise_of(out, d);
    }
}

uint64_t shop_draw(struct shop_random *r, uint64_t n)
{
    if (n > 1 << 12) return rng_below(r->seed, r->stream, r->draws++, n);
    if (!r->left) r->bits = rng_u64(r->seed, r->stream, r->draws++), r->left = 4;
    uint64_t piece = r->bits & 0xffff;
    r->bits >>= 16, r->left--;
    return piece * n >> 16;
}

/* --- times --- */

void shop_times_new(struct arena *a, const struct shop *s, struct shop_times *t)
{
    size_t n = (size_t)s->n_nodes, p = (size_t)s->n_devices;
    t->end = ARENA_ARRAY(a, int64_t, n), t->arrival = ARENA_ARRAY(a, int64_t, n);
    t->rest = ARENA_ARRAY(a, int64_t, n), t->left = ARENA_ARRAY(a, int64_t, n);
    t->order = ARENA_ARRAY(a, uint32_t, n);
    t->done = ARENA_ARRAY(a, int32_t, p * (size_t)s->n_types);
    t->free = ARENA_ARRAY(a, int64_t, p), t->at = ARENA_ARRAY(a, int64_t, p);
}

/* Advances one device as far as its inputs are known; appends to the order. */
static uint32_t advance(const struct shop *s, const uint8_t *word, struct shop_times *t, int32_t d,
                        uint32_t n)
{
    const uint8_t *w = &word[d * s->length];
    int64_t at = t->at[d], free = t->free[d], m = s->microbatches;
    int32_t base = d * s->n_types, *done = t->done;
    for (; at < s->length; at++) {
        int32_t g = base + w[at], j = done[g];
        const struct shop_type *x = &s->type[g];
        if (x->own_before >= 0 && done[x->own_before] <= j) break;
        if (x->before >= 0) {
            if (done[x->before] <= j) break;
            free = units_max(free, t->arrival[x->before * m + j]);
        }
        int64_t node = g * m + j, leave = free += x->ns;
        t->end[node] = free;
        if (x->occupancy_ns)
            leave =
                units_max(leave, j ? t->arrival[node - 1] - x->latency_ns : 0) + x->occupancy_ns;
        t->arrival[node] = leave + x->latency_ns;
        t->order[n++] = (uint32_t)node;
        done[g] = j + 1;
    }
    t->at[d] = at, t->free[d] = free;
    return n;
}

bool shop_time(const struct shop *s, const uint8_t *word, struct shop_times *t)
{
    int32_t p = s->n_devices;
    uint32_t n = 0, before;
    memset(t->done, 0, sizeof *t->done * (size_t)p * (size_t)s->n_types);
    memset(t->free, 0, sizeof *t->free * (size_t)p);
    memset(t->at, 0, sizeof *t->at * (size_t)p);
    do {
        before = n;
        for (int32_t d = 0; d < p; d++) n = advance(s, word, t, d, n);
        for (int32_t d = p - 1; d-- > 0;) n = advance(s, word, t, d, n);
    } while (n > before && n < s->n_nodes);
    t->makespan_ns = 0;
    for (int32_t d = 0; d < p; d++) t->makespan_ns = units_max(t->makespan_ns, t->free[d]);
    return n == s->n_nodes;
}

void shop_rest(const struct shop *s, struct shop_times *t)
{
    int64_t *next = t->free, m = s->microbatches;
    memset(next, 0, sizeof *next * (size_t)s->n_devices);
    for (uint32_t i = (uint32_t)s->n_nodes; i-- > 0;) {
        uint32_t node = t->order[i];
        int32_t g = (int32_t)(node / (uint32_t)m);
        const struct shop_type *x = &s->type[g];
        int64_t rest = next[x->device];
        if (x->after >= 0) {
            int64_t j = node - g * m;
            int64_t left = x->latency_ns + t->rest[x->after * m + j];
            if (x->occupancy_ns && j + 1 < m)
                left = units_max(left, x->occupancy_ns + t->left[node + 1]);
            t->left[node] = left;
            rest = units_max(rest, left + x->occupancy_ns);
        }
        next[x->device] = t->rest[node] = rest + x->ns;
    }
}

/* --- memory --- */

void shop_rings_raise(int64_t most[SHOP_LIVES], bool turned, const int32_t done[SHOP_KINDS], int kind)
{
    int32_t f = done[SHOP_F], i = done[SHOP_I], w = done[SHOP_W], sign = turned ? -1 : 1;
    int end = turned ? SHOP_F : SHOP_W; /* of a microbatch */
    /* alive during the operation, those that it ends included */
    const int64_t now[SHOP_LIVES] = {sign * (f - i) + (kind == (turned ? SHOP_F : SHOP_I)),
                                     sign * (f - w) + (kind == end),
                                     sign * (i - w) + (kind == (turned ? SHOP_I : SHOP_W))};
    for (int k = 0; k < SHOP_LIVES; k++) most[k] = units_max(most[k], now[k]);
}

int64_t shop_rings_bytes(const struct shop_rings *r, const int64_t most[SHOP_LIVES])
{
    int64_t bytes = 0;
    for (int k = 0; k < SHOP_LIVES; k++) bytes += r->bytes[k] * most[k];
    return bytes;
}

int64_t shop_rings_needed(const struct shop_rings *x, const struct schedule_lane *l)
{
    int64_t most[SHOP_LIVES] = {0};
    int32_t done[SHOP_KINDS] = {0};
    for (int64_t k = 0; k < l->n_ops; k++) {
        enum phase phase = l->ops[k].phase;
        int kind = phase == PHASE_F ? SHOP_F : phase == PHASE_W ? SHOP_W : SHOP_I;
        done[kind]++;
        shop_rings_raise(most, false, done, kind);
    }
    return shop_rings_bytes(x, most);
}

static bool rings_fit(const struct shop *s, int32_t d, const uint8_t *word)
{
    int32_t done[SHOP_KINDS] = {0};
    int64_t most[SHOP_LIVES] = {0};
    for (int64_t i = 0; i < s->length; i++) {
        done[word[i]]++;
        shop_rings_raise(most, s->turned, done, word[i]);
    }
    return s->held[d] + shop_rings_bytes(&s->rings[d], most) <= s->limit[d];
}

bool shop_fits(const struct shop *s, int32_t d, const uint8_t *word)
{
    if (s->limit[d] == PIPELINE_NO_LIMIT) return true;
    if (s->rings) return rings_fit(s, d, word);
    int64_t held = s->held[d], most = held;
    for (int64_t i = 0; i < s->length; i++) {
        held += s->type[d * s->n_types + word[i]].bytes;
        most = units_max(most, held);
    }
    return most <= s->limit[d];
}

bool shop_safe(const struct shop *s, int32_t d, const int32_t *done, int64_t held)
{
    if (held > s->limit[d]) return false;
    const struct shop_type *type = &s->type[d * s->n_types];
    const uint8_t *order = &s->chain[d * s->n_types];
    int32_t from = done[0], to = done[0];
    for (int32_t k = 1; k < s->n_types; k++) {
        if (done[k] < from) from = done[k];
        if (done[k] > to) to = done[k];
    }
    for (int32_t j = from; j < to; j++) {
        if (s->rise[d] >= 0 && held <= s->limit[d] - s->rise[d]) return true;
        for (int32_t i = 0; i < s->n_types; i++) {
            if (done[order[i]] > j) continue;
            held += type[order[i]].bytes;
            if (held > s->limit[d]) return false;
        }
    }
    return true;
}
