/* tests/support/kernel_rows.h - operators of every kind with their gradient operators, and operators of nothing. Knows no Check: suites
 * of kernels use it, and whatever compares a device's kernels with the host's.
 */
#ifndef TESTS_SUPPORT_KERNEL_ROWS_H
#define TESTS_SUPPORT_KERNEL_ROWS_H

#include "core/graph/op.h"

enum { VOCABULARY = 7 };

/* clang-format off */
#define ATTENTION(h, k, d, w) {.heads = (h), .kv_heads = (k), .head_dim = (d), .window = (w)}
#define BIDIRECTIONAL(h, k, d) {.heads = (h), .kv_heads = (k), .head_dim = (d), .bidirectional = true}
/* clang-format on */

enum { TA = 1, TB = 2, ACC = 4, TURN_BACK = 8, FRONT = 16, BLANK = 32, RULES_MAX = 3 };

/* FRONT: what stands in front of the part; BLANK: zeros around it, in all of the first input's dimension. */
/* One gradient operator. in: a b c are the forward inputs, A B its outputs, d the gradient of A,
 * p what the rule before gave. out: for each output the forward input whose gradient it is. */
struct kernel_rule {
    enum op_kind kind;
    unsigned flags;
    const char *in, *out;
};

struct kernel_row {
    enum op_kind kind;
    struct op_attrs attrs;
    const char *inputs;
    struct kernel_rule rules[RULES_MAX];
};

/* clang-format off */
#define PACKED {{OP_attention_grad, 0, "aABd", "0"}}
#define SEPARATE {{OP_attention_grad, 0, "abcABd", "012"}}
#define MATMUL {{OP_matmul, TB, "db", "0"}, {OP_matmul, TA | ACC, "ad", "1"}}
#define LINEAR {{OP_matmul, TB, "db", "0"}, {OP_matmul, TA | ACC, "ad", "1"}, {OP_bias_grad, ACC, "d", "2"}}
/* of what gelu was taken of; what is added to a norm's gradient is its x */
#define LINEAR_GELU {{OP_gelu_grad, 0, "Bd", ""}, {OP_bias_grad, ACC, "p", "2"}}
#define LOGITS {{OP_logits_grad, 0, "db", "0"}, {OP_logits_weight_grad, ACC, "da", "1"}}
#define LAYER_NORM {{OP_layer_norm_grad, 0, "abBd", "0"}, {OP_layer_norm_weight_grad, ACC, "aBd", "12"}, \
                    {OP_layer_norm_grad_add, 0, "abBda", ""}}
#define RMS_NORM {{OP_rms_norm_grad, 0, "abBd", "0"}, {OP_rms_norm_weight_grad, ACC, "aBd", "1"}}
#define BIAS_GELU {{OP_bias_gelu_grad, 0, "abd", "0"}, {OP_bias_grad, ACC, "p", "1"}}
#define GATING(k, r) {.chosen = (k), .renormalise = (r)}
#define COMBINE {{OP_dispatch, 0, "db", "0"}, {OP_gates_grad, 0, "abd", "1"}}
#define EXPERTS {{OP_expert_matmul, TB, "dbc", "0"}, {OP_expert_matmul, TA | ACC, "adc", "1"}}
#define PART_ROTARY(h, d, r, i) {.heads = (h), .head_dim = (d), .rotary_dim = (r), .interleaved = (i), .theta = 100}
#define CAPPED(h, k, d, w) {.heads = (h), .kv_heads = (k), .head_dim = (d), .window = (w), .softcap = 0.7}
#define ROTARY(h, d, f) {.heads = (h), .head_dim = (d), .theta = 100, .rope = {(f), 1, 4, 16}}
#define STENCIL(kh, kw, sh, sw, ph, pw, h, w) \
    {.stencil = {{kh, kw}, {sh, sw}, {ph, pw}, {h, w}}}
#define CONV {{OP_conv2d_grad, 0, "bd", "0"}, {OP_conv2d_weight_grad, ACC, "ad", "1"}}
#define MAX_POOL {{OP_max_pool2d_grad, 0, "Bd", "0"}}
#define AVG_POOL {{OP_avg_pool2d_grad, 0, "d", "0"}}
#define GROUP_NORM {{OP_group_norm_grad, 0, "abBd", "0"}, {OP_group_norm_weight_grad, ACC, "aBd", "12"}}
#define TO_ROWS {{OP_to_rows, TURN_BACK, "d", "0"}}
#define PREPEND {{OP_slice, 0, "d", "0"}, {OP_slice, FRONT, "d", ""}, {OP_bias_grad, ACC, "p", "1"}}
/* clang-format on */

