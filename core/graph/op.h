/* core/graph/op.h - operators: kinds, attributes, shapes, FLOPs, bytes, scratch and keys, from THE operator table.
 *
 * One row is one operator (core/graph/op_rows.inc). The planner, the simulator's costs and both executors read
 * this table; no other file states an operator's FLOPs or shapes.
 * Tensors are dense, row-major. Activations are (b, T, d): sequences, positions, features; a kind
 * that works on rows flattens all leading dimensions. Gradient operators are rows too,
 * separate for the gradient of the input (phase I) and of a weight (phase W), as
 * zero-bubble schedules require. Operators that compute a weight gradient accumulate into it
 * (attrs.accumulate); the update zeroes it in the same pass.
 * Fused kinds are rows that name the kinds they fuse; only lowering replaces operators by them.
 */
#ifndef CORE_GRAPH_OP_H
#define CORE_GRAPH_OP_H

#include "core/base/error.h"
#include "core/graph/encoding.h"
#include "core/graph/phase.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHAPE_RANK_MAX = 4, OP_OPERANDS_MAX = 6, LOGITS_PACK = 64 };

struct shape {
    int32_t rank;
    int64_t dim[SHAPE_RANK_MAX]; /* dim[0 … rank-1] >= 0; row-major */
};
int64_t shape_elements(const struct shape *s);
int64_t shape_rows(const struct shape *s); /* product of all dimensions but the last */
int64_t shape_last(const struct shape *s);
bool shape_equal(const struct shape *a, const struct shape *b);

/*      name  bytes */
#define DTYPES(X) X(fp32, 4) X(fp64, 8) X(bf16, 2) X(fp16, 2) X(int32, 4)
enum dtype {
#define X(name, bytes) DTYPE_##name,
    DTYPES(X)
#undef X
        DTYPE_COUNT
};
const char *dtype_name(enum dtype t);
int64_t dtype_bytes(enum dtype t);
bool dtype_is_half(enum dtype t); /* bf16, fp16 */
/* Dtype of gradient accumulation and of updates (Micikevicius et al. 2018): fp32 for the halves, else t itself. */
enum dtype dtype_master(enum dtype t);
bool dtype_parse(const char *name, enum dtype *out); /* also float32, float64, bfloat16, float16 */

/* The rows of core/graph/op_rows.inc, which lists the operands of each kind. */
enum op_kind {
#define OP_EVERY(name, ...) OP_##name,
#include "core/graph/op_rows.inc"
    OP_KIND_COUNT
};

struct rope_scaling { /* Llama 3.1's; factor 0: none; high_freq_factor 0: linear, all frequencies are divided by the factor */
    double factor, low_freq_factor, high_freq_factor, original_max_position;
};

struct stencil { /* the window of a convolution or pooling; height, width */
    int32_t kernel[2], stride[2], padding[2];
    int32_t size[2]; /* of x, for gradients that do not read x */
};

struct op_shard { /* n of `of`, from `first` on; of 0: all of them */
    int64_t first, n, of;
};

