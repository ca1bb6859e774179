/* core/graph/op.c - the operator table.
 *
 * One row says everything: operands, shape rule, FLOPs, bytes, gradient, what it fuses, and which
 * attributes change its work. The rules stand next door (op_shapes.c, op_work.c, gradient_rules.c),
 * the row points to them; a new operator is a new row and a name in op.h.
 *
 * FLOPs: additions, multiplications, divisions, comparisons and each elementary function (exp,
 * tanh, erf, sqrt) count 1 and are counted from the textbook formula written beside the row. They
 * feed a roofline; where memory bounds (all rows but matmul and attention) their exact value is moot.
 *
 * Bytes: every operand once, except where the row has a rule of its own.
 */
#include "core/graph/op.h"

#include "core/base/rng.h"
#include "core/graph/gradient_rules.h"
#include "core/graph/op_shapes.h"
#include "core/graph/op_work.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Attributes that change the work of a kind and so belong to its key; accumulate always does. */
enum {
    A_TRANS = 1,
    A_ERF = 2,
    A_HEADS = 4,
    A_HEAD_DIM = 8,
    A_VOCABULARY = 16,
    A_DECAY = 32,
    A_ROW = 64,
    A_LINK = 128,
    A_RANKS = 256,
    A_PART = 512,
    A_KERNEL = 1024, /* of the stencil */
    A_STRIDE = 2048, /* and padding */
    A_SIZE = 4096,
    A_GROUPS = 8192,
    A_DIM = 16384,
    A_TURN = 32768, /* inverse, flat */
    A_EXPERTS = 65536,
    A_CAPACITY = 131072,
    A_WEIGHTED = 262144,
    A_RENORMALISE = 524288,
    A_NARROWS = 1048576
};

/* How much of an operand's shape matters to the cost: all of it, (rows, last), or its elements. */
enum layout { WHOLE, ROWS, FLAT };

struct op_row {
    int32_t n_inputs, n_inputs_or; /* the second where a kind takes either */
    int32_t n_outputs;
    uint32_t int32_inputs; /* bit i: input i holds int32 */
    uint32_t wide_outputs; /* bit i: output i is wide */
    int32_t gates;         /* 1 + the input that is gates; 0: none */
    op_shape_rule *infer;
    double flops_per_element; /* of input 0; used where flops is NULL */
    flops_rule *flops;
    bytes_rule *bytes; /* NULL: each operand once, accumulated outputs read too */
    op_gradient_rule *gradient;
    uint32_t key_attrs;
    enum layout layout;
    bool any_inputs; /* the shape rule counts them */
    bool keeps; /* fused: what the first part gives is one more output */
    int32_t n_fuses;
    enum op_kind fuses[2];
};

