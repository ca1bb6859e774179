#include "planner/exact/exact_internal.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <stdlib.h>
#include <string.h>

enum {
    SEEDS_MAX = 4, /* partitions of incumbents used as starts */
    STARTS_MAX = 64,
    NEIGHBOUR_NS = 100, /* cost of a bound in ns: constant, and per microbatch */
    SHARE_NS = 2
};

struct point {
    int32_t size;
    struct partition part;
    int64_t ns; /* of its plan; INT64_MAX: no plan with a bound below the limit */
};
struct walk {
    struct exact *q;
    struct arena *arena;
    uint64_t *seen; /* (room) hash set of visited partitions; 0: free */
    size_t n_seen, room;
    struct point *next; /* neighbours of the current point */
    size_t n_next, next_room;
};

/* --- partitions --- */

static int by_lowest(const void *a, const void *b)
{
    int32_t x = __builtin_ctz(*(const uint32_t *)a), y = __builtin_ctz(*(const uint32_t *)b);
    return (x > y) - (x < y);
}

/* Normalises and bounds a partition; false: no replica, more replicas than microbatches, or one that cannot hold the layers. */
static bool settle(struct walk *w, struct point *x)
{
    const struct exact_size *z = &w->q->sizes[x->size];
    int64_t weight[SPACE_TABLES_MAX];
    int32_t share[SPACE_TABLES_MAX], n = 0;
    struct partition *p = &x->part;
    for (int32_t r = 0; r < p->n_replicas; r++)
        if (p->mask[r]) p->mask[n++] = p->mask[r];
    for (int32_t r = n; r < SPACE_TABLES_MAX; r++) p->mask[r] = 0;
    p->n_replicas = n;
    scorer_charge(w->q->t->scorer, NEIGHBOUR_NS + SHARE_NS * (int64_t)n * z->s->microbatches);
    if (n == 0 || n > z->s->microbatches) return false;
    qsort(p->mask, (size_t)n, sizeof *p->mask, by_lowest);
    for (int32_t r = 0; r < n; r++) {
        weight[r] = bottleneck_ns(z->b, p->mask[r], 0);
        if (weight[r] == INT64_MAX) return false;
    }
    p->bound_ns = partition_shares(weight, n, z->s->microbatches, share);
    return true;
}

static uint64_t key_of(const struct point *x)
{
    uint64_t key = rng_hash_bytes((uint64_t)x->size, x->part.mask, sizeof x->part.mask);
    return key ? key : 1;
}

static size_t find(const struct walk *w, uint64_t key)
{
    size_t at = (size_t)key & (w->room - 1);
    while (w->seen[at] && w->seen[at] != key) at = (at + 1) & (w->room - 1);
    return at;
}

/* Whether it was visited before; marks it as visited. */
static bool is_seen(struct walk *w, const struct point *x)
{
    if (2 * (w->n_seen + 1) > w->room) {
        struct walk old = *w;
        w->room = old.room ? 2 * old.room : 1024;
        w->seen = ARENA_ARRAY(w->arena, uint64_t, w->room);
        for (size_t i = 0; i < old.room; i++)
            if (old.seen[i]) w->seen[find(w, old.seen[i])] = old.seen[i];
    }
    size_t at = find(w, key_of(x));
    if (w->seen[at]) return true;
    w->seen[at] = key_of(x);
    w->n_seen++;
    return false;
}

static enum status visit(struct walk *w, struct point *x, struct error *err)
{
    struct exact *q = w->q;
    exact_add_turn(q, x->size, &x->part, x->part.bound_ns);
    struct exact_turn *turn = &q->turns[q->n_turns - 1];
    TRY(exact_first(q, turn, &x->ns, err));
    turn->bound_ns = x->ns;
    return OK;
}

/* --- neighbours --- */

static void offer(struct walk *w, const struct point *x, int64_t below_ns)
{
    struct point y = *x;
    if (!settle(w, &y) || y.part.bound_ns >= below_ns || w->n_next >= 4096) return;
    w->next = arena_grow(w->arena, w->next, w->n_next, &w->next_room, sizeof *w->next);
    w->next[w->n_next++] = y;
}

