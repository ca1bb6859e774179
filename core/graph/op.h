/* core/graph/op.h - THE table of operator kinds.
 *
 * One row is one operator: its name, operands, shape rule, FLOPs, bytes and gradient. Everything
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

/* kind                     inputs                        -> outputs
 * matmul                   a (…,k), b (k,n)              -> y (…,n)    trans_a: a is (…rows,m) used as (m,rows); trans_b: b is (n,k)
 *                          trans_a with rows flattened gives the weight gradient xᵀ·dy (m,n): b is then (…rows,n)
 * bias                     x (…,n), b (n)                -> y          attrs.dim > 0: b is of the dimensions of x from that one
 *                                                           on, in front of it and behind it all share it: channels of (b,c,h,w)
 * bias_grad            W   dy (…,n)                      -> db (n)     attrs.dim > 0: of attrs.dims dimensions from that one on
 * add, multiply            a, b (same shape)             -> y
 * gelu, silu               x                             -> y          gelu: attrs.gelu_erf chooses erf or tanh
 * gelu_grad, silu_grad I   x, dy                         -> dx
 * linear                   a (…,k), b, bias (n)          -> a·b + bias; fuses matmul, bias; trans_b as matmul's
 * linear_gelu              a (…,k), b, bias (n)          -> y, z       z = a·b + bias, y = gelu(z) by tanh; fuses linear, gelu and keeps z
 * matmul_gelu_grad     I   dy (…,k), b, z (…,n)          -> dz, db (n) dz = (dy·b)·gelu'(z) by tanh, db = Σ rows of dz; fuses matmul, gelu_grad
 * logits                   x (…,k), w (V,k)              -> y (…,P)    x·wᵀ in rows of P elements, V rounded up to LOGITS_PACK, that begin
 *                                                           where wide loads can; 0 behind the V. fuses matmul
 * logits_grad          I   dy (…,P), w (V,k)             -> dx (…,k)   what stands behind the V is not looked at, here and below
 * logits_weight_grad   W   dy (…,P), x (…,k)             -> dw (V,k)   attrs.vocabulary = V
 * bias_gelu                x (…,n), b (n)                -> y          fuses bias, gelu
 * bias_gelu_grad       I   x, b, dy                      -> dz         dz is the gradient of x+b: db by bias_grad of it
 * swiglu                   g, u                          -> y=silu(g)·u  fuses silu, multiply
 * swiglu_grad          I   g, u, dy                      -> dg, du
 * layer_norm               x (…,n), gamma (n), beta (n)  -> y, stats (rows,2) = mean, 1/std
 * layer_norm_grad      I   x, gamma, stats, dy           -> dx
 * layer_norm_weight_grad W x, stats, dy                  -> dgamma, dbeta
 * layer_norm_grad_add  I   x, gamma, stats, dy, r        -> dx + r     fuses layer_norm_grad, add
 * rms_norm                 x (…,k·n), gamma (n)          -> y, stats (rows·k,1) = 1/rms; each run of n is normalised (k > 1: per head)
 * rms_norm_grad        I   x, gamma, stats, dy           -> dx
 * rms_norm_weight_grad W   x, stats, dy                  -> dgamma
 * embedding                ids (b,T) int32, table (V,d)  -> y (b,T,d)
 * embedding_grad       W   ids, dy                       -> dtable (V,d); attrs.vocabulary = V
 * rotary               (I) x (b,T,h·head_dim)            -> y          attrs.inverse turns back: it is its own gradient
 * attention                qkv (b,T,(H+2K)·D) packed, or q (b,T,H·D), k, v (b,T,K·D) -> o (b,T,H·D), lse (b,H,T); causal, window,
 *                          or attrs.bidirectional; attrs.eager: scores stand in memory, lse is then (b,H,T,T) probabilities
 * attention_grad       I   qkv, o, lse, do -> dqkv,   or   q, k, v, o, lse, do -> dq, dk, dv
 * cross_entropy            logits (b,T,V), targets (b,T) -> loss (1) = mean over rows, lse (b,T)
 *                          attrs.counted: so many targets of each sequence count, the others are -1; the mean is over those
 *                          attrs.vocabulary: logits have been made by `logits`: so many of each row, the gradient of the rest is 0
 * cross_entropy_grad   I   logits, targets, lse          -> dlogits = attrs.scale · (softmax − one-hot), 0 where the target is -1
 * all_reduce               x                             -> y = sum over attrs.ranks cards of one device; its gradient is dy itself
 * all_gather               x (b,T/ranks,d)               -> y (b,T,d)  every card's share of the positions, one after the other
 * reduce_scatter           x (b,T,d)                     -> y (b,T/ranks,d)  this card's share of the sum; gradient and inverse of all_gather
 * conv2d                   x (b,c,h,w), weight (o,c,kh,kw) -> y (b,o,h',w')   h' = (h + 2 padding - kh) / stride + 1, rounded down
 * conv2d_grad          I   weight, dy                    -> dx         attrs.stencil.size is x's (h,w)
 * conv2d_weight_grad   W   x, dy                         -> dweight    attrs.stencil.kernel is (kh,kw)
 * relu                     x                             -> y
 * relu_grad            I   y, dy                         -> dx
 * max_pool2d               x (b,c,h,w)                   -> y (b,c,h',w'), index (b,c,h',w') = the first largest's place in the kernel
 * max_pool2d_grad      I   index, dy                     -> dx         attrs.stencil.size is x's (h,w)
 * avg_pool2d               x (b,c,h,w)                   -> y (b,c,h',w')   padding counts as zeros
 * avg_pool2d_grad      I   dy                            -> dx         attrs.stencil.size is x's (h,w)
 * group_norm               x (b,c,…), gamma (c), beta (c) -> y, stats (b·groups,2) = mean, 1/std of c/groups channels together
 * group_norm_grad      I   x, gamma, stats, dy           -> dx
 * group_norm_weight_grad W x, stats, dy                  -> dgamma, dbeta
 * to_rows              (I) x (b,c,h,w)                   -> y (b,h·w,c), a row a place; attrs.flat: (b,c·h·w), a row an image;
 *                                                           attrs.inverse turns back to attrs.stencil.size: it is its own gradient
 * prepend                  x (b,T,d), token (k,d)        -> y (b,k+T,d)     the same token in front of every sequence
 * dropout              (I) x (b,T,…)                     -> y: an element is 0 with probability attrs.rate, else x/(1-rate) (Srivastava et
 *                                                           al. 2014). Which ones is a function of (seed, attrs.stream, number of the
 *                                                           sequence among all that are trained on, element in it) and of nothing else:
 *                                                           not of device, microbatch or how often it is drawn. Its own gradient
 * gating                   logits (b,T,E)                -> gates (b,T,E): softmax over the experts, of which the attrs.chosen largest stay
 *                                                           (of equal ones those of lower number) and the others are 0; attrs.renormalise:
 *                                                           what stays is divided by its sum, a softmax over the chosen logits.
 *                                                           attrs.scale: its gradient is that of a balancing loss as well (Fedus et
 *                                                           al. 2022, Switch Transformers): scale · E · Σ_e f_e·P_e of each sequence,
 *                                                           f_e the share of its positions that chose e, P_e the mean of e's softmax
 * gating_grad          I   logits, gates, dgates         -> dlogits; which experts are chosen is constant
 * dispatch             (I) x (b,T,d), gates (b,T,E)      -> rows (b,E,C,d), C = attrs.capacity: in every sequence expert e gets the rows
 *                                                           whose gate for it is not 0, by position, the first C of them; the other
 *                                                           slots are 0. attrs.weighted: times the gate
 * combine              (I) rows (b,E,C,d), gates (b,T,E) -> y (b,T,d): each position's rows from all experts summed, by number of the
 *                                                           expert. attrs.weighted: times the gate. Combine and dispatch are each other's
 *                                                           gradients in x and rows
 * gates_grad           I   rows, gates, dy (b,T,d)       -> dgates (b,T,E) of weighted combine: dy·row, 0 where nothing was dispatched
 * expert_matmul        (I) x (b,E,C,k), w (E,k,n), gates -> y (b,E,C,n)  expert by expert, in the slots that the gates fill; trans_b: w is
 *                          (E,n,k). trans_a: x (b,E,C,m), y (b,E,C,n), gates -> (E,m,n), the weight gradient (W)
 *                          Capacity is a sequence's: how sequences are shared changes nothing. Work counts the slots that are expected to
 *                          be filled, min(C, chosen·T/experts) of an expert, attrs.experts being all there are where gates has a part
 * accumulate               x                             -> y += x     flat
 * zero                                                   -> y = 0      flat; the caller gives output[0], there is nothing to infer from
 * slice                    x (b,…)                       -> y (sequences,…) = x from sequence attrs.start on; attrs.dim > 0: of
 *                                                           that dimension in place of sequences
 * paste                (I) x (n,…)                       -> y (sequences,…), of which x becomes those from attrs.start on; the
 *                                                           others stay as they are, or become 0 with attrs.blank, which is
 *                                                           the gradient of slice. Both also stand where devices share a
 *                                                           stage's sequences (core/lower/lower.h)
 * local_slice                x                             -> y = this device's part of x: attrs.exchange says of which dimension
 * add_to_slice             W   x                             -> y whole, whose part of this device += x
 * cross_entropy_part       logits (b,T,V/n), targets     -> (b,T,2) = lse of these columns, logit of the target (0: not mine)
 * cross_entropy_join       parts (b,T,2n), logits, targets -> loss (1), lse (b,T) over all columns; logits, of which each device has
 *                                                           some columns, are read for the gradient's sake alone
 * adamw                U   p, g, m, v (same shape)       -> p, m, v, g=0; attrs.decay says whether weight decay applies;
 *                                                           attrs.narrows: and p in half precision, p itself being fp32;
 *                                                           attrs.scaled: gradients have the loss's scale (core/graph/loss_scale.h), and
 *                                                           where the step is skipped nothing changes but g. cross_entropy_grad and
 *                                                           gating's balancing loss multiply by it
 * flat_adamw           U   the same over one contiguous run of many parameters; fuses adamw
 * sgd                  U   p, g                          -> p, g=0
 * flat_sgd             U   fuses sgd
 * overflow             U   x                             -> y (1) = 1 where an element of x is not finite or too large to be squared, else
 *                                                           0; accumulate: y += it
 * rescale              U   overflow (1)                  -> the numbers of core/graph/loss_scale.h, in place
 *
 * Conversions that the devices of a group do together (attrs.exchange, core/graph/exchange.h); messages on the wire, not a
 * call of a kernel. A whole operand is whole within the group:
 * group_all_gather         x, this one's part of a dimension -> y whole
 * group_reduce_scatter     x whole, a term               -> y, this one's part of the sum over the group
 * group_all_reduce         x, a term                     -> y = sum over the group, in the order of members
 * group_all_to_all         x, a part of dimension dim by parts -> y, a part of dimension to_dim by to
 *
 * Kinds that nothing computes: a model whose layers were only measured (core/model/measured.h) has them, they are
 * priced from measured rows and simulated, and no executor runs them.
 * measured_forward         w (n), x unless first         -> y (b,out), or the loss (1) where out is 0; kept (b,kept)
 * measured_backward    I   w, kept, x unless first, dy unless last -> dw, work (b,kept), dx unless first; I and W in one
 * message                  x                             ->            a compute stream carries x over link attrs.link
 * assemble                 x                             ->            x, come in pieces, made whole on every card
 */