/* clang-format off */
static const struct op_row table[OP_KIND_COUNT] = {
    [OP_matmul] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_matmul, .flops = flops_matmul,
                   .gradient = gradient_rule_matmul, .key_attrs = A_TRANS, .layout = ROWS},
    [OP_bias] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_bias, .flops_per_element = 1,
                 .gradient = gradient_rule_bias, .key_attrs = A_DIM, .layout = ROWS},
    [OP_bias_grad] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_bias_grad,
                      .flops_per_element = 1, .key_attrs = A_DIM, .layout = ROWS},
    [OP_add] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 1,
                .gradient = gradient_rule_add, .layout = FLAT},
    [OP_multiply] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 1,
                     .gradient = gradient_rule_multiply, .layout = FLAT},
    [OP_linear] = {.n_inputs = 3, .n_outputs = 1, .infer = shapes_linear, .flops = flops_linear,
                   .gradient = gradient_rule_linear, .key_attrs = A_TRANS, .layout = ROWS, .n_fuses = 2,
                   .fuses = {OP_matmul, OP_bias}},
    [OP_linear_gelu] = {.n_inputs = 3, .n_outputs = 2, .infer = shapes_linear, .flops = flops_linear_gelu,
                        .gradient = gradient_rule_linear_gelu, .key_attrs = A_TRANS, .layout = ROWS, .n_fuses = 2,
                        .fuses = {OP_linear, OP_gelu}, .keeps = true},
    [OP_matmul_gelu_grad] = {.n_inputs = 3, .n_outputs = 2, .infer = shapes_matmul_gelu_grad, .flops = flops_matmul_gelu_grad,
                             .key_attrs = A_TRANS, .layout = ROWS, .n_fuses = 2, .fuses = {OP_matmul, OP_gelu_grad}},
    [OP_logits] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_logits, .flops = flops_logits,
                   .gradient = gradient_rule_logits, .layout = ROWS, .n_fuses = 1, .fuses = {OP_matmul}},
    [OP_logits_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_logits_grad, .flops = flops_logits_grad, .layout = ROWS},
    [OP_logits_weight_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_logits_weight_grad,
                               .flops = flops_logits_weight_grad, .key_attrs = A_VOCABULARY, .layout = ROWS},
    [OP_gelu] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same, .flops = flops_gelu,
                 .gradient = gradient_rule_activation, .key_attrs = A_ERF, .layout = FLAT},
    [OP_gelu_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops = flops_gelu_grad,
                      .key_attrs = A_ERF, .layout = FLAT},
    /* x / (1 + exp(-x)) */
    [OP_silu] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 4,
                 .gradient = gradient_rule_activation, .layout = FLAT},
    /* s = sigmoid(x): 4; dy·s·(1 + x(1-s)): 5 */
    [OP_silu_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 9,
                      .layout = FLAT},
    [OP_bias_gelu] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_bias, .flops = flops_bias_gelu,
                      .gradient = gradient_rule_bias_gelu, .key_attrs = A_ERF, .layout = ROWS,
                      .n_fuses = 2, .fuses = {OP_bias, OP_gelu}},
    [OP_bias_gelu_grad] = {.n_inputs = 3, .n_outputs = 1, .infer = shapes_bias,
                           .flops = flops_bias_gelu_grad, .key_attrs = A_ERF, .layout = ROWS},
    [OP_swiglu] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 5,
                   .gradient = gradient_rule_swiglu, .layout = FLAT, .n_fuses = 2,
                   .fuses = {OP_silu, OP_multiply}},
    /* s 4, silu 1, du 1, dg = dy·u·s·(1 + g(1-s)) 6 */
    [OP_swiglu_grad] = {.n_inputs = 3, .n_outputs = 2, .infer = shapes_same,
                        .flops_per_element = 12, .layout = FLAT},
    /* mean 1, centre 1, squares 2, scale 1, gamma 1, beta 1 */
    [OP_layer_norm] = {.n_inputs = 3, .n_outputs = 2, .wide_outputs = 2, .infer = shapes_norm, .flops_per_element = 7,
                       .gradient = gradient_rule_layer_norm, .layout = ROWS},
    /* x̂ 2, g = dy·gamma 1, Σg 1, Σg·x̂ 2, (g - mean - x̂·mean)/std 4 */
    [OP_layer_norm_grad] = {.n_inputs = 4, .n_outputs = 1, .infer = shapes_norm_grad,
                            .flops_per_element = 10, .layout = ROWS},
    [OP_layer_norm_grad_add] = {.n_inputs = 5, .n_outputs = 1, .infer = shapes_norm_grad, .flops_per_element = 11,
                                .layout = ROWS, .n_fuses = 2, .fuses = {OP_layer_norm_grad, OP_add}},
    /* x̂ 2, Σdy·x̂ 2, Σdy 1 */
    [OP_layer_norm_weight_grad] = {.n_inputs = 3, .n_outputs = 2, .infer = shapes_norm_weight_grad,
                                   .flops_per_element = 5, .layout = ROWS},
    /* squares 2, scale 1, gamma 1 */
    [OP_rms_norm] = {.n_inputs = 2, .n_outputs = 2, .wide_outputs = 2, .infer = shapes_norm, .flops_per_element = 4,
                     .gradient = gradient_rule_rms_norm, .layout = ROWS},
    /* g = dy·gamma 1, x̂ 1, Σg·x̂ 2, (g - x̂·mean)/rms 3 */
    [OP_rms_norm_grad] = {.n_inputs = 4, .n_outputs = 1, .infer = shapes_norm_grad,
                          .flops_per_element = 7, .layout = ROWS},
    [OP_rms_norm_weight_grad] = {.n_inputs = 3, .n_outputs = 1, .infer = shapes_norm_weight_grad,
                                 .flops_per_element = 3, .layout = ROWS},
    [OP_embedding] = {.n_inputs = 2, .n_outputs = 1, .int32_inputs = 1, .infer = shapes_embedding,
                      .bytes = bytes_embedding, .gradient = gradient_rule_embedding},
    [OP_embedding_grad] = {.n_inputs = 2, .n_outputs = 1, .int32_inputs = 1,
                           .infer = shapes_embedding_grad, .flops = flops_embedding_grad,
                           .bytes = bytes_embedding_grad, .key_attrs = A_VOCABULARY},
    /* a pair turns with 4 multiplications and 2 additions; sines come from a table */
    [OP_rotary] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_rotary, .flops_per_element = 3,
                   .gradient = gradient_rule_rotary, .key_attrs = A_HEAD_DIM},
    [OP_attention] = {.n_inputs = 3, .n_inputs_or = 1, .n_outputs = 2, .wide_outputs = 2, .infer = shapes_attention,
                      .flops = flops_attention, .bytes = bytes_attention, .gradient = gradient_rule_attention,
                      .key_attrs = A_HEADS | A_HEAD_DIM},
    [OP_attention_grad] = {.n_inputs = 6, .n_inputs_or = 4, .n_outputs = 3,
                           .infer = shapes_attention_grad, .flops = flops_attention_grad, .bytes = bytes_attention_grad,
                           .key_attrs = A_HEADS | A_HEAD_DIM},
    /* maximum, subtract, exp, sum */
    [OP_cross_entropy] = {.n_inputs = 2, .n_outputs = 2, .wide_outputs = 3, .int32_inputs = 2,
                          .infer = shapes_cross_entropy, .flops_per_element = 4,
                          .gradient = gradient_rule_cross_entropy},
    /* scale · exp(logit - lse) */
    [OP_cross_entropy_grad] = {.n_inputs = 3, .n_outputs = 1, .int32_inputs = 2,
                               .infer = shapes_cross_entropy_grad, .flops_per_element = 3},
    [OP_conv2d] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_conv2d, .flops = flops_conv2d,
                   .gradient = gradient_rule_conv2d, .key_attrs = A_STRIDE},
    [OP_conv2d_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_conv2d_grad, .flops = flops_conv2d_grad,
                        .key_attrs = A_STRIDE | A_SIZE},
    [OP_conv2d_weight_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_conv2d_weight_grad,
                               .flops = flops_conv2d_weight_grad, .key_attrs = A_STRIDE | A_KERNEL},
    [OP_relu] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 1,
                 .gradient = gradient_rule_relu, .layout = FLAT},
    [OP_relu_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 1, .layout = FLAT},
    [OP_max_pool2d] = {.n_inputs = 1, .n_outputs = 2, .infer = shapes_pool2d, .flops = flops_pool2d,
                       .gradient = gradient_rule_max_pool2d, .key_attrs = A_STRIDE | A_KERNEL},
    /* one addition for what each window gives back */
    [OP_max_pool2d_grad] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_pool2d_grad, .flops_per_element = 1,
                            .key_attrs = A_STRIDE | A_KERNEL | A_SIZE},
    [OP_avg_pool2d] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_pool2d, .flops = flops_pool2d,
                       .gradient = gradient_rule_avg_pool2d, .key_attrs = A_STRIDE | A_KERNEL},
    [OP_avg_pool2d_grad] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_pool2d_grad, .flops = flops_avg_pool2d_grad,
                            .key_attrs = A_STRIDE | A_KERNEL | A_SIZE},
    /* as layer_norm */
    [OP_group_norm] = {.n_inputs = 3, .n_outputs = 2, .wide_outputs = 2, .infer = shapes_group_norm, .flops_per_element = 7,
                       .gradient = gradient_rule_group_norm, .key_attrs = A_GROUPS},
    [OP_group_norm_grad] = {.n_inputs = 4, .n_outputs = 1, .infer = shapes_group_norm_grad, .flops_per_element = 10,
                            .key_attrs = A_GROUPS},
    [OP_group_norm_weight_grad] = {.n_inputs = 3, .n_outputs = 2, .infer = shapes_group_norm_weight_grad,
                                   .flops_per_element = 5, .key_attrs = A_GROUPS},
    [OP_to_rows] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_to_rows, .gradient = gradient_rule_to_rows,
                    .key_attrs = A_TURN},
    [OP_prepend] = {.n_inputs = 2, .n_outputs = 1, .infer = shapes_prepend, .gradient = gradient_rule_prepend},
    [OP_accumulate] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same, .flops_per_element = 1,
                       .bytes = bytes_accumulate, .layout = FLAT},
    [OP_zero] = {.n_outputs = 1, .infer = shapes_none, .layout = FLAT},
    [OP_adamw] = {.n_inputs = 4, .n_outputs = 4, .infer = shapes_same, .flops = flops_adamw,
                  .key_attrs = A_DECAY | A_NARROWS, .layout = FLAT},
    [OP_flat_adamw] = {.n_inputs = 4, .n_outputs = 4, .infer = shapes_same, .flops = flops_adamw,
                       .key_attrs = A_DECAY | A_NARROWS, .layout = FLAT, .n_fuses = 1, .fuses = {OP_adamw}},
    [OP_sgd] = {.n_inputs = 2, .n_outputs = 2, .infer = shapes_same, .flops = flops_sgd,
                .key_attrs = A_DECAY | A_NARROWS, .layout = FLAT},
    [OP_flat_sgd] = {.n_inputs = 2, .n_outputs = 2, .infer = shapes_same, .flops = flops_sgd,
                     .key_attrs = A_DECAY | A_NARROWS, .layout = FLAT, .n_fuses = 1, .fuses = {OP_sgd}},
    /* squared and added, and looked at once */
    [OP_overflow] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_overflow, .flops_per_element = 2, .layout = FLAT},
    [OP_rescale] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_rescale, .flops_per_element = 1, .layout = FLAT},
    /* between the cards of one device; additions ride on the wire and are not counted */
    [OP_all_reduce] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same,
                       .gradient = gradient_rule_all_reduce, .key_attrs = A_RANKS, .layout = FLAT},
    [OP_all_gather] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_all_gather,
                       .gradient = gradient_rule_all_gather, .key_attrs = A_RANKS},
    [OP_reduce_scatter] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_reduce_scatter,
                           .gradient = gradient_rule_reduce_scatter, .key_attrs = A_RANKS},
    /* a copy, which counts nothing; how far from the front is no work */
    [OP_slice] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_slice, .bytes = bytes_slice,
                  .gradient = gradient_rule_slice, .key_attrs = A_PART},
    [OP_paste] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_paste, .bytes = bytes_paste, .key_attrs = A_PART},
    /* ten rounds of Philox for four elements (2 products, 4 exclusive ors, 2 sums each), compare, scale */
    [OP_dropout] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_dropout, .flops_per_element = 22,
                    .gradient = gradient_rule_dropout, .layout = FLAT},
    [OP_gating] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_gating, .flops = flops_gating,
                   .gradient = gradient_rule_gating, .key_attrs = A_EXPERTS | A_RENORMALISE},
    [OP_gating_grad] = {.n_inputs = 3, .n_outputs = 1, .gates = 2, .infer = shapes_gating,
                        .flops = flops_gating_grad, .key_attrs = A_RENORMALISE},
    [OP_dispatch] = {.n_inputs = 2, .n_outputs = 1, .gates = 2, .infer = shapes_dispatch, .flops = flops_dispatch,
                     .bytes = bytes_dispatch, .gradient = gradient_rule_dispatch,
                     .key_attrs = A_EXPERTS | A_CAPACITY | A_WEIGHTED},
    [OP_combine] = {.n_inputs = 2, .n_outputs = 1, .gates = 2, .infer = shapes_combine, .flops = flops_combine,
                    .bytes = bytes_combine, .gradient = gradient_rule_combine, .key_attrs = A_EXPERTS | A_WEIGHTED},
    [OP_gates_grad] = {.n_inputs = 3, .n_outputs = 1, .gates = 2, .infer = shapes_gates_grad,
                       .flops = flops_gates_grad, .bytes = bytes_gates_grad, .key_attrs = A_EXPERTS},
    [OP_expert_matmul] = {.n_inputs = 3, .n_outputs = 1, .gates = 3, .infer = shapes_expert_matmul,
                          .flops = flops_expert_matmul, .bytes = bytes_expert_matmul,
                          .gradient = gradient_rule_expert_matmul, .key_attrs = A_EXPERTS | A_TRANS},
    /* copies of a part; which part is no work */
    [OP_local_slice] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_local_slice, .bytes = bytes_slice,
                      .gradient = gradient_rule_local_slice},
    [OP_add_to_slice] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_add_to_slice, .flops_per_element = 1, .bytes = bytes_add_to_slice},
    /* maximum, subtract, exp, sum of these columns */
    [OP_cross_entropy_part] = {.n_inputs = 2, .n_outputs = 1, .wide_outputs = 1, .int32_inputs = 2,
                               .infer = shapes_cross_entropy_part, .flops_per_element = 4},
    [OP_cross_entropy_join] = {.n_inputs = 3, .n_outputs = 2, .wide_outputs = 3, .int32_inputs = 4,
                               .infer = shapes_cross_entropy_join, .flops_per_element = 2,
                               .bytes = bytes_cross_entropy_join, .gradient = gradient_rule_cross_entropy_join},
    /* between the devices of a group; additions ride on the wire and are not counted */
    [OP_group_all_gather] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_gather,
                             .gradient = gradient_rule_group_all_gather},
    [OP_group_reduce_scatter] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_local_slice,
                                 .gradient = gradient_rule_group_reduce_scatter},
    [OP_group_all_reduce] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_same,
                             .gradient = gradient_rule_all_reduce},
    [OP_group_all_to_all] = {.n_inputs = 1, .n_outputs = 1, .infer = shapes_to_other_part,
                             .gradient = gradient_rule_group_all_to_all},
    [OP_measured_forward] = {.n_inputs = 2, .n_inputs_or = 1, .n_outputs = 2,
                             .infer = shapes_measured_forward,
                             .gradient = gradient_rule_measured_forward, .key_attrs = A_ROW},
    [OP_measured_backward] = {.n_inputs = 4, .n_outputs = 3, .infer = shapes_measured_backward,
                              .any_inputs = true, .key_attrs = A_ROW},
    [OP_message] = {.n_inputs = 1, .infer = shapes_same, .key_attrs = A_LINK, .layout = FLAT},
    [OP_assemble] = {.n_inputs = 1, .infer = shapes_same, .layout = FLAT},
};
/* clang-format on */