static uint32_t *mask_of(struct point *x, int32_t r) { return &x->part.mask[r]; }

static uint32_t unused_of(const struct walk *w, const struct point *x)
{
    uint32_t unused = (1u << w->q->sizes[x->size].s->n_devices) - 1;
    for (int32_t r = 0; r < x->part.n_replicas; r++) unused &= ~x->part.mask[r];
    return unused;
}

/* Moves a device to replica `to`; n_replicas: a new one, -1: idle. */
static void move_devices(struct walk *w, const struct point *at)
{
    int32_t n = at->part.n_replicas, devices = w->q->sizes[at->size].s->n_devices;
    uint32_t unused = unused_of(w, at);
    for (int32_t d = 0; d < devices; d++)
        for (int32_t to = unused >> d & 1 ? 0 : -1; to <= n && to < SPACE_TABLES_MAX; to++) {
            struct point x = *at;
            if (to >= 0 && to < n && x.part.mask[to] >> d & 1) continue;
            for (int32_t r = 0; r < n; r++) *mask_of(&x, r) &= ~(1u << d);
            if (to == n) x.part.n_replicas++, *mask_of(&x, n) = 0;
            if (to >= 0) *mask_of(&x, to) |= 1u << d;
            offer(w, &x, at->ns);
        }
}

/* Exchanges two devices of different replicas, or a used with an idle one. */
static void exchange_devices(struct walk *w, const struct point *at)
{
    const struct space *s = w->q->sizes[at->size].s;
    uint32_t unused = unused_of(w, at);
    for (int32_t d = 0; d < s->n_devices; d++)
        for (int32_t e = 0; e < d; e++) {
            struct point x = *at;
            uint32_t both = 1u << d | 1u << e;
            bool changed = false;
            if (s->class_of[d] == s->class_of[e] || (unused & both) == both) continue;
            for (int32_t r = 0; r < x.part.n_replicas; r++)
                if (__builtin_popcount(x.part.mask[r] & both) == 1)
                    *mask_of(&x, r) ^= both, changed = true;
            if (changed) offer(w, &x, at->ns);
        }
}

static void merge_replicas(struct walk *w, const struct point *at)
{
    for (int32_t r = 0; r < at->part.n_replicas; r++)
        for (int32_t o = 0; o < r; o++) {
            struct point x = *at;
            *mask_of(&x, o) |= x.part.mask[r];
            *mask_of(&x, r) = 0;
            offer(w, &x, at->ns);
        }
}

static void change_size(struct walk *w, const struct point *at)
{
    for (int32_t i = 0; i < w->q->n_sizes; i++) {
        struct point x = *at;
        x.size = i;
        if (i != at->size) offer(w, &x, at->ns);
    }
}

static int by_bound(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->part.bound_ns != y->part.bound_ns) return x->part.bound_ns < y->part.bound_ns ? -1 : 1;
    if (x->size != y->size) return x->size - y->size;
    return memcmp(x->part.mask, y->part.mask, sizeof x->part.mask);
}

/* First improvement over the neighbours by rising bound, until a local optimum. */
static enum status walk_from(struct walk *w, struct point *at, struct error *err)
{
    struct exact *q = w->q;
    for (bool better = true; better && !search_context_over(q->t);) {
        better = false;
        w->n_next = 0;
        move_devices(w, at);
        exchange_devices(w, at);
        merge_replicas(w, at);
        change_size(w, at);
        if (w->n_next) qsort(w->next, w->n_next, sizeof *w->next, by_bound);
        for (size_t i = 0; i < w->n_next && !better && !search_context_over(q->t); i++) {
            struct point *x = &w->next[i];
            if (is_seen(w, x)) continue;
            q->walk_ns = at->ns;
            TRY(visit(w, x, err));
            better = x->ns < at->ns;
            if (better) *at = *x;
        }
    }
    return OK;
}

/* --- starts --- */

