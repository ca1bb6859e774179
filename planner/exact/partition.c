#include "planner/exact/partition.h"

#include "core/base/arena.h"
#include "core/base/rng.h"

#include <stdlib.h>
#include <string.h>

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
static uint64_t signature(const struct space *s, const struct partition *p)
{
    uint64_t of_replica[SPACE_TABLES_MAX];
    size_t n = (size_t)p->n_replicas;
    for (size_t r = 0; r < n; r++) {
        uint8_t count[SPACE_TABLES_MAX] = {0};
        for (int32_t d = 0; d < s->n_devices; d++)
            if (p->mask[r] >> d & 1) count[s->class_of[d]]++;
        of_replica[r] = rng_hash_bytes(0, count, sizeof count);
    }
    qsort(of_replica, n, sizeof *of_replica, by_value);
    return rng_hash_bytes(0, of_replica, n * sizeof *of_replica);
}

static int by_lowest(const void *a, const void *b)
{
    return __builtin_ctz(*(const uint32_t *)a) - __builtin_ctz(*(const uint32_t *)b);
}

bool partition_add(struct partition_list *l, const uint32_t *mask, int32_t n, int64_t limit_ns)
{
    struct partition p = {0};
    int64_t weight[SPACE_TABLES_MAX];
    int32_t share[SPACE_TABLES_MAX];
    for (int32_t r = 0; r < n; r++)
        if (mask[r]) p.mask[p.n_replicas++] = mask[r];
    if (!p.n_replicas || p.n_replicas > l->s->microbatches) return false;
    qsort(p.mask, (size_t)p.n_replicas, sizeof *p.mask, by_lowest);
    for (int32_t r = 0; r < p.n_replicas; r++) {
        weight[r] = bottleneck_ns(l->b, p.mask[r], 0);
        if (weight[r] == INT64_MAX) return false;
    }
    p.bound_ns = partition_shares(weight, p.n_replicas, l->s->microbatches, share);
    if (p.bound_ns >= limit_ns || hash_map_at(&l->known, signature(l->s, &p))->number++)
        return false;
    l->items = arena_grow(l->arena, l->items, l->n, &l->capacity, sizeof *l->items);
    l->items[l->n++] = p;
    return true;
}

/* mask: of n replicas of the devices before d. */
static void assign(struct partition_list *l, uint32_t *mask, int32_t d, int32_t n, int64_t limit_ns)
{
    if (d == l->s->n_devices) {
        (void)partition_add(l, mask, n, limit_ns);
        return;
    }
    for (int32_t r = 0; r < n; r++) {
        if (__builtin_popcount(mask[r]) == l->s->n_layers) continue;
        mask[r] |= 1u << d;
        assign(l, mask, d + 1, n, limit_ns);
        mask[r] &= ~(1u << d);
    }
    mask[n] = 1u << d;
    if (n < l->s->microbatches) assign(l, mask, d + 1, n + 1, limit_ns);
    mask[n] = 0;
    assign(l, mask, d + 1, n, limit_ns); /* idle */
}

void partition_all(struct partition_list *l, int64_t limit_ns)
{
    uint32_t mask[SPACE_TABLES_MAX] = {0};
    assign(l, mask, 0, 0, limit_ns);
}

int partition_compare(const struct partition *x, const struct partition *y)
{
    if (x->bound_ns != y->bound_ns) return x->bound_ns < y->bound_ns ? -1 : 1;
    if (x->n_replicas != y->n_replicas) return x->n_replicas - y->n_replicas;
    return memcmp(x->mask, y->mask, sizeof x->mask);
}

/* By the time of the whole model on the device alone; for one that cannot hold it, up to the last layer that fits. */
static void fastest_first(const struct space *s, int32_t *order)
{
    int64_t ns[SPACE_TABLES_MAX];
    for (int32_t i = 0; i < s->n_devices; i++) {
        const struct stage_cost *c = space_stage(s, i, 0, s->n_layers - 1);
        int32_t at = i;
        ns[i] = c->forward_ns + c->input_ns + c->weight_ns;
        for (; at > 0 && ns[order[at - 1]] > ns[i]; at--) order[at] = order[at - 1];
        order[at] = i;
    }
}

void partition_even(struct partition_list *l)
{
    int32_t order[SPACE_TABLES_MAX];
    fastest_first(l->s, order);
    for (int32_t used = l->s->n_devices; used > 0; used--)
        for (int32_t k = 1; k <= used; k++) {
            uint32_t mask[SPACE_TABLES_MAX] = {0};
            for (int32_t i = 0; i < used; i++)
                mask[i / k % 2 ? k - 1 - i % k : i % k] |= 1u << order[i];
            (void)partition_add(l, mask, k, INT64_MAX);
        }
}