struct op_attrs { /* by families of kinds; fields that a kind does not use are 0 */
    bool accumulate; /* weight gradients, sums: add to the outputs */
    /* products: matmul, linear, expert_matmul */
    bool trans_a, trans_b;
    /* elementwise: gelu, bias_gelu; rotary, to_rows; to_rows: an image is one row */
    bool gelu_erf, inverse, flat;
    /* updates (op_is_update). narrows: p is the fp32 master; one more output is p in half precision. scaled: by the program's loss
     * scale, also cross_entropy_grad, gating_grad and clip's squares. clipped: gradients are multiplied by the stage's factor of clip.
     * hosted: the state (m, v, and with `narrows` p) is in host memory */
    bool decay, narrows, scaled, clipped, hosted;
    int64_t grows_after; /* rescale */
    struct encoding code;    /* encode, decode */
    /* attention, rotary: heads of its x. window: visible positions, its own included; 0: all before */
    int32_t heads, kv_heads, head_dim, window;
    double softcap; /* attention: a score s becomes softcap·tanh(s/softcap); 0: stays s */
    bool eager;         /* attention: masked scores and probabilities are materialised, with dropout between */
    bool bidirectional; /* attention: no causal mask; without a window */
    double theta;       /* rotary base */
    int32_t rotary_dim; /* rotary: features of a head that rotate, its first ones; 0: all */
    bool interleaved;   /* rotary: feature 2i rotates with 2i + 1, else i with i + rotary_dim/2 */
    struct rope_scaling rope;
    /* norms */
    double eps;
    bool unit_offset; /* rms_norm: the factor is 1 + gamma (Gemma) */
    int32_t groups; /* group_norm */
    /* embedding, logits, loss. vocabulary: embedding_grad, logits_weight_grad; cross_entropy, its gradient: > 0 if rows are padded */
    int64_t vocabulary;
    int64_t counted;   /* cross_entropy: targets of a sequence that count; 0: all, and none is -1 */
    int64_t mean_rows; /* cross_entropy of a shard of the rows: > 0: all rows that the gradient is the mean over */
    /* cross_entropy_grad; gating: factor of the load-balancing loss in its gradient, times the weight of a sequence; outer_delta;
     * outer_average and outer_nesterov: the share alpha of the local parameter; scale, softcap: the constant */
    double scale;
    /* experts: gating, dispatch, combine, gates_grad, expert_matmul */
    int32_t chosen;   /* experts of a position (top-k) */
    int32_t experts;  /* of the whole model, if the gates are those of some experts only; 0: as many as gates has */
    int32_t first_expert; /* of a shard of the experts: its first one in the layout (core/model/experts.h) */
    /* expected filled slots of these experts ÷ those of as many with equal shares of the tokens, in millionths; 0: equal shares */
    int32_t load_ppm;
    int32_t block;    /* gating: 1 + transformer block, by which traces count its tokens */
    int64_t capacity; /* dispatch: slots of an expert for a sequence */
    bool weighted;    /* dispatch, combine: rows are multiplied by their gate */
    bool renormalise; /* gating */
    /* images: convolutions and pooling; bias and its gradient of dimensions `dim` … dim + dims - 1, 0: the last one */
    struct stencil stencil;
    int32_t dim, dims;
    bool blank; /* square_sum: counted on another device. paste: elements outside x become 0. slice, paste: dim is sliced, y is `sequences` long from start */
    /* dropout, encode, orthonormal: random stream, distinct for each of a model; rate: probability of 0, [0, 1) */
    int64_t stream;
    double rate;
    /* A device's shard of an operator. start: slice, paste: first sequence; rotary, attention: position of the first row (of q);
     * embedding and cross_entropy of a shard of the vocabulary: its first entry, and `whole` = size of the vocabulary (0: not sharded);
     * dropout of a shard: its first element, and `whole` = elements of a full sequence */
    int64_t start, whole;
    /* a device's shard of an operator that has a replicated operand: attention's queries of a packed qkv, lines of y of
     * conv2d and pooling, positions of dispatch and combine */
    struct op_shard lines;
    struct op_shard columns; /* dropout: of each row; dispatch, combine …: slots of each expert */
    const struct exchange *exchange; /* conversions */
    int32_t tp; /* of a measured layer: GPUs that it was measured on together, each of which computes its shard; 0 and 1: one */
    /* measured_*: row: identity of the measured layer, op_measured_row; sequences of the microbatch (slice, paste: of y); elements of
     * one sequence; first: reads no activation */
    int64_t row, sequences, out, kept;
    bool first;
    int32_t link; /* message: of the cluster */
};

