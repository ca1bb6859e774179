/* core/graph/op.h - what the operator table knows of a kind, an operator, its attributes and shapes.
 *
 * One row is one operator (core/graph/op_rows.inc). Everything
 * that needs to know what an operator is - the planner, the simulator's costs, both executors -
 * asks this table; no other file writes an operator's FLOPs or shapes down.
 * Tensors are dense, row-major. Activations are (b, T, d): sequences, positions, features; a kind
 * that works on rows flattens all leading dimensions. Gradient operators are rows like the others,
 * apart by what they compute: the gradient of the input (phase I) or of a weight (phase W), so that
 * zero-bubble schedules need nothing new. Operators that write a weight gradient add to it
 * (attrs.accumulate); the update zeroes it while it passes over it.
 * Fused kinds are rows too; their row names what they fuse, and lowering alone decides to use them.
 */
#ifndef CORE_GRAPH_OP_H
#define CORE_GRAPH_OP_H

#include "core/base/error.h"
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
/* In what gradients are added up and updates computed (Micikevicius et al. 2018): fp32 for the halves, else t itself. */
enum dtype dtype_master(enum dtype t);
bool dtype_parse(const char *name, enum dtype *out); /* also float32, float64, bfloat16, float16 */

/* The rows of core/graph/op_rows.inc, which says what each kind takes and gives. */
enum op_kind {
#define OP_EVERY(name, ...) OP_##name,
#include "core/graph/op_rows.inc"
    OP_KIND_COUNT
};

struct rope_scaling { /* Llama 3.1's; factor 0 means none */
    double factor, low_freq_factor, high_freq_factor, original_max_position;
};

struct stencil { /* what a convolution or pooling looks through; height, width */
    int32_t kernel[2], stride[2], padding[2];
    int32_t size[2]; /* of x, where only its gradient is seen */
};

struct op_shard { /* n of `of`, from `first` on; of 0: all of them */
    int64_t first, n, of;
};

struct op_attrs { /* by families of kinds; 0 in whatever a kind does not have */
    bool accumulate; /* every weight gradient, and sums: outputs are added to */
    /* products: matmul, linear, expert_matmul */
    bool trans_a, trans_b;
    /* elementwise: gelu, bias_gelu; rotary, to_rows; to_rows: an image is one row */
    bool gelu_erf, inverse, flat;
    /* updates: adamw, sgd. narrows: p is a master copy; one more output is p in the dtype that operators read. scaled: by the program's
     * loss scale, also cross_entropy_grad and gating_grad */
    bool decay, narrows, scaled;
    int64_t grows_after; /* rescale */
    /* attention, rotary: heads of its x. window: positions seen, itself included; 0 = all before */
    int32_t heads, kv_heads, head_dim, window;
    bool eager;         /* attention: masked scores and probabilities are written and read again, with dropout between */
    bool bidirectional; /* attention: every position sees every other; without a window */
    double theta;       /* rotary base */
    struct rope_scaling rope;
    /* norms */
    double eps;
    int32_t groups; /* group_norm */
    /* embedding, logits, loss. vocabulary: embedding_grad, logits_weight_grad; cross_entropy, its gradient: > 0 where rows are longer */
    int64_t vocabulary;
    int64_t counted;   /* cross_entropy: targets of a sequence that count; 0: all, and none is -1 */
    int64_t mean_rows; /* cross_entropy: > 0 where its rows are a part of so many, which its gradient is the mean over */
    /* cross_entropy_grad; gating: of the balancing loss, which its gradient has times what a sequence weighs */
    double scale;
    /* experts: gating, dispatch, combine, gates_grad, expert_matmul */
    int32_t chosen;   /* experts of a position (top-k) */
    int32_t experts;  /* of the whole model where the gates are only some experts'; 0: as many as gates has */
    int64_t capacity; /* dispatch: slots of an expert for a sequence */
    bool weighted;    /* dispatch, combine: rows are multiplied by their gate */
    bool renormalise; /* gating */
    /* images: convolutions and pooling; bias and its gradient of dimensions `dim` … dim + dims - 1, 0: the last one */
    struct stencil stencil;
    int32_t dim, dims;
    bool blank; /* paste: what x does not fill becomes 0. slice, paste: which dimension is dim, of y from start, `sequences` long */
    /* dropout: another stream for each of a model; rate of what becomes 0, [0, 1) */
    int64_t stream;
    double rate;
    /* Part of an operator that a device does. start: slice, paste: first sequence; rotary, attention: position of the first row (of q);
     * embedding and cross_entropy of a shard of the vocabulary: its first entry, and `whole` has the number of all (0: nothing is missing);
     * dropout of a part: its first element and those of a whole sequence */
    int64_t start, whole;
    /* of an operator of which a device does a part and has an operand whole: attention's queries of a packed qkv, lines of y of
     * conv2d and pooling, positions of dispatch and combine */
    struct op_shard lines;
    struct op_shard columns; /* dropout: of each row; dispatch, combine …: slots of each expert */
    const struct exchange *exchange; /* conversions */
    /* several GPUs of one device. GPUs > 1: operands are whole, and so many each do their part (measured layers); ranks: that all_reduce,
     * all_gather, reduce_scatter join; of a norm: > 1 where every one has a partial value of its output's gradient, to be summed first */
    int32_t tp, ranks;
    /* measured_*: which layer was measured, op_measured_row; sequences of the microbatch (slice, paste: of y); elements of one sequence;
     * first: reads no activation */
    int64_t row, sequences, out, kept;
    bool first;
    int32_t link; /* message: of the cluster */
};

