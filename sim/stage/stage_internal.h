/* sim/stage/stage_internal.h - what the files of stage costs share; for sim/stage/stage*.c alone. */
#ifndef SIM_STAGE_STAGE_INTERNAL_H
#define SIM_STAGE_STAGE_INTERNAL_H

#include "core/graph/graph.h"

#include <stdbool.h>

struct arena;
struct within;

/* --- sizes: stage_sizes.c --- */

struct stage_sizes; /* opaque: what ranges of layers hold on so many GPUs */
struct stage_sizes *stage_sizes_new(struct arena *a, const struct graph *g, int32_t tp);

/* Of the ranges that begin with one layer; indices are their last layers, those before the first one mean nothing. */
struct size_row {
    int64_t *parameter, *decayed; /* bytes of the parameters, and of those with weight decay */
    int64_t *gradient, *kept, *input, *scratch;
};
const struct size_row *stage_sizes_row(struct stage_sizes *s, int32_t first); /* kept once made */
/* A tensor on one GPU, in whole slots. */
int64_t stage_sizes_bytes(const struct stage_sizes *s, int32_t tensor);

/* Parameters that gradients flow to, and the layers of their uses, ascending, one each use. */
struct stage_uses {
    int32_t tensor, n;
    const int32_t *layer;
};
int32_t stage_sizes_uses(const struct stage_sizes *s, const struct stage_uses **out);

/* --- what runs again under recompute: stage_again.c --- */

struct stage_again; /* opaque */
struct stage_again *stage_again_new(struct arena *a, const struct graph *g, int32_t n_types);
/* Of the ranges that end with one layer, by their first one: what runs again, given what each forward operator takes on
 * the type, (n_forward). Kept once made, and op_ns is only read then. */
const int64_t *stage_again_column(struct stage_again *s, int32_t last, int32_t type,
                                  const int64_t *op_ns);
/* Which of the activations that enter the first layer of the range must be kept for it: bit k for the k-th of the cut. */
uint64_t stage_again_keeps(struct stage_again *s, int32_t first, int32_t last);

#endif