static const struct kernel_row kernel_rows[] = {
    {OP_matmul, {0}, "2,3,4 x 4,5", MATMUL},
    {OP_matmul, {0}, "1,1,1 x 1,1", MATMUL},
    {OP_matmul, {0}, "3,7,1 x 1,9", MATMUL},
    {OP_matmul, {0}, "5,17 x 17,1", MATMUL},
    {OP_matmul,
     {.trans_b = true},
     "2,3,4 x 5,4",
     {{OP_matmul, 0, "db", "0"}, {OP_matmul, TA | ACC, "da", "1"}}},
    {OP_linear, {0}, "2,3,4 x 4,5 x 5", LINEAR},
    {OP_linear, {0}, "1,1,1 x 1,1 x 1", LINEAR},
    {OP_linear,
     {.trans_b = true},
     "2,3,4 x 5,4 x 5",
     {{OP_matmul, 0, "db", "0"}, {OP_matmul, TA | ACC, "da", "1"}, {OP_bias_grad, ACC, "d", "2"}}},
    {OP_linear_gelu, {0}, "2,3,4 x 4,8 x 8", LINEAR_GELU},
    {OP_linear_gelu, {.trans_b = true}, "2,3,4 x 5,4 x 5", LINEAR_GELU},
    {OP_matmul_gelu_grad, {0}, "2,3,5 x 5,8 x 2,3,8", {{0}}},
    {OP_matmul_gelu_grad, {.trans_b = true}, "70,5 x 16,5 x 70,16", {{0}}},
    {OP_matmul_gelu_grad, {.trans_b = true}, "2,3,5 x 3,5 x 2,3,3", {{0}}},
    {OP_logits, {.vocabulary = 61}, "2,3,4 x 61,4", LOGITS},
    {OP_logits, {.vocabulary = 3}, "5,2 x 3,2", LOGITS},
    {OP_logits, {.vocabulary = 72}, "3,9 x 72,9", LOGITS},
    {OP_bias, {0}, "3,5,7 x 7", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {0}, "70,3 x 3", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_add, {0}, "3,19 x 3,19", {{OP_accumulate, ACC, "d", "0"}, {OP_accumulate, ACC, "d", "1"}}},
    {OP_multiply, {0}, "3,19 x 3,19", {{OP_multiply, 0, "db", "0"}, {OP_multiply, 0, "da", "1"}}},
    {OP_gelu, {0}, "3,19", {{OP_gelu_grad, 0, "ad", "0"}}},
    {OP_gelu, {.gelu_erf = true}, "3,19", {{OP_gelu_grad, 0, "ad", "0"}}},
    {OP_silu, {0}, "3,19", {{OP_silu_grad, 0, "ad", "0"}}},
    {OP_bias_gelu, {0}, "5,19 x 19", BIAS_GELU},
    {OP_bias_gelu, {.gelu_erf = true}, "1,1 x 1", BIAS_GELU},
    {OP_swiglu, {0}, "2,3,11 x 2,3,11", {{OP_swiglu_grad, 0, "abd", "01"}}},
    {OP_layer_norm, {.eps = 1e-5}, "2,3,37 x 37 x 37", LAYER_NORM},
    {OP_layer_norm, {.eps = 1e-5}, "70,2 x 2 x 2", LAYER_NORM},
    {OP_layer_norm, {.eps = 1e-5}, "2,3,96 x 96 x 96", LAYER_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "2,3,37 x 37", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "2,3,12 x 4", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5}, "4,1 x 1", RMS_NORM},
    {OP_rms_norm, {.eps = 1e-5, .unit_offset = true}, "2,3,12 x 4", RMS_NORM},
    {OP_embedding, {.vocabulary = VOCABULARY}, "3,5 x 7,9", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = VOCABULARY}, "1 x 7,1", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_rotary, ROTARY(2, 6, 0), "2,9,12", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, ROTARY(1, 8, 8), "2,9,8", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, PART_ROTARY(2, 6, 4, false), "2,9,12", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, PART_ROTARY(3, 8, 4, true), "2,5,24", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, PART_ROTARY(1, 6, 6, true), "1,7,6", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_attention, CAPPED(2, 2, 3, 0), "2,5,18", PACKED},
    {OP_attention, CAPPED(4, 2, 8, 20), "2,67,32 x 2,67,16 x 2,67,16", SEPARATE},
    {OP_attention, ATTENTION(2, 2, 3, 0), "2,5,18", PACKED},
    {OP_attention, ATTENTION(4, 2, 3, 0), "1,7,24", PACKED},
    {OP_attention, ATTENTION(1, 1, 1, 0), "1,1,3", PACKED},
    {OP_attention, ATTENTION(2, 1, 4, 5), "1,131,16", PACKED},
    {OP_attention, ATTENTION(4, 2, 3, 0), "2,67,12 x 2,67,6 x 2,67,6", SEPARATE},
    {OP_attention, ATTENTION(3, 1, 5, 70), "1,150,15 x 1,150,5 x 1,150,5", SEPARATE},
    {OP_attention, ATTENTION(2, 2, 2, 1), "2,3,4 x 2,3,4 x 2,3,4", SEPARATE},
    {OP_attention, BIDIRECTIONAL(2, 2, 3), "2,5,18", PACKED},
    {OP_attention, BIDIRECTIONAL(4, 2, 3), "1,131,24", PACKED},
    {OP_attention, BIDIRECTIONAL(2, 1, 4), "2,67,8 x 2,67,4 x 2,67,4", SEPARATE},
    {OP_cross_entropy,
     {.scale = 1.0 / 15},
     "3,5,7 x 3,5",
     {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy, {.scale = 1}, "1,1,600 x 1,1", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    /* rows of logits longer than the vocabulary */
    {OP_cross_entropy, {.scale = 1.0 / 15, .vocabulary = 61}, "3,5,64 x 3,5", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy, {.scale = 1.0 / 3, .vocabulary = 1501}, "1,3,1536 x 1,3", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    /* one target a sequence */
    {OP_cross_entropy, {.scale = 0.2}, "5,7 x 5", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy, {.scale = 0.2}, "5,1,7 x 5", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_bias, {.dim = 1, .dims = 1}, "2,3,4,5 x 3", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {.dim = 1, .dims = 2}, "70,3,5 x 3,5", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {.dim = 1, .dims = 2}, "2,3,4,5 x 3,4", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_bias, {.dim = 3, .dims = 1}, "2,3,4,5 x 5", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_conv2d, STENCIL(3, 3, 1, 1, 1, 1, 5, 6), "2,3,5,6 x 4,3,3,3", CONV},
    {OP_conv2d, STENCIL(3, 2, 2, 1, 1, 0, 5, 6), "2,3,5,6 x 4,3,3,2", CONV},
    {OP_conv2d, STENCIL(2, 4, 3, 2, 1, 3, 7, 5), "1,2,7,5 x 3,2,2,4", CONV},
    {OP_conv2d, STENCIL(1, 1, 1, 1, 0, 0, 1, 1), "3,1,1,1 x 1,1,1,1", CONV},
    {OP_conv2d, STENCIL(4, 4, 4, 4, 0, 0, 9, 8), "2,3,9,8 x 5,3,4,4", CONV},
    /* more columns than are made at once, with a rest of lines */
    {OP_conv2d, STENCIL(5, 5, 1, 1, 2, 2, 37, 41), "1,8,37,41 x 2,8,5,5", CONV},
    {OP_scale, {.scale = 1.7}, "3,19", {{OP_scale, 0, "d", "0"}}},
    {OP_softcap, {.scale = 1.5}, "3,19", {{OP_softcap_grad, 0, "Ad", "0"}}},
    {OP_relu, {0}, "3,19", {{OP_relu_grad, 0, "Ad", "0"}}},
    {OP_max_pool2d, STENCIL(2, 2, 2, 2, 0, 0, 6, 4), "2,3,6,4", MAX_POOL},
    {OP_max_pool2d, STENCIL(3, 2, 1, 2, 1, 1, 5, 7), "2,3,5,7", MAX_POOL},
    {OP_max_pool2d, STENCIL(5, 1, 3, 1, 4, 0, 5, 3), "1,2,5,3", MAX_POOL},
    {OP_avg_pool2d, STENCIL(2, 2, 2, 2, 0, 0, 6, 4), "2,3,6,4", AVG_POOL},
    {OP_avg_pool2d, STENCIL(3, 2, 1, 3, 2, 1, 5, 7), "2,3,5,7", AVG_POOL},
    {OP_group_norm, {.eps = 1e-5, .groups = 2}, "2,6,3,5 x 6 x 6", GROUP_NORM},
    {OP_group_norm, {.eps = 1e-5, .groups = 1}, "3,2,37 x 2 x 2", GROUP_NORM},
    {OP_group_norm, {.eps = 1e-5, .groups = 2}, "3,12 x 12 x 12", GROUP_NORM},
    {OP_to_rows, STENCIL(0, 0, 0, 0, 0, 0, 5, 7), "2,3,5,7", TO_ROWS},
    {OP_to_rows, STENCIL(0, 0, 0, 0, 0, 0, 4, 5), "2,33,4,5", TO_ROWS},
    {OP_to_rows, {.flat = true, .stencil.size = {5, 7}}, "2,3,5,7", TO_ROWS},
    {OP_prepend, {.dim = 1, .dims = 2, .start = 1, .sequences = 3}, "2,3,4 x 1,4", PREPEND},
    {OP_prepend, {.dim = 1, .dims = 2, .start = 2, .sequences = 5}, "3,5,4 x 2,4", PREPEND},
    {OP_slice, {.dim = 1, .sequences = 1}, "2,5,3", {{OP_paste, BLANK, "d", "0"}}},
    {OP_slice, {.dim = 2, .start = 1, .sequences = 2}, "2,5,3", {{OP_paste, BLANK, "d", "0"}}},
    {OP_slice, {.start = 1, .sequences = 2}, "4,3", {{OP_paste, BLANK, "d", "0"}}},
    {OP_dropout, {.rate = 0.3, .stream = 5}, "3,2,7", {{OP_dropout, 0, "d", "0"}}},
    {OP_gating, GATING(2, false), "2,5,7", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_gating, GATING(2, true), "2,5,7", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_gating, GATING(1, false), "1,9,3", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_gating, GATING(4, true), "3,2,4", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_dispatch, {.capacity = 3}, "2,9,5 x 2,9,4", {{OP_combine, 0, "db", "0"}}},
    {OP_dispatch, {.capacity = 9}, "2,9,5 x 2,9,4", {{OP_combine, 0, "db", "0"}}},
    {OP_combine, {.weighted = true, .capacity = 3}, "2,4,3,5 x 2,9,4", COMBINE},
    {OP_combine, {.weighted = true, .capacity = 7}, "3,2,7,17 x 3,7,2", COMBINE},
    {OP_combine, {.capacity = 2}, "2,4,2,5 x 2,9,4", {{OP_dispatch, 0, "db", "0"}}},
    {OP_expert_matmul, {0}, "2,4,3,5 x 4,5,6 x 2,9,4", EXPERTS},
    {OP_expert_matmul, {0}, "3,2,7,1 x 2,1,9 x 3,7,2", EXPERTS},
    {OP_expert_matmul,
     {.trans_b = true},
     "2,4,3,5 x 4,6,5 x 2,9,4",
     {{OP_expert_matmul, 0, "dbc", "0"}, {OP_expert_matmul, TA | ACC, "dac", "1"}}},
};
enum { N_KERNEL_ROWS = sizeof kernel_rows / sizeof *kernel_rows };

static const struct kernel_row empty_kernel_rows[] = {
    {OP_matmul, {0}, "0,3,4 x 4,5", MATMUL},
    {OP_matmul, {0}, "2,3,4 x 4,0", MATMUL},
    {OP_matmul, {0}, "2,3,0 x 0,5", MATMUL},
    {OP_linear_gelu, {0}, "0,3,4 x 4,5 x 5", LINEAR_GELU},
    {OP_linear_gelu, {0}, "2,3,0 x 0,5 x 5", LINEAR_GELU},
    {OP_matmul_gelu_grad, {0}, "0,5 x 5,8 x 0,8", {{0}}},
    {OP_matmul_gelu_grad, {0}, "3,0 x 0,8 x 3,8", {{0}}},
    {OP_logits, {.vocabulary = 3}, "0,5,2 x 3,2", LOGITS},
    {OP_bias, {0}, "0,7 x 7", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_add, {0}, "0,3 x 0,3", {{OP_accumulate, ACC, "d", "0"}}},
    {OP_gelu, {0}, "0,3", {{OP_gelu_grad, 0, "ad", "0"}}},
    {OP_bias_gelu, {0}, "0,3 x 3", BIAS_GELU},
    {OP_swiglu, {0}, "0,3 x 0,3", {{OP_swiglu_grad, 0, "abd", "01"}}},
    {OP_layer_norm, {.eps = 1e-5}, "0,3 x 3 x 3", {{OP_layer_norm_grad, 0, "abBd", "0"}}},
    {OP_rms_norm, {.eps = 1e-5}, "0,3 x 3", {{OP_rms_norm_grad, 0, "abBd", "0"}}},
    {OP_embedding, {.vocabulary = 7}, "0,5 x 7,2", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_rotary, ROTARY(1, 4, 0), "0,3,4", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_attention, ATTENTION(2, 2, 2, 0), "0,3,12", PACKED},
    {OP_attention, ATTENTION(2, 2, 2, 0), "2,0,12", PACKED},
    {OP_conv2d, STENCIL(2, 2, 1, 1, 0, 0, 3, 3), "0,2,3,3 x 4,2,2,2", CONV},
    {OP_conv2d, STENCIL(2, 2, 1, 1, 0, 0, 3, 3), "2,0,3,3 x 4,0,2,2", CONV},
    {OP_conv2d, STENCIL(2, 2, 1, 1, 0, 0, 3, 3), "2,2,3,3 x 0,2,2,2", CONV},
    {OP_max_pool2d, STENCIL(2, 2, 2, 2, 0, 0, 6, 4), "0,3,6,4", MAX_POOL},
    {OP_avg_pool2d, STENCIL(2, 2, 2, 2, 0, 0, 6, 4), "2,0,6,4", AVG_POOL},
    {OP_group_norm, {.eps = 1e-5, .groups = 2}, "0,6,3,5 x 6 x 6", GROUP_NORM},
    {OP_to_rows, STENCIL(0, 0, 0, 0, 0, 0, 5, 7), "0,3,5,7", TO_ROWS},
    {OP_bias, {.dim = 1, .dims = 1}, "0,3,4 x 3", {{OP_bias_grad, ACC, "d", "1"}}},
    {OP_prepend, {.dim = 1, .dims = 2, .start = 1, .sequences = 3}, "0,3,4 x 1,4", PREPEND},
    {OP_slice, {.dim = 1, .sequences = 1}, "0,5,3", {{OP_paste, BLANK, "d", "0"}}},
    {OP_cross_entropy, {.scale = 1}, "0,3,7 x 0,3", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_dropout, {.rate = 0.3}, "0,3,4", {{OP_dropout, 0, "d", "0"}}},
    {OP_gating, GATING(2, true), "0,3,4", {{OP_gating_grad, 0, "aAd", "0"}}},
    {OP_dispatch, {.capacity = 2}, "0,3,5 x 0,3,4", {{OP_combine, 0, "db", "0"}}},
    {OP_combine, {.weighted = true, .capacity = 2}, "0,4,2,5 x 0,3,4", COMBINE},
    {OP_expert_matmul, {0}, "0,4,2,5 x 4,5,6 x 0,3,4", EXPERTS},
};
enum { N_EMPTY_KERNEL_ROWS = sizeof empty_kernel_rows / sizeof *empty_kernel_rows };

/* --- parts of nothing --- */

struct empty_call {
    enum op_kind kind;
    struct op_attrs attrs;
    const char *inputs;
};
static const struct empty_call empty_calls[] = {
    {OP_matmul, {0}, "0,3,4 x 4,5"},
    {OP_matmul, {0}, "2,3,4 x 4,0"},
    {OP_matmul, {0}, "2,3,0 x 0,5"},
    {OP_matmul, {.trans_b = true}, "2,0,4 x 5,4"},
    {OP_matmul, {.trans_b = true}, "2,3,4 x 0,4"},
    {OP_matmul, {.trans_a = true, .accumulate = true}, "2,0,4 x 2,0,5"},
    {OP_matmul, {.trans_a = true, .accumulate = true}, "2,3,0 x 2,3,5"},
    {OP_bias, {0}, "2,3,0 x 0"},
    {OP_bias_grad, {.accumulate = true}, "2,3,0"},
    {OP_bias_grad, {.accumulate = true}, "0,3,4"},
    {OP_add, {0}, "2,0,3 x 2,0,3"},
    {OP_multiply, {0}, "2,3,0 x 2,3,0"},
    {OP_gelu, {0}, "2,3,0"},
    {OP_gelu_grad, {0}, "2,3,0 x 2,3,0"},
    {OP_silu, {0}, "0"},
    {OP_silu_grad, {0}, "0 x 0"},
    {OP_bias_gelu, {0}, "2,3,0 x 0"},
    {OP_bias_gelu_grad, {0}, "2,3,0 x 0 x 2,3,0"},
    {OP_swiglu, {0}, "2,3,0 x 2,3,0"},
    {OP_swiglu_grad, {0}, "2,3,0 x 2,3,0 x 2,3,0"},
    {OP_layer_norm, {0}, "2,0,4 x 4 x 4"},
    {OP_layer_norm_grad, {0}, "2,0,4 x 4 x 0,2 x 2,0,4"},
    {OP_layer_norm_grad_add, {0}, "2,0,4 x 4 x 0,2 x 2,0,4 x 2,0,4"},
    {OP_layer_norm_weight_grad, {.accumulate = true}, "2,0,4 x 0,2 x 2,0,4"},
    {OP_rms_norm, {0}, "2,3,0 x 4"},
    {OP_rms_norm_grad, {0}, "2,3,0 x 4 x 0,1 x 2,3,0"},
    {OP_rms_norm_weight_grad, {.accumulate = true, .head_dim = 4}, "2,3,0 x 0,1 x 2,3,0"},
    {OP_embedding, {.whole = 7}, "2,3 x 0,4"},
    {OP_embedding, {.whole = 7}, "2,3 x 7,0"},
    {OP_embedding, {.whole = 7}, "2,0 x 7,4"},
    {OP_embedding_grad, {.whole = 7, .accumulate = true}, "2,3 x 2,3,4"},
    {OP_rotary, {.heads = 0, .head_dim = 4, .theta = 10}, "2,3,0"},
    {OP_rotary, {.heads = 1, .head_dim = 4, .theta = 10, .start = 3}, "2,0,4"},
    {OP_attention, {.head_dim = 4}, "2,3,0"},
    {OP_attention, {.head_dim = 4}, "2,3,0 x 2,3,0 x 2,3,0"},
    {OP_attention, {.heads = 2, .kv_heads = 1, .head_dim = 2, .start = 3}, "2,0,4 x 2,3,2 x 2,3,2"},
    {OP_attention_grad, {.head_dim = 4}, "2,3,0 x 2,3,0 x 2,0,3 x 2,3,0"},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 1, .head_dim = 2, .start = 3},
     "2,0,4 x 2,3,2 x 2,3,2 x 2,0,4 x 2,2,0 x 2,0,4"},
    {OP_attention, {.heads = 2, .kv_heads = 1, .head_dim = 2, .lines = {3, 0, 3}}, "2,3,8"},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 1, .head_dim = 2, .lines = {3, 0, 3}},
     "2,3,8 x 2,0,4 x 2,2,0 x 2,0,4"},
    {OP_conv2d, {.stencil = {.stride = {1, 1}}, .lines = {2, 0, 4}}, "2,3,4,4 x 5,3,1,1"},
    {OP_conv2d, {.stencil = {.stride = {2, 2}}}, "2,3,0,4 x 5,3,2,2"},
    {OP_conv2d_grad, {.stencil = {.stride = {2, 2}, .size = {0, 4}}}, "5,3,2,2 x 2,5,0,2"},
    {OP_conv2d_weight_grad,
     {.accumulate = true, .stencil = {.kernel = {2, 2}, .stride = {2, 2}}},
     "2,3,0,4 x 2,5,0,2"},
    {OP_max_pool2d, {.stencil = {{2, 2}, {2, 2}, {0}, {0}}}, "2,3,0,4"},
    {OP_avg_pool2d_grad,
     {.stencil = {{3, 2}, {1, 2}, {1, 0}, {4, 4}}, .lines = {4, 0, 4}},
     "2,3,0,2"},
    {OP_to_rows, {0}, "2,3,0,5"},
    {OP_to_rows, {.inverse = true, .stencil.size = {0, 5}}, "2,0,3"},
    {OP_dropout, {.rate = 0.5, .columns = {4, 0, 4}}, "2,3,0"},
    {OP_dispatch, {.chosen = 1, .capacity = 2, .lines = {3, 0, 3}}, "2,0,5 x 2,3,4"},
    {OP_dispatch, {.chosen = 1, .columns = {2, 0, 2}}, "2,3,5 x 2,3,4"},
    {OP_combine, {.chosen = 1, .columns = {2, 0, 2}}, "2,4,0,5 x 2,3,4"},
    {OP_combine, {.chosen = 1, .lines = {0, 0, 3}}, "2,4,2,5 x 2,3,4"},
    {OP_cross_entropy, {0}, "0,3,7 x 0,3"},
    {OP_cross_entropy_grad, {.whole = 7}, "2,3,0 x 2,3 x 2,3"},
    {OP_accumulate, {0}, "2,0"},
};
enum { N_EMPTY_CALLS = sizeof empty_calls / sizeof *empty_calls };

#endif
