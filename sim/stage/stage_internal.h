/* sim/stage/stage_internal.h - shared by sim/stage/stage*.c only. */
#ifndef SIM_STAGE_STAGE_INTERNAL_H
#define SIM_STAGE_STAGE_INTERNAL_H

#include "core/graph/graph.h"
#include "sim/stage/stage.h"

#include <stdbool.h>

struct arena;
struct within;

/* --- collectives of a group: stage_group.c --- */

/* Time of a conversion by a collective (op_is_group) of the view of a member. O(members · rounds). */
int64_t stage_group_ns(struct cost *k, const struct stage_group *group, const struct graph *view,
                       const struct graph_op *op);

/* --- sizes: stage_sizes.c --- */

struct stage_sizes; /* opaque: memory of ranges of layers with `tp` GPUs */
struct stage_sizes *stage_sizes_new(struct arena *a, const struct graph *g);

/* Of all ranges with one first layer, indexed by their last layer; entries before the first layer are undefined. */
struct size_row {
    int64_t *parameter, *decayed; /* bytes of the parameters, and of those with weight decay */
    int64_t *gradient, *kept, *input, *scratch;
};
/* Valid until the row of another first layer is asked for, because all rows together would take O(layers²). O(layers + tensors). */
const struct size_row *stage_sizes_row(struct stage_sizes *s, int32_t first);
/* A tensor on one GPU, in whole slots. */
int64_t stage_sizes_bytes(const struct stage_sizes *s, int32_t tensor);

/* Parameters with gradients, and the layers of their uses, ascending, one entry per use. */
struct stage_uses {
    int32_t tensor, n;
    const int32_t *layer;
};
int32_t stage_sizes_uses(const struct stage_sizes *s, const struct stage_uses **out);

/* --- operators that run again under recompute: stage_again.c --- */

struct stage_again; /* opaque */
struct stage_again *stage_again_new(struct arena *a, const struct graph *g, int32_t n_types);
struct stage_again_cost {
    int64_t ns;     /* of recomputation */
    uint64_t keeps; /* activations entering the range's first layer that must be kept for it: bit k for the k-th of the cut */
};
/* op_ns: (n_forward) duration of each forward operator on the type, read on the first calls only. O(layers of the range). */
struct stage_again_cost stage_again_of(struct stage_again *s, int32_t first, int32_t last,
                                       int32_t type, const int64_t *op_ns);

#endif