enum status op_infer(enum op_kind kind, const struct op_attrs *attrs, struct op_shapes *shapes,
                     struct error *err)
{
    const struct op_row *row = &table[kind];
    int32_t n = shapes->n_inputs;
    if (n != row->n_inputs && !(row->n_inputs_or && n == row->n_inputs_or) && !row->any_inputs)
        return error_set(err, ERR_INPUT, "%s: takes %d operands, not %d", op_kind_name(kind),
                         row->n_inputs, n);
    shapes->n_outputs = row->n_outputs + attrs->narrows;
    return row->infer(kind, attrs, shapes, err);
}

double op_flops(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes)
{
    const struct op_row *row = &table[kind];
    if (row->flops) return row->flops(attrs, shapes);
    return shapes->n_inputs ? row->flops_per_element * (double)shape_elements(&shapes->input[0])
                            : 0;
}

static void bytes_of(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *s,
                     enum dtype t, int64_t *read, int64_t *written)
{
    int64_t b = dtype_bytes(t);
    if (table[kind].bytes) {
        table[kind].bytes(attrs, s, b, read, written);
        return;
    }
    *read = *written = 0;
    for (int32_t i = 0; i < s->n_inputs; i++)
        *read += shape_elements(&s->input[i]) * (op_input_is_int32(kind, i) ? 4 : b);
    for (int32_t i = 0; i < s->n_outputs; i++)
        *written +=
            shape_elements(&s->output[i]) * (attrs->narrows && i == s->n_outputs - 1 ? b / 2 : b);
    if (attrs->accumulate) *read += *written;
}

