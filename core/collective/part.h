/* core/collective/part.h - parts of whole tensors (struct tensor_part), as regions of them.
 *
 * What stands on a device is dense and has the runs of each dimension that is dealt out one behind the other; where an
 * element of it stands in the whole tensor follows from the runs. First values, inputs and checkpoints go by the whole, so
 * that they are the same whoever holds which part. O(elements ÷ length of a run in one piece).
 */
#ifndef CORE_COLLECTIVE_PART_H
#define CORE_COLLECTIVE_PART_H

#include "core/collective/collective.h"
#include "core/graph/graph.h"

struct arena;

/* Shape of the whole, of which a part of this shape is; part NULL: the same. */
struct shape part_whole(const struct shape *shape, const struct tensor_part *part);
/* The part as a region of the whole: region_copy's operand is the whole, what is packed the part. */
struct region part_region(struct arena *a, const struct shape *shape,
                          const struct tensor_part *part);
/* Runs ascending, inside the whole, as many elements as the shape has, each dimension once. */
bool part_valid(const struct shape *shape, const struct tensor_part *part);
/* Elements that both have: of each dimension the overlap of their runs. O(runs²). */
int64_t part_overlap(const struct shape *whole, const struct tensor_part *x,
                     const struct tensor_part *y);
bool part_equal(const struct tensor_part *a, const struct tensor_part *b);

#endif