#define OP_KINDS(X) OP_KINDS_COMPUTED(X) OP_KINDS_MEASURED(X) OP_KINDS_GROUP(X)
#define OP_KINDS_GROUP(X)                                                                          \
    X(group_all_gather) X(group_reduce_scatter) X(group_all_reduce) X(group_all_to_all)
#define OP_KINDS_MEASURED(X) X(measured_forward) X(measured_backward) X(message) X(assemble)
/* clang-format off */
#define OP_KINDS_COMPUTED(X) \
    X(matmul) X(bias) X(bias_grad) X(add) X(multiply) \
    X(linear) X(linear_gelu) X(matmul_gelu_grad) X(logits) X(logits_grad) X(logits_weight_grad) X(gelu) X(gelu_grad) X(silu) X(silu_grad) X(bias_gelu) X(bias_gelu_grad) X(swiglu) X(swiglu_grad) \
    X(layer_norm) X(layer_norm_grad) X(layer_norm_grad_add) X(layer_norm_weight_grad) \
    X(rms_norm) X(rms_norm_grad) X(rms_norm_weight_grad) \
    X(embedding) X(embedding_grad) X(rotary) X(attention) X(attention_grad) X(cross_entropy) X(cross_entropy_grad) \
    X(conv2d) X(conv2d_grad) X(conv2d_weight_grad) X(relu) X(relu_grad) \
    X(max_pool2d) X(max_pool2d_grad) X(avg_pool2d) X(avg_pool2d_grad) \
    X(group_norm) X(group_norm_grad) X(group_norm_weight_grad) X(to_rows) X(prepend) \
    X(accumulate) X(zero) X(adamw) X(flat_adamw) X(sgd) X(flat_sgd) X(overflow) X(rescale) \
    X(all_reduce) X(all_gather) X(reduce_scatter) X(slice) X(paste) \
    X(local_slice) X(add_to_slice) X(cross_entropy_part) X(cross_entropy_join) \
    X(dropout) X(gating) X(gating_grad) X(dispatch) X(combine) X(gates_grad) X(expert_matmul)