int64_t op_bytes_read(enum op_kind kind, const struct op_attrs *attrs,
                      const struct op_shapes *shapes, enum dtype t)
{
    int64_t read, written;
    bytes_of(kind, attrs, shapes, t, &read, &written);
    return read;
}

int64_t op_bytes_written(enum op_kind kind, const struct op_attrs *attrs,
                         const struct op_shapes *shapes, enum dtype t)
{
    int64_t read, written;
    bytes_of(kind, attrs, shapes, t, &read, &written);
    return written;
}

bool op_input_is_int32(enum op_kind kind, int32_t input)
{
    return table[kind].int32_inputs >> input & 1;
}

bool op_output_is_wide(enum op_kind kind, int32_t output)
{
    return table[kind].wide_outputs >> output & 1;
}

bool op_is_routed(enum op_kind kind) { return kind == OP_gating || table[kind].gates; }

int32_t op_gates_input(enum op_kind kind) { return table[kind].gates - 1; }

int32_t op_fuses(enum op_kind kind, enum op_kind out[2])
{
    for (int32_t i = 0; i < table[kind].n_fuses; i++) out[i] = table[kind].fuses[i];
    return table[kind].n_fuses;
}

bool op_fused_keeps(enum op_kind kind) { return table[kind].keeps; }

