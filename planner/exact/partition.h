/* planner/exact/partition.h - all partitions of subsets of the devices into replicas, up to interchangeable devices. */
#ifndef PLANNER_EXACT_PARTITION_H
#define PLANNER_EXACT_PARTITION_H

#include "planner/candidate/space.h"
#include "planner/exact/bottleneck.h"

struct partition {
    int32_t n_replicas;
    uint32_t mask[SPACE_TABLES_MAX]; /* devices of each replica; ascending by lowest device */
    int64_t bound_ns;                /* least possible max over replicas of share × bottleneck */
};
/* All partitions with bound < limit_ns by rising bound, ties in order of enumeration. Infeasible ones (a replica that cannot
 * hold all layers with its links, more replicas than microbatches) are left out. At most Bell(9) = 21,147 for 8 devices, 679
 * thousand for 10. */
void partition_all(struct arena *a, const struct space *s, const struct bottleneck *b,
                   int64_t limit_ns, struct partition **out, size_t *n);

/* Shares m_r >= 1, sum = microbatches, that minimise max m_r · weight_r, by greedy assignment of one microbatch at a time
 * (integer water-filling), which is exact for this objective. Returns the maximum. */
int64_t partition_shares(const int64_t *weight_ns, int32_t n, int32_t microbatches, int32_t *share);

#endif