struct op_shapes { /* FLOPs and bytes depend on nothing else */
    int32_t n_inputs, n_outputs;
    struct shape input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

const char *op_kind_name(enum op_kind kind);
bool op_is_measured(enum op_kind kind); /* a kind without kernels */
bool op_is_group(enum op_kind kind);    /* a conversion by a collective among devices */
/* Forward kinds that are matrix products, the bulk of a model's work: matmul, linear, attention, conv2d,
 * expert_matmul. */
bool op_is_product(enum op_kind kind);
int64_t op_measured_row(const char *model, const char *layer); /* > 0 */
bool op_kind_parse(const char *name, enum op_kind *out);

/* Elements of a row of logits, without padding: the vocabulary. */
int64_t op_logits(const struct op_attrs *attrs, const struct shape *logits);
/* Fills shapes->output from input. ERR_INPUT with the operator's name and both shapes if they do not fit. */
MUST_CHECK enum status op_infer(enum op_kind kind, const struct op_attrs *attrs,
                                struct op_shapes *shapes, struct error *err);
/* Floating-point operations of one execution (a multiply-add is 2). */
double op_flops(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes);
/* The part of op_flops that the model itself needs, whatever kernel computes it: attention counts the pairs of query and key that the
 * mask leaves, two products in the forward and four in the backward; eager attention's masked pairs and the scores that
 * attention_grad computes again are left out. Every other kind: op_flops. */
double op_model_flops(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes);
/* Lower bound of device memory traffic, bytes, each operand once; int32 operands (ids, targets) count 4 a piece. */
int64_t op_bytes_read(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes, enum dtype t);
int64_t op_bytes_written(enum op_kind kind, const struct op_attrs *attrs,
                         const struct op_shapes *shapes, enum dtype t);
/* Bytes of these, read and written, that cross to host memory: an update's state with attrs.hosted. Else 0. */
void op_bytes_hosted(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                     enum dtype t, int64_t *read, int64_t *written);
/* Upper bound of the scratch bytes of its CUDA kernel; 0 for kinds without scratch. t: dtype of every operand that is not wide. */
int64_t op_scratch(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                   enum dtype t);
bool op_is_update(enum op_kind kind); /* an optimizer's change of parameters */
bool op_uses_workspace(enum op_kind kind); /* its CUDA kernel uses the workspace of matrix products */
bool op_input_is_int32(enum op_kind kind, int32_t input);
bool op_output_is_int32(enum op_kind kind, int32_t output);
/* Whether an output is fp32 even in half precision: sums over many elements (statistics of norms, log-sum-exps, losses). Outputs
 * that a gradient accumulates for a parameter are wide as well (core/graph/graph.h). */
bool op_output_is_wide(enum op_kind kind, int32_t output);
bool op_is_routed(enum op_kind kind); /* gating, or a kind with gates */
/* Index of the input that holds gates (output of gating), which select the rows to compute; -1: none. */
int32_t op_gates_input(enum op_kind kind);
/* Slots of one expert, over all sequences, expected number that is filled; of kinds with gates and dispatched rows. */
double op_expert_rows(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes);
/* Load imbalance of expert parallelism: for a kind with gates of only some of the model's experts, the expected rows of the
 * fullest shard ÷ rows of an even shard; 1 for every other operator. spread: standard deviation ÷ mean of the rows per expert in one
 * call. n shards of e of E experts, assigned regardless of their rows, have σ² = e (1 - e/E) E/(E-1) spread² (rows of an
 * expert)² each, and the largest of n is expected ln((n - 3/8)/(5/8))/1.702 · σ above the mean (normal scores after Blom 1958, the
 * logistic for the normal: 3 % error for n up to 8, 16 % too high at 64); e experts get at most all positions min(e, chosen)
 * times. */
double op_expert_excess(enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, double spread);
/* The kinds that this kind fuses, in order; count 0 for plain kinds. */
int32_t op_fuses(enum op_kind kind, enum op_kind out[2]);
/* Of a fused kind: whether the output of its first kind is also an output (the last). */
bool op_fused_keeps(enum op_kind kind);

/* Structural key: operators with equal keys cost the same on the same device type, so each is profiled once.
 * Names and slots are not part of it; kind, shapes, dtype and the attributes that change the work are.
 * Shapes are reduced to what changes the work: a kind that works on rows has its leading dimensions
 * multiplied together, an elementwise kind all of them; op_infer accepts such shapes. A window that
 * covers all positions equals none. */
uint64_t op_key(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                enum dtype t);
/* The same, readable: "matmul fp32 (1024,256)x(512,256) tb". Equal texts, equal keys. buffer of at least 200. */
const char *op_key_text(char *buffer, size_t n, enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t);

/* The gradient rule of a row appends its gradient operators to a training graph (core/graph/gradient.h). */
struct gradient_builder;
typedef enum status op_gradient_rule(struct gradient_builder *g, int32_t op, struct error *err);
op_gradient_rule *op_gradient(enum op_kind kind); /* NULL: not differentiable */

#endif