op_gradient_rule *op_gradient(enum op_kind kind) { return table[kind].gradient; }

/* --- the structural key: number and text are two prints of one list --- */

struct key_attr {
    const char *name;
    int64_t value; /* 0: not printed; the number itself only where the name ends in '=' */
};
enum { KEY_ATTRS_MAX = 32 };

static int32_t stencil_attrs(uint32_t has, const struct op_attrs *a,
                             struct key_attr out[KEY_ATTRS_MAX], int32_t n)
{
    const struct {
        uint32_t flag;
        const char *name[2];
        const int32_t *value;
    } pairs[] = {{A_KERNEL, {"kernel_h=", "kernel_w="}, a->stencil.kernel},
                 {A_STRIDE, {"stride_h=", "stride_w="}, a->stencil.stride},
                 {A_STRIDE, {"padding_h=", "padding_w="}, a->stencil.padding},
                 {A_SIZE, {"h=", "w="}, a->stencil.size}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int k = 0; k < 2; k++)
            if (has & pairs[i].flag)
                out[n++] = (struct key_attr){pairs[i].name[k], pairs[i].value[k]};
    return n;
}

static int32_t key_attrs(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                         struct key_attr out[KEY_ATTRS_MAX])
{
    uint32_t has = table[kind].key_attrs;
    int32_t n = 0;
    if (has & A_ROW) {
        out[n++] = (struct key_attr){"row=", a->row};
        out[n++] = (struct key_attr){"sequences=", a->sequences};
        return n;
    }
    if (has & A_LINK) out[n++] = (struct key_attr){"link=", a->link};
    out[n++] = (struct key_attr){"ta", (has & A_TRANS) && a->trans_a};
    out[n++] = (struct key_attr){"tb", (has & A_TRANS) && a->trans_b};
    out[n++] = (struct key_attr){"acc", a->accumulate};
    out[n++] = (struct key_attr){"erf", (has & A_ERF) && a->gelu_erf};
    out[n++] = (struct key_attr){"decay", (has & A_DECAY) && a->decay};
    if (has & A_NARROWS) out[n++] = (struct key_attr){"narrows", a->narrows};
    out[n++] = (struct key_attr){"heads=", has & A_HEADS ? a->heads : 0};
    out[n++] = (struct key_attr){"head_dim=", has & A_HEAD_DIM ? a->head_dim : 0};
    out[n++] = (struct key_attr){"window=", has & A_HEADS ? op_attention_window(a, s) : 0};
    out[n++] = (struct key_attr){"V=", has & A_VOCABULARY ? a->vocabulary : 0};
    /* Later than profiles that are kept: no part of a key where it is not set. */
    if ((has & A_HEADS) && a->eager) out[n++] = (struct key_attr){"eager", 1};
    /* names are no part of the number: another one than eager's */
    if ((has & A_HEADS) && a->bidirectional) out[n++] = (struct key_attr){"bidirectional", 2};
    if (has & A_PART) out[n++] = (struct key_attr){"sequences=", a->sequences};
    if (has & A_RANKS) out[n++] = (struct key_attr){"ranks=", a->ranks};
    /* Causal: later queries see more keys than there are queries. */
    if ((has & A_HEADS) && a->start + a->lines.first) {
        out[n++] = (struct key_attr){"from", 4};
        out[n++] = (struct key_attr){"start=", a->start + a->lines.first};
    }
    /* Part of an operator whose operands are whole; how many slots there are shows in an operand. */
    if (a->lines.of || ((has & A_EXPERTS) && a->columns.first)) {
        out[n++] = (struct key_attr){"part", 5};
        out[n++] = (struct key_attr){"n=", a->lines.n};
        out[n++] = (struct key_attr){"slot=", has & A_EXPERTS ? a->columns.first : 0};
    }
    /* A part is as much work as is copied, which its operand does not tell. */
    if (a->exchange && s->n_outputs)
        out[n++] = (struct key_attr){"to=", shape_elements(&s->output[0])};
    if ((has & (A_PART | A_DIM)) && (a->dim || a->blank)) {
        out[n++] = (struct key_attr){"dim=", a->dim};
        out[n++] = (struct key_attr){"dims=", has & A_DIM ? a->dims : 0};
        out[n++] = (struct key_attr){"blank", (has & A_PART) && a->blank};
    }
    if (has & A_GROUPS) out[n++] = (struct key_attr){"groups=", a->groups};
    if (has & A_TURN) out[n++] = (struct key_attr){"inverse", a->inverse};
    if (has & A_TURN) out[n++] = (struct key_attr){"flat", a->flat};
    if (has & A_EXPERTS) out[n++] = (struct key_attr){"chosen=", a->chosen};
    if (has & A_EXPERTS) out[n++] = (struct key_attr){"experts=", a->experts};
    if (has & A_CAPACITY) out[n++] = (struct key_attr){"capacity=", a->capacity};
    if (has & A_WEIGHTED) out[n++] = (struct key_attr){"weighted", a->weighted};
    if (has & A_RENORMALISE) out[n++] = (struct key_attr){"renormalise", a->renormalise};
    if ((has & A_RENORMALISE) && a->scale != 0) out[n++] = (struct key_attr){"balanced", 7};
    return stencil_attrs(has, a, out, n);
}

