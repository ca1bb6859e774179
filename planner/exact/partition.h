/* planner/exact/partition.h - every way to part some of the devices into replicas, each once up to interchangeable devices. */
#ifndef PLANNER_EXACT_PARTITION_H
#define PLANNER_EXACT_PARTITION_H

#include "planner/candidate/space.h"
#include "planner/exact/bottleneck.h"

struct partition {
    int32_t n_replicas;
    uint32_t mask[SPACE_TABLES_MAX]; /* devices of each replica; ascending by lowest device */
    int64_t bound_ns;                /* best possible max over replicas of share × bottleneck */
};
/* All partitions by rising bound (ties in order of enumeration); impossible ones (a replica that cannot hold all layers
 * with its links, more replicas than microbatches) left out, and those whose bound is not below limit_ns. Of 8 devices
 * there are at most Bell(9) = 21,147 to look at, of 10 679 thousand. */
void partition_all(struct arena *a, const struct space *s, const struct bottleneck *b,
                   int64_t limit_ns, struct partition **out, size_t *n);

/* Shares m_r >= 1, sum = microbatches, that minimise max m_r · weight_r: one at a time to whom it hurts least. Exact for this
 * objective (the greedy of integer water-filling). Returns the maximum. */
int64_t partition_shares(const int64_t *weight_ns, int32_t n, int32_t microbatches, int32_t *share);

#endif
