/* core/graph/op_index.h - by which indices an operator may be sharded over devices, and what that makes of its operands.
 *
 * Every kind is a sum over named indices, written as in an einsum: matmul is "bpi,io->bpo". To split it by one index
 * deals out every dimension that has the letter, leaves operands without the letter replicated, and makes an output without
 * it a partial sum that the devices owe each other (partial). What flows back to a replicated operand of a sharded operator
 * is partial too. So one choice, an index for each operator, decides the forward operator and both its gradients.
 * One row a kind; a kind without a row can only be computed by everybody, which every kind can (index none).
 *
 * Letters: b batch, p positions, f and o features, i inputs (the features a matmul sums over), h heads, v vocabulary,
 * e experts, c channels, r rows of an image, s slots of an expert; any other character is a dimension that is never dealt out; "." is an operand that stays where it
 * is made and that only the operator's own gradients read (statistics). An operand of fewer dimensions than letters lacks p.
 *
 * Grains: a dimension is dealt out in units. Where attention reads or writes it a unit is what belongs to one key-value
 * head, and a packed qkv has three sections that are dealt out alike; rotary, per-head norms, bias and the matmuls before
 * and behind inherit that. So the features of c_attn and the inputs of c_proj fall on the same devices as the heads
 * between them, and no conversion is owed. Such an index has the name of the grain: a matmul into attention is sharded by
 * heads, the one into the loss by vocabulary; features and inputs are understood as well.
 *
 * The index `partial` is for linear kinds: every operand is a partial sum, and so is the output.
 * O(operands) each.
 */
#ifndef CORE_GRAPH_OP_INDEX_H
#define CORE_GRAPH_OP_INDEX_H

#include "core/base/error.h"
#include "core/graph/graph.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define OP_INDICES(X)                                                                              \
    X(none)                                                                                        \
    X(batch)                                                                                       \
    X(positions)                                                                                   \
    X(features) X(inputs) X(heads) X(vocabulary) X(experts) X(channels) X(partial) X(rows) X(slots)
enum op_index {
#define X(name) INDEX_##name,
    OP_INDICES(X)
#undef X
        INDEX_COUNT
};
const char *op_index_name(enum op_index index);

/* In what a dimension is dealt out: n_units units; section s has n_units · unit[s] elements, one section behind the other. */
struct grain {
    int64_t n_units;
    int32_t n_sections; /* 0: unknown, n_units elements of 1 */
    int64_t unit[RUNS_MAX];
    enum op_index name; /* heads, vocabulary …; none where it has no name of its own */
};
int64_t grain_elements(const struct grain *g);
bool grain_equal(const struct grain *x, const struct grain *y); /* but for its name */
/* (n_tensors) of each activation's last dimension, in a whole forward graph; n_sections 0 where nothing is known. O(operators). */
const struct grain *graph_grains(struct arena *a, const struct graph *g);

enum placing { PLACED_REPLICATED, PLACED_SHARDED, PLACED_PARTIAL, PLACED_OWN /* "." */ };

struct operand_sharding { /* of one operand, for one index */
    enum placing how;
    int32_t dim;           /* SHARDED: which dimension */
    struct grain grain;    /* SHARDED */
    bool gradient_partial; /* input that is REPLICATED: what flows back is partial */
};
struct op_sharding {
    int64_t n_units; /* that are dealt out; 0 for none and partial */
    struct operand_sharding input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

/* The choices of forward operator `op` of a whole graph, bit i for index i; `none` is always one. grains: graph_grains. */
uint32_t op_index_set(const struct graph *g, const struct graph_op *op, const struct grain *grains);
/* ERR_INPUT that names the operator, the index and the valid ones. */
MUST_CHECK enum status op_sharding_by(const struct graph *g, const struct graph_op *op,
                                      const struct grain *grains, enum op_index index,
                                      struct op_sharding *out, struct error *err);
/* The index that a person means: features of a matmul into attention are its heads. INDEX_COUNT where it has none such. */
enum op_index op_index_meant(const struct graph *g, const struct graph_op *op,
                             const struct grain *grains, enum op_index said);

/* Makes the attributes of the whole operator those of the one that has units [first, first + n) of those that are dealt
 * out (split: op_sharding_by's for this index): heads, first position, first row of the table … Once for each axis, the outer
 * one first, `first` counting from the outer shard's beginning. */
void op_index_local_attrs(const struct graph *g, const struct graph_op *op,
                          const struct grain *grains, const struct op_sharding *sharding,
                          enum op_index index, int64_t first, int64_t n, struct op_attrs *attrs);
/* The same of one of its gradient operators: back has the attributes of the whole graph's; local and shapes are those of the
 * forward operator on the device. */
void op_index_local_back_attrs(const struct op_attrs *local, const struct op_shapes *shapes,
                               struct op_attrs *back);
/* May devices do unequal parts of this kind although their operands have equal shapes? */
bool op_index_shard_is_hidden(enum op_kind kind);
/* Does the table say how this kind may be sharded? A check: that every such row is tested, and every tested kind has one. */
bool op_index_has_row(enum op_kind kind);

#endif