/* The part of a shape that the cost depends on. kv_heads is seen in attention's operands. */
static struct shape key_shape(enum op_kind kind, const struct op_attrs *a, const struct shape *s)
{
    if ((table[kind].key_attrs & A_DIM) && a->dim) return *s; /* no rows */
    if (table[kind].layout == FLAT) return (struct shape){.rank = 1, .dim = {shape_elements(s)}};
    if (table[kind].layout == ROWS && s->rank > 2)
        return (struct shape){.rank = 2, .dim = {shape_rows(s), shape_last(s)}};
    return *s;
}

/* Inputs determine outputs; zero has none and shows its output. */
static int32_t key_shapes(enum op_kind kind, const struct op_attrs *a, const struct op_shapes *s,
                          struct shape out[OP_OPERANDS_MAX])
{
    int32_t n = table[kind].key_attrs & A_ROW ? 0 : s->n_inputs ? s->n_inputs : s->n_outputs;
    for (int32_t i = 0; i < n; i++)
        out[i] = key_shape(kind, a, s->n_inputs ? &s->input[i] : &s->output[i]);
    return n;
}

uint64_t op_key(enum op_kind kind, const struct op_attrs *attrs, const struct op_shapes *shapes,
                enum dtype t)
{
    enum { WORDS_MAX = 3 + OP_OPERANDS_MAX * (SHAPE_RANK_MAX + 1) + KEY_ATTRS_MAX };
    struct key_attr attr[KEY_ATTRS_MAX];
    struct shape shape[OP_OPERANDS_MAX];
    int32_t n_attrs = key_attrs(kind, attrs, shapes, attr),
            n = key_shapes(kind, attrs, shapes, shape);
    /* The kind goes in by name: its number may change from one version to the next, a profile
     * stays. */
    uint64_t start = hash_text(hash_text(0, op_kind_name(kind)), dtype_name(t));
    int64_t words[WORDS_MAX];
    size_t used = 0;
    for (int32_t i = 0; i < n; i++) {
        words[used++] = shape[i].rank;
        for (int32_t d = 0; d < shape[i].rank; d++) words[used++] = shape[i].dim[d];
    }
    for (int32_t i = 0; i < n_attrs; i++) words[used++] = attr[i].value;
    return hash_bytes(start, words, used * sizeof *words);
}

