/* core/lower/stage_graph.h - the part of a sharded stage's training graph that lowering reads.
 *
 * A device's view is differentiated as a whole (core/sharding/shard.h), but a stage computes the operators of its own layers only. The
 * part has those, the tensors that they read and write, the tensors that cross the stage's two cuts with the conversions that made
 * them, and the forward operators of the two blocks behind the stage, which determine where a block ends and what the next one reads
 * (core/lower/uses.c). Their order is that of the graph. Names, shards and exchanges of equal content are stored once. The part refers to
 * nothing of the graph, whose memory is some times as large.
 */
#ifndef CORE_LOWER_STAGE_GRAPH_H
#define CORE_LOWER_STAGE_GRAPH_H

#include "core/graph/graph.h"

struct arena;

struct stage_graph {
    const struct graph *g;
    const struct cut *gradient_cut;    /* (n_layers - 1): empty except at the stage's cuts */
    const struct tensor_shard **shard; /* (n_tensors) of inputs and parameters; NULL: full */
    int32_t *tensor; /* (n_tensors of the whole) its tensor in the part; -1: none */
};

struct stage_graph_pool; /* opaque */
/* Names, shards and exchanges, which the program refers to, go to `program`, the graphs to `tables`. */
struct stage_graph_pool *stage_graph_pool_new(struct arena *program, struct arena *tables);
/* The part of g for layers [first_layer, last_layer]; `tensor` is in g's arena, layer_name (n_layers) outlives the part. */
struct stage_graph stage_graph_of(struct stage_graph_pool *x, const struct graph *g,
                                  const char **layer_name, int32_t first_layer, int32_t last_layer);

#endif
