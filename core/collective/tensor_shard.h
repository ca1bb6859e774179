/* core/collective/tensor_shard.h - shards of whole tensors (struct tensor_shard), as regions of them.
 *
 * What stands on a device is dense and has the runs of each dimension that is dealt out one behind the other; where an
 * element of it stands in the whole tensor follows from the runs. First values, inputs and checkpoints go by the whole, so
 * that they are the same whoever holds which shard. O(elements ÷ length of a run in one piece).
 */
#ifndef CORE_COLLECTIVE_TENSOR_SHARD_H
#define CORE_COLLECTIVE_TENSOR_SHARD_H

#include "core/collective/collective.h"
#include "core/graph/graph.h"

struct arena;

/* Shape of the whole, of which a shard of this shape is; shard NULL: the same. */
struct shape tensor_shard_whole(const struct shape *shape, const struct tensor_shard *shard);
/* The shard as a region of the whole: region_copy's operand is the whole, what is packed the shard. */
struct region tensor_shard_region(struct arena *a, const struct shape *shape,
                                  const struct tensor_shard *shard);
/* Runs ascending, inside the whole, as many elements as the shape has, each dimension once. */
bool tensor_shard_valid(const struct shape *shape, const struct tensor_shard *shard);
/* Elements that both have: of each dimension the overlap of their runs. O(runs²). */
int64_t tensor_shard_part_overlap(const struct shape *whole, const struct tensor_shard *x,
                                  const struct tensor_shard *y);
bool tensor_shard_equal(const struct tensor_shard *a, const struct tensor_shard *b);

#endif
