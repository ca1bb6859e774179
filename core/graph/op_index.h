/* core/graph/op_index.h - the indices by which an operator may be sharded, and the resulting placements of its operands.
 *
 * Every kind is an einsum over named indices: matmul is "bpi,io->bpo". Sharding by an index
 * shards every dimension with that letter, leaves operands without the letter replicated, and makes an output without
 * it partial. The gradient that returns to a replicated operand of a sharded operator
 * is partial too. One choice, an index per operator, therefore determines the forward operator and both its gradients.
 * One row per kind; a kind without a row can only be replicated, which every kind can (index none).
 *
 * Letters: b batch, p positions, f and o features, i inputs (the features a matmul sums over), h heads, v vocabulary,
 * e experts, c channels, r rows of an image, s slots of an expert, t tensor; any other character is a dimension that is never sharded; "." is
 * an operand that stays on its device and is read only by the operator's own gradients (statistics). An operand with fewer
 * dimensions than letters lacks p.
 *
 * Grains: a dimension is sharded in units. If attention reads or writes it, a unit is the columns of one key-value
 * head, and a packed qkv has three sections that are sharded alike; rotary, per-head norms, bias and the adjacent matmuls
 * inherit this. The features of c_attn and the inputs of c_proj thus fall on the same devices as the heads
 * between them, and no conversion is needed. Such an index has the name of the grain: a matmul into attention is sharded by
 * heads, the one into the loss by vocabulary; the names features and inputs are accepted as well.
 *
 * The index `partial` is for linear kinds: every operand is partial, and so is the output.
 * The index `tensor` is for measured layers (core/model/measured.h): each of N equal devices has 1/N of the parameters; activations
 * between layers are replicated, because the measured time of degree N includes the communication that makes them so.
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
    X(features)                                                                                    \
    X(inputs) X(heads) X(vocabulary) X(experts) X(channels) X(partial) X(rows) X(slots) X(tensor)
enum op_index {
#define X(name) INDEX_##name,
    OP_INDICES(X)
#undef X
        INDEX_COUNT
};
const char *op_index_name(enum op_index index);

/* Units in which a dimension is sharded: n_units units; section s has n_units · unit[s] elements; sections are consecutive. */
struct grain {
    int64_t n_units;
    int32_t n_sections; /* 0: unknown, n_units elements of 1 */
    int64_t unit[RUNS_MAX];
    enum op_index name; /* heads, vocabulary …; none: no name of its own */
};
int64_t grain_elements(const struct grain *g);
bool grain_equal(const struct grain *x, const struct grain *y); /* ignores the name */
/* (n_tensors) of each activation's last dimension, in a whole forward graph; n_sections 0: unknown. O(operators). */
const struct grain *graph_grains(struct arena *a, const struct graph *g);

enum placing { PLACED_REPLICATED, PLACED_SHARDED, PLACED_PARTIAL, PLACED_OWN /* "." */ };

struct operand_sharding { /* of one operand, for one index */
    enum placing how;
    int32_t dim;           /* SHARDED: the dimension */
    struct grain grain;    /* SHARDED */
    bool gradient_partial; /* REPLICATED input: the returned gradient is partial */
};
struct op_sharding {
    int64_t n_units; /* units to shard; 0 for none and partial */
    struct operand_sharding input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

/* Indices by which forward operator `op` of a whole graph may be sharded, bit i for index i; `none` always. grains: graph_grains. */
uint32_t op_index_set(const struct graph *g, const struct graph_op *op, const struct grain *grains);
/* ERR_INPUT that names the operator, the index and the valid ones. */
MUST_CHECK enum status op_sharding_by(const struct graph *g, const struct graph_op *op,
                                      const struct grain *grains, enum op_index index,
                                      struct op_sharding *out, struct error *err);
/* Resolves a user's index name: features of a matmul into attention are its heads. INDEX_COUNT: no such index. */
enum op_index op_index_meant(const struct graph *g, const struct graph_op *op,
                             const struct grain *grains, enum op_index said);

/* Converts the attributes of the whole operator to those of the shard with units [first, first + n)
 * (sharding: op_sharding_by's for this index): heads, first position, first row of the table … Called once for each axis, the outer
 * one first; `first` is relative to the outer shard. */
void op_index_local_attrs(const struct graph *g, const struct graph_op *op,
                          const struct grain *grains, const struct op_sharding *sharding,
                          enum op_index index, int64_t first, int64_t n, struct op_attrs *attrs);
/* The same for one of its gradient operators: back has the attributes of the whole graph; local and shapes are those of the
 * forward operator on the device. */
void op_index_local_back_attrs(const struct op_attrs *local, const struct op_shapes *shapes,
                               struct op_attrs *back);
/* Whether devices may have unequal work in this kind although their operands have equal shapes. */
bool op_index_shard_is_hidden(enum op_kind kind);
/* Whether the table has an index row for this kind; tests use it to cover every row. */
bool op_index_has_row(enum op_kind kind);

#endif
