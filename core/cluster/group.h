/* core/cluster/group.h - tensor-parallel groups: equal GPUs of one node merged into one device that shards every operator.
 *
 * A file declares such devices by a device type (`tensor_parallel: 4`, core/cluster/cluster.h); a planner that chooses
 * the degree starts from a cluster of single GPUs and groups them here.
 *
 * A group becomes the device of its lowest GPU, with that GPU's name, number, node and position; the others are
 * removed. Its type is the GPUs' type with `tensor_parallel` and `gpu_type`, named "a100-x4" ("a100-x4s" with
 * sequence_parallel); types of the old cluster keep their indices, derived ones follow, one for each
 * (type, GPUs, sequence_parallel).
 * Nodes and switches do not change. A GPU's link becomes its group's. If several links then join the same
 * two ends, the first in the file represents all: a message between groups is sent once, in full, and is not
 * spread over the GPUs' ports. A link between two GPUs of one group is removed, because their communication is
 * priced with their operators.
 */
#ifndef CORE_CLUSTER_GROUP_H
#define CORE_CLUSTER_GROUP_H

#include "core/cluster/cluster.h"

struct cluster_group {
    int32_t n;              /* >= 1; 1: the GPU is unchanged */
    const int32_t *devices; /* (n) of the cluster, in any order */
    /* also shard the positions of replicated activations (Korthikanti et al. 2023) */
    bool sequence_parallel;
};
/* Devices in no group are kept. *where, unless where is NULL: (c->n_devices) the device of *out that contains each one.
 * ERR_INPUT: a GPU in two groups, GPUs of several nodes or types, of a type that is already tensor parallel, no such device.
 * O(devices + links log links + groups · types). */
MUST_CHECK enum status cluster_group(struct arena *a, const struct cluster *c,
                                     const struct cluster_group *groups, int32_t n_groups,
                                     struct cluster *out, int32_t **where, struct error *err);
/* Whether two types are equal apart from their names. */
bool cluster_same_type(const struct device_type *x, const struct device_type *y);
/* The type of n GPUs of type gpu that shard every operator. Its name is the first of "a100-x4", "a100-x4-2", "a100-x4-3" …
 * that is free in c, or that an equal type has there: *found is that type, else -1. */
struct device_type cluster_tp_type(struct arena *a, const struct cluster *c,
                                   const struct device_type *gpu, int32_t n, bool sequence_parallel,
                                   int32_t *found);

#endif
