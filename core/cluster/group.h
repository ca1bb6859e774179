/* core/cluster/group.h - equal GPUs of one node taken together as one device that shards every operator.
 *
 * A file says that with a device type of its own (`tensor_parallel: 4`, core/cluster/cluster.h); a planner that has to find out
 * how many GPUs should share starts from a cluster of single GPUs and groups them here.
 *
 * A group becomes the device of its lowest GPU: that GPU's name, number, node and place in the order; the others are
 * gone. Its type is the GPUs' type with `tensor_parallel` and `gpu_type`, named "a100-x4" ("a100-x4s" with
 * sequence_parallel); types
 * of the old cluster keep their places, derived ones stand behind them, one for each (type, GPUs, sequence_parallel).
 * Nodes and switches stay as they are. A link of a GPU is a link of its group. Where several links then join the same
 * two ends, the first in the file stands for all: a message between groups goes once, whole, and nobody is taken to
 * spread it over the GPUs' ports. A link between two GPUs of one group is gone: what they say to each other is part of
 * their operators' price.
 */
#ifndef CORE_CLUSTER_GROUP_H
#define CORE_CLUSTER_GROUP_H

#include "core/cluster/cluster.h"

struct cluster_group {
    int32_t n;              /* >= 1; one GPU stays what it is */
    const int32_t *devices; /* (n) of the cluster, in any order */
    /* also the positions of what is replicated on each GPU (Korthikanti et al. 2023) */
    bool sequence_parallel;
};
/* Devices in no group stay. *where, unless where is NULL: (c->n_devices) the device of *out that each one is part of.
 * ERR_INPUT: a GPU twice, GPUs of other nodes or types, of a type that already is several GPUs, no such device.
 * O(devices + links log links + groups · types). */
MUST_CHECK enum status cluster_group(struct arena *a, const struct cluster *c,
                                     const struct cluster_group *groups, int32_t n_groups,
                                     struct cluster *out, int32_t **where, struct error *err);
/* Whether devices of the two types are the same, whatever the types are called. */
bool cluster_same_type(const struct device_type *x, const struct device_type *y);
/* The type of n GPUs of type gpu that shard every operator. Its name is the first of "a100-x4", "a100-x4-2", "a100-x4-3" …
 * that no type of c has, or that the same type has there: *found is that type, else -1. */
struct device_type cluster_tp_type(struct arena *a, const struct cluster *c,
                                   const struct device_type *gpu, int32_t n, bool sequence_parallel,
                                   int32_t *found);

#endif
