/* core/graph/graph.h - one microbatch's training step at operator level.
 *
 * A forward graph comes from core/model/model; graph_fuse merges neighbours by the table's fused kinds;
 * core/graph/gradient appends input-gradient (I) and weight-gradient (W) operators. Operators stand in
 * an order that is valid to execute. Updates (U) are not here: they run once per step, on whatever
 * parameters a stage owns, and lowering makes them.
 *
 * Layers: the forward operators are cut at chosen places; layer k is everything between cut k-1 and cut k. What crosses
 * a cut is every activation (parameters and inputs aside) that is made before it and read behind it, whoever reads it:
 * a stage hands on what it does not need itself. By default the places are where exactly one activation is live and
 * the next operator reads it; core/model/layers chooses others. What GPUs of one device do together (all_reduce, all_gather,
 * reduce_scatter) ends no default layer before it: a tensor of which every GPU has but a partial value or a share crosses to
 * nobody, and any number of GPUs finds the same layers. Nor does a layer begin with a bias, dropout, relu, a group norm, or
 * what only lays out anew (to_rows, prepend, slice): they belong to what they finish. Gradient operators belong to the
 * layer of the forward operator they come from; the sum of a tensor's gradients belongs to its first consumer's side, so that exactly one gradient
 * crosses a cut of one activation backwards. Behind a cut of several, partial values may cross one by one, but not where
 * a stage is told to end (edge).
 * Ownership: the arena's.
 */
#ifndef CORE_GRAPH_GRAPH_H
#define CORE_GRAPH_GRAPH_H

#include "core/base/error.h"
#include "core/graph/exchange.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

enum tensor_role {
    TENSOR_INPUT,
    TENSOR_PARAMETER,
    TENSOR_ACTIVATION,
    TENSOR_LOSS,
    TENSOR_GRADIENT,
    TENSOR_PARAMETER_GRADIENT
};
/* SEGMENTS: the part of its text that a position belongs to, 0 everywhere. MASKED_*: of masked language modelling (exec/data.h):
 * tokens some of which are hidden, and those as targets, -1 at the others. PIXELS (b,c,h,w) are of the graph's dtype, LABELS (b)
 * the class of each image; all others are int32 (b,T). */
enum tensor_input {
    INPUT_TOKENS,
    INPUT_POSITIONS,
    INPUT_TARGETS,
    INPUT_SEGMENTS,
    INPUT_MASKED_TOKENS,
    INPUT_MASKED_TARGETS,
    INPUT_PIXELS,
    INPUT_LABELS,
    INPUT_COUNT
};
static inline bool graph_input_is_of_images(int32_t input)
{
    return input == INPUT_PIXELS || input == INPUT_LABELS;
}
enum tensor_init { INIT_ZEROS, INIT_ONES, INIT_NORMAL };

/* A size that depends on how many GPUs share the operator: what each of them holds. */
struct shares {
    int32_t n;
    const int32_t *tp;       /* (n), ascending */
    const int64_t *elements; /* (n) of one GPU, of one sequence */
};
/* Elements on one of so many GPUs. Where it was not measured: replicated + sharded ÷ GPUs, from the two measured
 * counts nearest to it (Megatron-LM shards matrices and attention heads, and repeats the rest). -1 where n is too small. */
int64_t shares_at(const struct shares *s, int32_t tp);

enum { CUTS_MAX = 2, MESH_AXES_MAX = 2 };
/* Which shard of a whole tensor this one is (core/sharding/shard): of each dimension that is dealt out, some runs, which stand one
 * behind the other. n_cuts 0: all of it. */
struct tensor_shard {
    int32_t n_cuts;
    struct {
        int32_t dim, n_runs;
        int64_t whole;            /* elements of the dimension */
        struct run run[RUNS_MAX]; /* ascending; any may be empty */
    } cut[CUTS_MAX];
};

struct tensor {
    const char *name; /* parameters: Hugging Face's names, "transformer.h.0.mlp.c_fc.weight" */
    enum tensor_role role;
    enum dtype dtype;
    struct shape shape;
    int32_t producer; /* operator, or -1 for inputs and parameters */
    /* gradient: its activation (-1 where it is only partial) or parameter; else -1 */
    int32_t of;
    /* activation in a training graph: its whole gradient's tensor, else -1. Two tensors share one where the
     * gradient passes unchanged (bias, add) */
    int32_t gradient;
    /* parameter gradients: 0 for the first use of its parameter, 1 for the second (tied) */
    int32_t use;
    enum tensor_input input; /* role INPUT */
    enum tensor_init init;   /* role PARAMETER */
    double init_std;
    bool decay; /* role PARAMETER: weight decay applies (matrices) */
    /* of its last dimension, where GPUs that share an operator hold less of it; else NULL */
    const struct shares *shares;
    struct tensor_shard shard; /* of what is whole in the model; not of gradients of activations */
    /* gradient of a parameter: bit x where it is partial over the devices of axis x */
    uint8_t partial;
};

