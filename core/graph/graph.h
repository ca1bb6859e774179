/* core/graph/graph.h - the operator graph of one microbatch's training step.
 *
 * core/model/model makes a forward graph; graph_fuse replaces neighbours by the table's fused kinds;
 * core/graph/gradient appends input-gradient (I) and weight-gradient (W) operators. Operators are in
 * topological order. Updates (U) are not part of it: they run once per step, on the
 * parameters that a stage owns, and lowering creates them.
 *
 * Layers: cuts divide the forward operators; layer k is everything between cut k-1 and cut k. All activations (not parameters
 * or inputs) that are made before a cut and read after it cross the cut, whichever stage reads them:
 * a stage forwards what it does not read itself. The default cuts are where exactly one activation is live and
 * the next operator reads it; core/model/layers chooses others. No default layer begins with a bias, dropout, relu, a group norm,
 * or a change of layout (to_rows, prepend, slice): they belong to the operator before. Gradient operators belong to the
 * layer of their forward operator; the sum of a tensor's gradients belongs to the layer of its first consumer, so exactly one
 * gradient crosses back over a cut of one activation. Over a cut of several activations, the contributions may cross one by one,
 * except where a stage ends (edge).
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
/* SEGMENTS: the text segment of a position, 0 everywhere. MASKED_*: masked language modelling (exec/data/data.h):
 * tokens, some of them hidden, and the hidden ones as targets, -1 elsewhere. PIXELS (b,c,h,w) have the graph's dtype, LABELS (b)
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

/* A size that depends on the tensor-parallel degree: elements per GPU. */
struct shares {
    int32_t n;
    const int32_t *tp;       /* (n), ascending */
    const int64_t *elements; /* (n) of one GPU, of one sequence */
};
/* Elements per GPU at degree tp. If not measured: replicated + sharded ÷ tp, from the two nearest measured
 * degrees (Megatron-LM shards matrices and attention heads, and replicates the rest). -1 if n is too small. */
int64_t shares_at(const struct shares *s, int32_t tp);

enum { CUTS_MAX = 2, MESH_AXES_MAX = 2 };
/* A shard of a full tensor (core/sharding/shard): of each sharded dimension, runs that are concatenated
 * in the shard. n_cuts 0: the full tensor. */
struct tensor_shard {
    int32_t n_cuts;
    struct {
        int32_t dim, n_runs;
        int64_t whole;            /* elements of the dimension */
        struct run run[RUNS_MAX]; /* ascending; any may be empty */
    } cut[CUTS_MAX];
    /* (whole dimension 0) of parameters of experts: the tensor in files and initial values has at index order[i] what the full tensor, of
     * which the cuts are, has at i (core/model/experts.h); NULL: the same order */
    const int32_t *order;
};

struct tensor {
    const char *name; /* parameters: Hugging Face's names, "transformer.h.0.mlp.c_fc.weight" */
    enum tensor_role role;
    enum dtype dtype;
    struct shape shape;
    int32_t producer; /* operator, or -1 for inputs and parameters */
    /* gradient: its activation (-1 for one of several contributions) or parameter; else -1 */
    int32_t of;
    /* activation in a training graph: the tensor of its complete gradient, else -1. Two activations share one if the
     * gradient passes unchanged (bias, add) */
    int32_t gradient;
    /* parameter gradients: 0 for the first use of its parameter, 1 for the second (tied) */
    int32_t use;
    enum tensor_input input; /* role INPUT */
    enum tensor_init init;   /* role PARAMETER */
    double init_std;
    bool decay; /* role PARAMETER: weight decay applies (matrices) */
    /* of its last dimension, if tensor parallelism shards it; else NULL */
    const struct shares *shares;
    struct tensor_shard shard; /* relative to the model's full tensor; not for gradients of activations */
    /* parameter gradient: bit x if it is partial over the devices of axis x */
    uint8_t partial;
};

/* How sufficient factors are gathered, step by step: x, then dy (core/sharding/shard). */
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
    /* by input, bit x: the gradient it returns is partial over the devices of axis x (graph.group). Gradient
     * sums add partial values first, reduce once over the group, and then add non-partial values (core/graph/gradient) */
    uint8_t partial[OP_OPERANDS_MAX];
    /* of a matmul whose full weight gradient every device computes from gathered operands; else NULL */
    const struct factors *factors;
    /* of a conversion of a parameter: its output is freed after its forward uses, and recomputed for the backward */
    bool reshard_after_forward;
    const int32_t *load_ppm; /* (experts) of a kind with gates: attrs.load_ppm of each expert of the layout; NULL: equal shares */
    struct op_attrs attrs;
    const char *name; /* unique: "h.0.mlp.c_fc", gradients "h.0.mlp.c_fc.grad_input" … */
};