/* A start is evaluated regardless of its bound. */
static enum status start(struct walk *w, struct point *starts, int32_t *n, struct point *x,
                         struct error *err)
{
    if (*n == STARTS_MAX || !settle(w, x) || is_seen(w, x)) return OK;
    w->q->walk_ns = INT64_MAX;
    TRY(visit(w, x, err));
    if (x->ns < INT64_MAX) starts[(*n)++] = *x;
    return OK;
}

/* Also unchanged, so that local searches start there. */
static enum status start_from_kept(struct walk *w, struct point *starts, int32_t *n,
                                   struct error *err)
{
    struct search_context *t = w->q->t;
    struct candidate kept[SEEDS_MAX];
    int32_t n_kept = 0;
    for (int32_t i = 0; i < t->incumbents.n && n_kept < SEEDS_MAX; i++)
        for (int32_t z = 0; z < w->q->n_sizes && n_kept < SEEDS_MAX; z++)
            if (candidate_of(&t->incumbents.plans[i].plan, w->q->sizes[z].s, &kept[n_kept]))
                n_kept++;
    for (int32_t i = 0; i < n_kept; i++) {
        struct point x = {.part.n_replicas = kept[i].n_replicas};
        int64_t ns;
        while (w->q->sizes[x.size].s != kept[i].s) x.size++;
        for (int32_t r = 0; r < kept[i].n_replicas; r++)
            for (int32_t k = 0; k < kept[i].n_stages[r]; k++)
                x.part.mask[r] |= 1u << kept[i].device[r][k];
        TRY(candidates_score(&w->q->trials, t, &kept[i], &ns, err));
        TRY(start(w, starts, n, &x, err));
    }
    return OK;
}

/* Times of the whole model on single devices; for devices that cannot hold it, up to the last layer that fits. */
static void fastest_first(const struct space *s, int32_t *order)
{
    for (int32_t i = 0; i < s->n_devices; i++) {
        const struct stage_cost *c = space_stage(s, i, 0, s->n_layers - 1);
        int32_t at = i;
        for (; at > 0; at--) {
            const struct stage_cost *x = space_stage(s, order[at - 1], 0, s->n_layers - 1);
            if (x->forward_ns + x->input_ns + x->weight_ns <=
                c->forward_ns + c->input_ns + c->weight_ns)
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* The n fastest devices in 1 … n replicas, assigned in alternating direction (snake order). */
static enum status start_even(struct walk *w, int32_t size, struct point *starts, int32_t *n,
                              struct error *err)
{
    const struct space *s = w->q->sizes[size].s;
    int32_t order[SPACE_TABLES_MAX];
    fastest_first(s, order);
    for (int32_t used = s->n_devices; used > 0; used = used > 4 ? used / 2 : used - 1)
        for (int32_t k = 1; k <= used; k++) {
            struct point x = {.size = size, .part.n_replicas = k};
            for (int32_t i = 0; i < used; i++) {
                int32_t r = i / k % 2 ? k - 1 - i % k : i % k;
                x.part.mask[r] |= 1u << order[i];
            }
            TRY(start(w, starts, n, &x, err));
        }
    return OK;
}

static int by_ns(const void *a, const void *b)
{
    const struct point *x = a, *y = b;
    if (x->ns != y->ns) return x->ns < y->ns ? -1 : 1;
    return by_bound(a, b);
}

static enum status walk_all(struct walk *w, struct error *err)
{
    struct point starts[STARTS_MAX];
    int32_t n = 0;
    TRY(start_from_kept(w, starts, &n, err));
    for (int32_t i = 0; i < w->q->n_sizes && !search_context_over(w->q->t); i++)
        TRY(start_even(w, i, starts, &n, err));
    qsort(starts, (size_t)n, sizeof *starts, by_ns);
    for (int32_t i = 0; i < n && !search_context_over(w->q->t); i++)
        TRY(walk_from(w, &starts[i], err));
    w->q->walk_ns = 0;
    return OK;
}

enum status exact_walk(struct exact *q, struct error *err)
{
    struct walk w = {.q = q, .arena = arena_new()};
    enum status st = walk_all(&w, err);
    arena_free(w.arena);
    return st;
}
