/* core/collective/tensor_shard.h - shards of tensors (struct tensor_shard), as regions of the full tensor.
 *
 * A shard on a device is dense: the runs of each sharded dimension are concatenated, and the runs determine the position of
 * each element in the full tensor. Initial values, inputs and checkpoints are indexed by the full tensor, so they do not depend
 * on the sharding, nor on the order of experts (tensor_shard.order), which is the same for all holders of a parameter. O(elements ÷ length of a contiguous run).
 */
#ifndef CORE_COLLECTIVE_TENSOR_SHARD_H
#define CORE_COLLECTIVE_TENSOR_SHARD_H

#include "core/collective/collective.h"
#include "core/graph/graph.h"

struct arena;

/* Shape of the full tensor of a shard with this shape; shard NULL: the same shape. */
struct shape tensor_shard_whole(const struct shape *shape, const struct tensor_shard *shard);
/* The shard as a region of the full tensor: for region_copy the full tensor is the operand, the shard the packed buffer.
 * With an order its runs are of the named tensor and need not be ascending. */
struct region tensor_shard_region(struct arena *a, const struct shape *shape,
                                  const struct tensor_shard *shard);
/* Whether runs are ascending and inside the full tensor, have as many elements as the shape, and each dimension occurs once. */
bool tensor_shard_valid(const struct shape *shape, const struct tensor_shard *shard);
/* Elements in both shards: product over dimensions of the overlap of their runs. O(runs²). */
int64_t tensor_shard_part_overlap(const struct shape *whole, const struct tensor_shard *x,
                                  const struct tensor_shard *y);
bool tensor_shard_equal(const struct tensor_shard *a, const struct tensor_shard *b);

#endif