/* clang-format on */
enum op_kind {
#define X(name) OP_##name,
    OP_KINDS(X)
#undef X
        OP_KIND_COUNT
};

struct rope_scaling { /* Llama 3.1's; factor 0 means none */
    double factor, low_freq_factor, high_freq_factor, original_max_position;
};

struct stencil { /* what a convolution or pooling looks through; height, width */
    int32_t kernel[2], stride[2], padding[2];
    int32_t size[2]; /* of x, where only its gradient is seen */
};

struct op_part { /* n of `of`, from `first` on; of 0: all of them */
    int64_t first, n, of;
};

struct op_attrs {
    bool trans_a, trans_b; /* matmul */
    bool accumulate;       /* outputs are added to (weight gradients) */
    bool gelu_erf;
    bool inverse; /* rotary, to_rows */
    bool decay;   /* adamw, sgd */
    bool
        narrows; /* adamw, sgd: p is a master copy; one more output is p in the dtype that operators read */
    bool scaled; /* adamw, sgd, cross_entropy_grad, gating_grad: by the program's loss scale */
    int64_t grows_after;               /* rescale */
    int32_t heads, kv_heads, head_dim; /* attention, rotary (heads of its x, head_dim) */
    int32_t window; /* attention: positions seen, itself included; 0 = all before */
    /* attention: masked scores and probabilities are written and read again, with dropout between */
    bool eager;
    bool bidirectional; /* attention: every position sees every other; without a window */
    /* > 1: operands are whole, and so many cards of one device each do their part (measured layers) */
    int32_t cards;
    /* cards of one device that all_reduce, all_gather, reduce_scatter join; of a norm: > 1 where every card has a term
     * of its output's gradient, to be summed first */
    int32_t ranks;
    int64_t
        vocabulary; /* embedding_grad, logits_weight_grad; cross_entropy, its gradient: > 0 where rows are longer */
    double eps;   /* norms */
    double theta; /* rotary base */
    struct rope_scaling rope;
    /* cross_entropy_grad; gating: of the balancing loss, which its gradient has times what a sequence weighs */
    double scale;
    int64_t row;                  /* measured_*: which layer was measured, op_measured_row */
    int64_t sequences, out, kept; /* measured_*: of the microbatch; elements of one sequence */
    /* slice, paste: first sequence, and `sequences` of y; rotary, attention: position of the first row (of q); embedding and
     * cross_entropy of a part of the vocabulary: its first entry, and `whole` has the number of all (0: nothing is missing); dropout of a part: its first element and
     * those of a whole sequence */
    int64_t start, whole;
    /* of an operator of which a device does a part and has an operand whole: attention's queries of a packed qkv, lines of y of
     * conv2d and pooling, positions of dispatch and combine */
    struct op_part lines;
    struct op_part columns; /* dropout: of each row; dispatch, combine …: slots of each expert */
    int64_t
        mean_rows; /* cross_entropy: > 0 where its rows are a part of so many, which its gradient is the mean over */
    const struct exchange *exchange; /* conversions */
    int32_t dim;    /* slice, paste: which dimension; bias: its first, 0 the last one */
    int32_t dims;   /* bias_grad, where dim > 0: how many */
    bool blank;     /* paste: the rest becomes 0 */
    bool flat;      /* to_rows: an image is one row */
    int32_t groups; /* group_norm */
    struct stencil stencil;
    bool first;     /* measured_*: reads no activation */
    int32_t link;   /* message: of the cluster */
    int32_t chosen; /* gating, dispatch …: experts of a position (top-k) */
    int32_t
        experts; /* dispatch …: of the whole model where the gates are only some experts'; 0: as many as gates has */
    int64_t capacity; /* dispatch: slots of an expert for a sequence */
    bool weighted;    /* dispatch, combine: rows are multiplied by their gate */
    bool renormalise; /* gating */
    int64_t counted;  /* cross_entropy: targets of a sequence that count; 0: all, and none is -1 */
    int64_t stream;   /* dropout: another one for each of a model */
    double rate;      /* dropout: of what becomes 0, [0, 1) */
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
/* Bytes that one card sends to its neighbour in a ring: all_reduce 2(n-1)/n of its operand, all_gather and
 * reduce_scatter (n-1)/n of the whole; 0 for every other kind. */
double op_wire_bytes(enum op_kind kind, const struct op_attrs *attrs,
                     const struct op_shapes *shapes, enum dtype t);
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