PRINTF_LIKE(4, 5) static void append(char *buffer, size_t n, size_t *used, const char *fmt, ...)
{
    if (*used >= n) return;
    va_list ap;
    va_start(ap, fmt);
    int wrote = vsnprintf(buffer + *used, n - *used, fmt, ap);
    va_end(ap);
    *used += wrote > 0 ? (size_t)wrote : 0;
}

const char *op_key_text(char *buffer, size_t n, enum op_kind kind, const struct op_attrs *attrs,
                        const struct op_shapes *shapes, enum dtype t)
{
    struct key_attr attr[KEY_ATTRS_MAX];
    struct shape shape[OP_OPERANDS_MAX];
    int32_t n_attrs = key_attrs(kind, attrs, shapes, attr), n_shapes;
    char text[SHAPE_TEXT_MAX];
    size_t used = 0;
    append(buffer, n, &used, "%s %s ", op_kind_name(kind), dtype_name(t));
    n_shapes = key_shapes(kind, attrs, shapes, shape);
    for (int32_t i = 0; i < n_shapes; i++)
        append(buffer, n, &used, "%s%s", i ? "x" : "", shape_text(text, &shape[i]));
    for (int32_t i = 0; i < n_attrs; i++) {
        if (!attr[i].value) continue;
        bool number = attr[i].name[strlen(attr[i].name) - 1] == '=';
        append(buffer, n, &used, " %s", attr[i].name);
        if (number) append(buffer, n, &used, "%" PRId64, attr[i].value);
    }
    return buffer;
}
