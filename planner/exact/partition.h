/* planner/exact/partition.h - all partitions of subsets of the devices into replicas, up to interchangeable devices. */
#ifndef PLANNER_EXACT_PARTITION_H
#define PLANNER_EXACT_PARTITION_H

#include "core/base/hash_map.h"
#include "planner/candidate/space.h"
#include "planner/exact/bottleneck.h"

struct partition {
    int32_t n_replicas;
    uint32_t mask[SPACE_TABLES_MAX]; /* devices of each replica; ascending by lowest device */
    int64_t bound_ns;                /* least possible max over replicas of share × bottleneck */
};
struct partition_list {
    struct arena *arena;
    const struct space *s;
    const struct bottleneck *b;
    struct partition *items; /* (n) in order of arrival */
    size_t n, capacity;
    struct hash_map known; /* counts of interchangeable devices in every replica */
};
/* Adds the partition of n sets of devices, empty ones among them, if its bound is below limit_ns and no partition like it is known.
 * Left out: replicas that cannot hold all layers with their links, more replicas than microbatches. Whether it was added. */
bool partition_add(struct partition_list *l, const uint32_t *mask, int32_t n, int64_t limit_ns);
/* All partitions with bound < limit_ns: at most Bell(9) = 21,147 for 8 devices. */
void partition_all(struct partition_list *l, int64_t limit_ns);
/* The n fastest devices, for every n, in 1 … n replicas, dealt out in alternating direction (snake order). */
void partition_even(struct partition_list *l);
/* By rising bound, then in a fixed order. */
int partition_compare(const struct partition *x, const struct partition *y);

/* Shares m_r >= 1, sum = microbatches, that minimise max m_r · weight_r, by greedy assignment of one microbatch at a time
 * (integer water-filling), which is exact for this objective. Returns the maximum. */
int64_t partition_shares(const int64_t *weight_ns, int32_t n, int32_t microbatches, int32_t *share);

#endif