struct op_shapes { /* all that FLOPs and bytes depend on */
    int32_t n_inputs, n_outputs;
    struct shape input[OP_OPERANDS_MAX], output[OP_OPERANDS_MAX];
};

const char *op_kind_name(enum op_kind kind);
bool op_is_measured(enum op_kind kind); /* one of the kinds that nothing computes */
bool op_is_group(enum op_kind kind);    /* a conversion that devices do together */
/* Forward kinds that are matrix products, which is where the work of a model is: matmul, linear, attention, conv2d,
 * expert_matmul. */
bool op_is_product(enum op_kind kind);
int64_t op_measured_row(const char *model, const char *layer); /* > 0 */
bool op_kind_parse(const char *name, enum op_kind *out);

/* Elements of a row of logits that stand for an entry of the vocabulary. */
int64_t op_logits(const struct op_attrs *attrs, const struct shape *logits);
/* Fills shapes->output from input. ERR_INPUT with the operator's name and both shapes where they do not fit. */
MUST_CHECK enum status op_infer(enum op_kind kind, const struct op_attrs *attrs,
                                struct op_shapes *shapes, struct error *err);
/* Floating-point operations of one execution (a multiply-add is 2). */
double op_flops(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes);
/* Least bytes that cross device memory, each operand once; int32 operands (ids, targets) count 4 a piece. */
int64_t op_bytes_read(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes, enum dtype t);
int64_t op_bytes_written(enum op_kind kind, const struct op_attrs *attrs,
                         const struct op_shapes *shapes, enum dtype t);
/* Bytes that one GPU sends to its neighbour in a ring: all_reduce 2(n-1)/n of its operand, all_gather and
 * reduce_scatter (n-1)/n of the whole; 0 for every other kind. */
double op_wire_bytes(enum op_kind kind, const struct op_attrs *attrs,
                     const struct op_shapes *shapes, enum dtype t);
/* Bytes of scratch that a CUDA kernel of it takes, at most; 0 for kinds that need none. t: of every operand that is not wide. */
int64_t op_scratch(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                   enum dtype t);
bool op_uses_workspace(enum op_kind kind); /* of matrix products on a device */
bool op_input_is_int32(enum op_kind kind, int32_t input);
/* In half precision the output is fp32 all the same: sums over many elements (statistics of norms, log-sum-exps, losses). Outputs
 * that a gradient adds up for a parameter are wide as well (core/graph/graph.h). */
bool op_output_is_wide(enum op_kind kind, int32_t output);
bool op_is_routed(enum op_kind kind); /* gating, or a kind with gates */
/* Which input is gates, made by gating and saying which rows are worked on; -1 where none is. */
int32_t op_gates_input(enum op_kind kind);
/* Slots of one expert, over all sequences, that are expected to be filled; of kinds with gates and dispatched rows. */
double op_expert_rows(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes);
/* Of a kind with gates of some of the model's experts only: rows that the fullest of all such parts is expected to have, in
 * rows of an even part; 1 for every other operator. spread: standard deviation ÷ mean of the rows that the experts get in one
 * call. n parts of e of E experts, dealt out regardless of their rows, have σ² = e (1 - e/E) E/(E-1) spread² (rows of an
 * expert)² each, and the largest of n is expected ln((n - 3/8)/(5/8))/1.702 · σ above the mean (normal scores after Blom 1958, the
 * logistic for the normal: 3 % off for n up to 8, 16 % above at 64); nor do e experts get more than all positions min(e, chosen)
 * times. */
double op_expert_excess(enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, double spread);
/* The kinds that this kind fuses, in order; count 0 for plain kinds. */
int32_t op_fuses(enum op_kind kind, enum op_kind out[2]);
/* Of a fused kind: is what its first part gives its last output? */
bool op_fused_keeps(enum op_kind kind);

/* Structural key: equal keys cost the same on the same device type (zero-redundant profiling).
 * Names and slots are not part of it; kind, shapes, dtype and the attributes that change the work are.
 * Shapes count as far as they change the work: a kind that works on rows has its leading dimensions
 * multiplied together, an elementwise kind all of them; op_infer takes such shapes too. A window that
 * sees all positions is none. */
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
