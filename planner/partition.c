#include "planner/partition.h"

#include "core/arena.h"
#include "core/rng.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct arena *arena;
    const struct space *s;
    const struct bottleneck *b;
    struct partition *items;
    size_t n, capacity;
    uint64_t *signature; /* (n) of each kept partition */
    size_t signature_capacity;
    uint32_t mask[SPACE_DEVICES_MAX];
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
    uint64_t of_replica[SPACE_DEVICES_MAX];
    for (int32_t r = 0; r < n; r++) {
        uint8_t count[SPACE_DEVICES_MAX] = {0};
        for (int32_t d = 0; d < w->s->n_devices; d++)
            if (w->mask[r] >> d & 1) count[w->s->class_of[d]]++;
        of_replica[r] = 0; /* at most 8 classes with counts up to 8: a byte each, no collisions */
        for (int32_t k = 0; k < SPACE_DEVICES_MAX; k++)
            of_replica[r] = of_replica[r] << 8 | count[k];
    }
    qsort(of_replica, (size_t)n, sizeof *of_replica, by_value);
    return hash_bytes(0, of_replica, (size_t)n * sizeof *of_replica);
}

static void keep(struct walk *w, int32_t n)
{
    if (n == 0 || n > w->s->microbatches) return;
    int64_t weight[SPACE_DEVICES_MAX];
    for (int32_t r = 0; r < n; r++) {
        weight[r] = bottleneck_ns(w->b, w->mask[r], 0);
        if (weight[r] == INT64_MAX) return;
    }
    uint64_t key = signature(w, n);
    for (size_t i = 0; i < w->n; i++)
        if (w->signature[i] == key) return;
    w->items = arena_grow(w->arena, w->items, w->n, &w->capacity, sizeof *w->items);
    w->signature =
        arena_grow(w->arena, w->signature, w->n, &w->signature_capacity, sizeof *w->signature);
    struct partition *p = &w->items[w->n];
    *p = (struct partition){.n_replicas = n};
    memcpy(p->mask, w->mask, sizeof p->mask);
    int32_t share[SPACE_DEVICES_MAX];
    p->bound_ns = partition_shares(weight, n, w->s->microbatches, share);
    w->signature[w->n++] = key;
}

static void assign(struct walk *w, int32_t d, int32_t n)
{
    if (d == w->s->n_devices) {
        keep(w, n);
        return;
    }
    for (int32_t r = 0; r < n; r++) {
        w->mask[r] |= 1u << d;
        assign(w, d + 1, n);
        w->mask[r] &= ~(1u << d);
    }
    w->mask[n] = 1u << d;
    assign(w, d + 1, n + 1);
    w->mask[n] = 0;
    assign(w, d + 1, n); /* left out */
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
                   struct partition **out, size_t *n)
{
    struct walk w = {.arena = a, .s = s, .b = b};
    assign(&w, 0, 0);
    if (w.n) qsort(w.items, w.n, sizeof *w.items, by_bound);
    *out = w.items;
    *n = w.n;
}
