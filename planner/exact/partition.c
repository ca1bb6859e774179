#include "planner/exact/partition.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct arena *arena;
    const struct space *s;
    const struct bottleneck *b;
    struct partition *items;
    size_t n, capacity;
    int64_t limit_ns;
    uint64_t *signature; /* (room) hash table of kept partitions; 0: free */
    size_t room;
    uint32_t mask[SPACE_TABLES_MAX];
};

int64_t partition_shares(const int64_t *weight_ns, int32_t n, int32_t microbatches, int32_t *share)
{
    for (int32_t r = 0; r < n; r++) share[r] = 1;
    for (int32_t left = microbatches - n; left > 0; left--) {
        int32_t best = 0;
        for (int32_t r = 1; r < n; r++)
            if ((share[r] + 1) * weight_ns[r] < (share[best] + 1) * weight_ns[best]) best = r;
        share[best]++;
    }
    int64_t worst = 0;
    for (int32_t r = 0; r < n; r++)
        if (share[r] * weight_ns[r] > worst) worst = share[r] * weight_ns[r];
    return worst;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Equal for partitions that differ by exchanging interchangeable devices: the multiset of the
 * replicas' counts by class. */
static uint64_t signature(const struct walk *w, int32_t n)
{
    uint64_t of_replica[SPACE_TABLES_MAX];
    for (int32_t r = 0; r < n; r++) {
        uint8_t count[SPACE_TABLES_MAX] = {0};
        for (int32_t d = 0; d < w->s->n_devices; d++)
            if (w->mask[r] >> d & 1) count[w->s->class_of[d]]++;
        of_replica[r] = rng_hash_bytes(0, count, sizeof count);
    }
    qsort(of_replica, (size_t)n, sizeof *of_replica, by_value);
    uint64_t key = rng_hash_bytes(0, of_replica, (size_t)n * sizeof *of_replica);
    return key ? key : 1;
}

static bool put(struct walk *w, uint64_t key)
{
    size_t at = (size_t)key & (w->room - 1);
    while (w->signature[at] && w->signature[at] != key) at = (at + 1) & (w->room - 1);
    if (w->signature[at]) return false;
    w->signature[at] = key;
    return true;
}

/* false: an equivalent partition is known. */
static bool is_new(struct walk *w, uint64_t key)
{
    if (2 * (w->n + 1) > w->room) {
        struct walk old = *w;
        w->room = old.room ? 2 * old.room : 256;
        w->signature = ARENA_ARRAY(w->arena, uint64_t, w->room);
        for (size_t i = 0; i < old.room; i++)
            if (old.signature[i]) put(w, old.signature[i]);
    }
    return put(w, key);
}

static void add_partition(struct walk *w, int32_t n)
{
    if (n == 0 || n > w->s->microbatches) return;
    int64_t weight[SPACE_TABLES_MAX] = {0};
    for (int32_t r = 0; r < n; r++) {
        weight[r] = bottleneck_ns(w->b, w->mask[r], 0);
        if (weight[r] == INT64_MAX) return;
    }
    int32_t share[SPACE_TABLES_MAX];
    int64_t bound = partition_shares(weight, n, w->s->microbatches, share);
    if (bound >= w->limit_ns || !is_new(w, signature(w, n))) return;
    w->items = arena_grow(w->arena, w->items, w->n, &w->capacity, sizeof *w->items);
    struct partition *p = &w->items[w->n++];
    *p = (struct partition){.n_replicas = n, .bound_ns = bound};
    memcpy(p->mask, w->mask, sizeof p->mask);
}

static void assign(struct walk *w, int32_t d, int32_t n)
{
    if (d == w->s->n_devices) {
        add_partition(w, n);
        return;
    }
    for (int32_t r = 0; r < n; r++) {
        if (__builtin_popcount(w->mask[r]) == w->s->n_layers) continue;
        w->mask[r] |= 1u << d;
        assign(w, d + 1, n);
        w->mask[r] &= ~(1u << d);
    }
    w->mask[n] = 1u << d;
    if (n < w->s->microbatches) assign(w, d + 1, n + 1);
    w->mask[n] = 0;
    assign(w, d + 1, n); /* pruned */
}

static int by_bound(const void *a, const void *b)
{
    const struct partition *x = a, *y = b;
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->n_replicas != y->n_replicas) return x->n_replicas - y->n_replicas;
    for (int32_t r = 0; r < x->n_replicas; r++)
        if (x->mask[r] != y->mask[r]) return x->mask[r] < y->mask[r] ? -1 : 1;
    return 0;
}

void partition_all(struct arena *a, const struct space *s, const struct bottleneck *b,
                   int64_t limit_ns, struct partition **out, size_t *n)
{
    struct walk w = {.arena = a, .s = s, .b = b, .limit_ns = limit_ns};
    assign(&w, 0, 0);
    if (w.n) qsort(w.items, w.n, sizeof *w.items, by_bound);
    *out = w.items;
    *n = w.n;
}