enum { CUT_TENSORS_MAX = 64, GRAPH_EDGES_MAX = 2 };
struct cut {         /* tensors that cross between two layers, in order of production */
    int32_t n;       /* at most CUT_TENSORS_MAX */
    int32_t *tensor; /* (n) */
};

struct graph {
    struct arena *arena;
    int64_t serial; /* of a training graph, and of a stage's part of it: its number among those of the process; else 0 */
    /* of activations, their gradients and parameters; a parameter's gradient is dtype_master of it */
    enum dtype dtype;
    int64_t microbatch, sequence_length;
    int32_t n_fused; /* fused kinds that may be used, also by gradients (core/graph/gradient) */
    const enum op_kind *fused;
    const struct exchange *group
        [MESH_AXES_MAX]; /* of a view (core/sharding/shard): the devices along each axis; else NULL */
    /* Of a window of a forward graph (core/sharding/shard.h), whose tensors from before it have producer -1 and require gradients:
     * 1 + the tensor that is read behind the window, where its gradient comes from; 0: none, the loss is inside. (n_tensors) uses of
     * parameters before the window; NULL: none */
    int32_t open;
    const int32_t *uses_before;
    int32_t n_tensors, n_ops, n_forward; /* ops[0 … n_forward-1] are the forward ones */
    struct tensor *tensors;
    struct graph_op *ops;
    size_t tensor_capacity, op_capacity;
    /* Last layers of a plan's stages. Over such an edge one gradient of each activation flows back, the complete
     * one (core/graph/gradient): crossing[e][tensor], -1: none; NULL before differentiation */
    int32_t n_edges, edge[GRAPH_EDGES_MAX], *crossing[GRAPH_EDGES_MAX];
    int32_t n_layers;
    struct cut *cut;         /* (n_layers - 1): activations that cross from layer k to k+1 */
    const char **layer_name; /* (n_layers) display name: "h.0.attn", "head" … */
};

struct graph *graph_new(struct arena *a, enum dtype dtype, int64_t microbatch,
                        int64_t sequence_length);
/* Copies the name; sets producer -1 for inputs and parameters, of -1 for all but gradients, gradient -1. */
int32_t graph_add_tensor(struct graph *g, struct tensor t);
/* Infers and adds outputs (activations named "<name>" or "<name>.<i>"). ERR_INPUT if shapes do not fit. */
MUST_CHECK enum status graph_add_op(struct graph *g, enum op_kind kind, const char *name,
                                    const struct op_attrs *attrs, const int32_t *inputs,
                                    int32_t n_inputs, int32_t *outputs, struct error *err);
/* For core/graph/gradient: appends a copy of *op (and of its name); the name of an operator's output. */
int32_t graph_push_op(struct graph *g, const struct graph_op *op);
const char *graph_output_name(struct graph *g, const char *op, int32_t output, int32_t n_outputs);
void graph_op_shapes(const struct graph *g, const struct graph_op *op, struct op_shapes *out);

/* The default layers of a forward graph: cuts of one activation. O(operators + operands). */
void graph_find_layers(struct graph *g);
/* Whether the operator belongs to one of these layers. */
bool graph_op_within(const struct graph *g, int32_t op, int32_t first_layer, int32_t last_layer);
/* Sets layers that end with the forward operators last[0 … n_layers-1], ascending, the last one with the last operator. -1 and a repeated
 * operator: a layer without operators, outside of a window.
 * O(operators + operands + crossing tensors). */
void graph_set_layers(struct graph *g, const int32_t *last, int32_t n_layers);
/* Gradients that cross back over each cut of a training graph: produced after it, read before it. (n_layers - 1) */
struct cut *graph_gradient_cuts(struct arena *a, const struct graph *g);
int64_t graph_tensor_bytes(const struct graph *g, int32_t tensor);
int64_t graph_cut_bytes(const struct graph *g, const struct cut *c); /* of all its tensors */
/* Replaces forward operators by the fused kinds in list (if the intermediate has one consumer), and the results
 * again; layers stay. Fused kinds of gradients are recorded for gradient_build. Returns a new graph in the same arena, with the
 * names of g. */
struct graph *graph_fuse(const struct graph *g, const enum op_kind *list, int32_t n);
/* Whether the kind was in graph_fuse's list. */
bool graph_fuses(const struct graph *g, enum op_kind kind);

#endif