/* What sufficient factors are gathered by, step by step: x, then dy (core/sharding/shard). */
struct factors {
    int32_t n[2];
    const struct exchange *step[2][MESH_AXES_MAX];
};

struct graph_op {
    enum op_kind kind;
    enum phase phase;
    int32_t layer;
    int32_t n_inputs, n_outputs;
    int32_t input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX]; /* tensors */
    int32_t forward; /* gradient operators: the forward operator they come from, else -1 */
    /* by input, bit x: what flows back through it is partial over the devices of axis x (graph.group). Gradient
     * sums add such partial values first, sum once over the group, and add what is whole to that (core/graph/gradient) */
    uint8_t partial[OP_OPERANDS_MAX];
    /* of a matmul whose weight gradient everybody computes whole, from gathered operands; else NULL */
    const struct factors *factors;
    /* of a conversion of a parameter: its output is freed behind its forward uses, and made again for the backward's */
    bool reshard_after_forward;
    struct op_attrs attrs;
    const char *name; /* unique: "h.0.mlp.c_fc", gradients "h.0.mlp.c_fc.grad_input" … */
};

enum { CUT_TENSORS_MAX = 64, GRAPH_EDGES_MAX = 2 };
struct cut {         /* what crosses between two layers, in the order in which it is made */
    int32_t n;       /* at most CUT_TENSORS_MAX */
    int32_t *tensor; /* (n) */
};

struct graph {
    struct arena *arena;
    /* of activations, their gradients and parameters; a parameter's gradient is dtype_master of it */
    enum dtype dtype;
    int64_t microbatch, sequence_length;
    /* of one of so many GPUs that shard every operator, and the positions of what is replicated on each (core/model/model); 0 and 1:
     * one GPU */
    int32_t tp;
    bool sequence_parallel;
    int32_t n_fused; /* fused kinds that may be used, also by gradients (core/graph/gradient) */
    const enum op_kind *fused;
    const struct exchange *group
        [MESH_AXES_MAX]; /* of a view (core/sharding/shard): the devices along each axis; else NULL */
    int32_t n_tensors, n_ops, n_forward; /* ops[0 … n_forward-1] are the forward ones */
    struct tensor *tensors;
    struct graph_op *ops;
    size_t tensor_capacity, op_capacity;
    /* Layers behind which a stage of a plan ends. Over such an end one gradient of each activation flows back, the whole
     * one (core/graph/gradient): crossing[e][tensor], -1 where there is none; NULL before differentiation */
    int32_t n_edges, edge[GRAPH_EDGES_MAX], *crossing[GRAPH_EDGES_MAX];
    int32_t n_layers;
    struct cut *cut;         /* (n_layers - 1): activations that cross from layer k to k+1 */
    const char **layer_name; /* (n_layers) name for people: "h.0.attn", "head" … */
};

struct graph *graph_new(struct arena *a, enum dtype dtype, int64_t microbatch,
                        int64_t sequence_length);
/* Copies the name; sets producer -1 for inputs and parameters, of -1 for all but gradients, gradient -1. */
int32_t graph_add_tensor(struct graph *g, struct tensor t);
/* Infers and adds outputs (activations named "<name>" or "<name>.<i>"). ERR_INPUT where shapes do not fit. */
MUST_CHECK enum status graph_add_op(struct graph *g, enum op_kind kind, const char *name,
                                    const struct op_attrs *attrs, const int32_t *inputs,
                                    int32_t n_inputs, int32_t *outputs, struct error *err);
/* For core/graph/gradient: appends *op as it is (copies the name); the name that an output of an operator gets. */
int32_t graph_push_op(struct graph *g, const struct graph_op *op);
const char *graph_output_name(struct graph *g, const char *op, int32_t output, int32_t n_outputs);
void graph_op_shapes(const struct graph *g, const struct graph_op *op, struct op_shapes *out);

/* The default layers of a forward graph: cuts of one activation. O(operators + operands). */
void graph_find_layers(struct graph *g);
/* Is the operator of one of these layers? */
bool graph_op_within(const struct graph *g, int32_t op, int32_t first_layer, int32_t last_layer);
/* Layers that end with the forward operators last[0 … n_layers-1], ascending, the last one with the last operator.
 * O(operators + operands + what crosses). */
void graph_set_layers(struct graph *g, const int32_t *last, int32_t n_layers);
/* Gradients that cross back over each cut of a training graph: made behind it, read before it. (n_layers - 1) */
struct cut *graph_gradient_cuts(struct arena *a, const struct graph *g);
int64_t graph_tensor_bytes(const struct graph *g, int32_t tensor);
int64_t graph_cut_bytes(const struct graph *g, const struct cut *c); /* of all its tensors */
/* Merges forward operators by the fused kinds in list (an intermediate with one consumer only), and what came of it
 * again; layers stay. Fused kinds of gradients are taken note of for gradient_build. Returns a new graph in the same arena. */
struct graph *graph_fuse(const struct graph *g, const enum op_kind *list, int32_t n);
/* Was it in the list that the graph was fused by? */
bool graph_fuses(const struct graph *g, enum op_kind kind);

#endif
