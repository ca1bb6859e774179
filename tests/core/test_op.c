/* The operator table: shapes, FLOPs and bytes worked by hand for every kind. */
#include "core/graph/op.h"
#include "tests/support/op_rows_shards.h"
#include "tests/support/suites.h"

/* b=2, T=3 unless seen otherwise; elements are 4 bytes. */
static const struct row text_rows[] = {
    {OP_matmul, {0}, "2,3,4 x 4,5", "2,3,5", 2 * 6 * 4 * 5, 4 * (24 + 20), 4 * 30},
    {OP_matmul, {.trans_b = true}, "2,3,4 x 5,4", "2,3,5", 240, 176, 120},
    {OP_matmul, {.trans_a = true}, "2,3,4 x 2,3,5", "4,5", 2 * 6 * 4 * 5, 4 * (24 + 30), 80},
    {OP_matmul, {.trans_a = true, .accumulate = true}, "2,3,4 x 2,3,5", "4,5", 240, 216 + 80, 80},
    {OP_linear, {0}, "2,3,4 x 4,5 x 5", "2,3,5", 2 * 24 * 5 + 30, 4 * (24 + 20 + 5), 120},
    {OP_bias, {0}, "2,3,4 x 4", "2,3,4", 24, 112, 96},
    {OP_bias_grad, {.accumulate = true}, "2,3,4", "4", 24, 96 + 16, 16},
    {OP_add, {0}, "2,3 x 2,3", "2,3", 6, 48, 24},
    {OP_multiply, {0}, "2,3 x 2,3", "2,3", 6, 48, 24},
    {OP_gelu, {0}, "2,3", "2,3", 54, 24, 24},
    {OP_gelu, {.gelu_erf = true}, "2,3", "2,3", 30, 24, 24},
    {OP_gelu_grad, {0}, "2,3 x 2,3", "2,3", 102, 48, 24},
    {OP_gelu_grad, {.gelu_erf = true}, "2,3 x 2,3", "2,3", 66, 48, 24},
    {OP_silu, {0}, "2,3", "2,3", 24, 24, 24},
    {OP_silu_grad, {0}, "2,3 x 2,3", "2,3", 54, 48, 24},
    {OP_bias_gelu, {0}, "2,3 x 3", "2,3", 60, 36, 24},
    {OP_bias_gelu_grad, {0}, "2,3 x 3 x 2,3", "2,3", 108, 60, 24},
    {OP_swiglu, {0}, "2,3 x 2,3", "2,3", 30, 48, 24},
    {OP_swiglu_grad, {0}, "2,3 x 2,3 x 2,3", "2,3 x 2,3", 72, 72, 48},
    {OP_layer_norm, {0}, "2,3,4 x 4 x 4", "2,3,4 x 6,2", 7 * 24, 4 * 32, 4 * (24 + 12)},
    {OP_layer_norm_grad, {0}, "2,3,4 x 4 x 6,2 x 2,3,4", "2,3,4", 240, 4 * (24 + 4 + 12 + 24), 96},
    {OP_layer_norm_weight_grad, {.accumulate = true}, "2,3,4 x 6,2 x 2,3,4", "4 x 4", 120, 4 * 60 + 32, 32},
    {OP_rms_norm, {0}, "2,3,4 x 4", "2,3,4 x 6,1", 96, 112, 4 * 30},
    /* two heads of 2 features each: twice as many statistics */
    {OP_rms_norm, {0}, "2,3,4 x 2", "2,3,4 x 12,1", 96, 4 * 26, 4 * 36},
    {OP_rms_norm_grad, {0}, "2,3,4 x 2 x 12,1 x 2,3,4", "2,3,4", 168, 4 * (24 + 2 + 12 + 24), 96},
    {OP_rms_norm_weight_grad, {0}, "2,3,4 x 12,1 x 2,3,4", "2", 72, 4 * 60, 8},
    /* six ids of 4 bytes and six rows of 5 floats, not the 100 rows of the table */
    {OP_embedding, {0}, "2,3 x 100,5", "2,3,5", 0, 24 + 120, 120},
    {OP_embedding_grad,
     {.vocabulary = 100, .accumulate = true},
     "2,3 x 2,3,5",
     "100,5",
     30,
     24 + 120 + 120,
     120},
    {OP_embedding_grad, {.vocabulary = 100}, "2,3 x 2,3,5", "100,5", 30, 24 + 120, 2000},
    {OP_rotary, {.heads = 2, .head_dim = 4}, "2,3,8", "2,3,8", 144, 192, 192},
    {OP_measured_forward, {.sequences = 2, .out = 5, .kept = 3}, "4 x 2,7", "2,5 x 2,3", 0, 72, 64},
    {OP_measured_forward, {.sequences = 2, .kept = 3, .first = true}, "4", "1 x 2,3", 0, 16, 28},
    {OP_measured_backward,
     {.sequences = 2, .out = 5, .kept = 3},
     "4 x 2,3 x 2,7 x 2,5",
     "4 x 2,3 x 2,7",
     0,
     136,
     96},
    {OP_measured_backward,
     {.sequences = 2, .kept = 3},
     "4 x 2,3 x 2,7",
     "4 x 2,3 x 2,7",
     0,
     96,
     96},
    {OP_measured_backward,
     {.sequences = 2, .out = 5, .kept = 3, .first = true},
     "4 x 2,3 x 2,5",
     "4 x 2,3",
     0,
     80,
     40},
    /* 2 sequences x 2 heads x (1+2+3) pairs x 4 x 4 features; packed (2+2·2)·4 = 24 */
    {OP_attention,
     {.heads = 2, .kv_heads = 2, .head_dim = 4},
     "2,3,24",
     "2,3,8 x 2,2,3",
     384,
     4 * 144,
     4 * (48 + 12)},
    {OP_attention,
     {.heads = 2, .kv_heads = 1, .head_dim = 4},
     "2,3,8 x 2,3,4 x 2,3,4",
     "2,3,8 x 2,2,3",
     384,
     4 * 96,
     4 * 60},
    /* a window of 2 of 3 positions: 1+2+2 pairs */
    {OP_attention, {.heads = 2, .kv_heads = 2, .head_dim = 4, .window = 2}, "2,3,24", "2,3,8 x 2,2,3", 320, 576, 240},
    {OP_attention, {.heads = 2, .kv_heads = 2, .head_dim = 4, .window = 1}, "2,3,24", "2,3,8 x 2,2,3", 192, 576, 240},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 2, .head_dim = 4},
     "2,3,24 x 2,3,8 x 2,2,3 x 2,3,8",
     "2,3,24",
     960,
     4 * (144 + 48 + 12 + 48),
     576},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 1, .head_dim = 4},
     "2,3,8 x 2,3,4 x 2,3,4 x 2,3,8 x 2,2,3 x 2,3,8",
     "2,3,8 x 2,3,4 x 2,3,4",
     960,
     4 * (96 + 48 + 12 + 48),
     4 * 96},
    {OP_cross_entropy, {0}, "2,3,10 x 2,3", "1 x 2,3", 240, 240 + 24, 28},
    {OP_cross_entropy_grad, {0}, "2,3,10 x 2,3 x 2,3", "2,3,10", 180, 240 + 48, 240},
    {OP_accumulate, {0}, "2,3", "2,3", 6, 48, 24},
    {OP_adamw, {0}, "2,3 x 2,3 x 2,3 x 2,3", "2,3 x 2,3 x 2,3 x 2,3", 84, 96, 96},
    {OP_adamw, {.decay = true}, "6 x 6 x 6 x 6", "6 x 6 x 6 x 6", 96, 96, 96},
    {OP_flat_adamw, {.decay = true}, "6 x 6 x 6 x 6", "6 x 6 x 6 x 6", 96, 96, 96},
    {OP_sgd, {0}, "6 x 6", "6 x 6", 12, 48, 48},
    {OP_flat_sgd, {.decay = true}, "6 x 6", "6 x 6", 24, 48, 48},
    {OP_lamb, {.decay = true}, "2,3 x 2,3 x 2,3 x 2,3", "2,3 x 2,3 x 2,3 x 2,3", 162, 168, 120},
    {OP_lars, {.decay = true, .narrows = true}, "6 x 6 x 6", "6 x 6 x 6 x 6", 60, 120, 108},
    {OP_outer_delta, {.scale = 0.5}, "6 x 6", "6", 12, 48, 24},
    {OP_outer_average, {0}, "6 x 6 x 6", "6 x 6 x 6", 6, 72, 72},
    {OP_outer_nesterov, {0}, "6 x 6 x 6 x 6", "6 x 6 x 6 x 6", 36, 96, 96},
    /* a scale and a word of four bytes; a scale and a word of two */
    {OP_encode, {.code = {.kind = ENCODING_INT8, .block = 4, .value_words = 1}}, "6", "4", 30, 24, 16},
    {OP_encode, {.code = {ENCODING_INT8, FEEDBACK_EF, true, 4, 0, 2}}, "2,3 x 2,3", "6 x 2,3", 6 * 29, 48, 48},
    {OP_encode, {.code = {.kind = ENCODING_FP8_E4M3, .block = 4, .value_words = 1}}, "6", "4", 48, 24, 16},
    {OP_encode, {.code = {.kind = ENCODING_BF16, .block = 4, .value_words = 1}}, "7", "4", 7, 28, 16},
    {OP_encode, {.code = {.kind = ENCODING_SIGN, .block = 40, .value_words = 1}}, "70", "5", 210, 280, 20},
    /* 4 of 10 and 2 of 3 numbers with their elements; one element and 4 of 10, one and 2 of 3 */
    {OP_encode, {.code = {.kind = ENCODING_TOP_K, .block = 10, .kept = 4, .value_words = 1}}, "13", "12", 65, 52, 48},
    {OP_encode, {.code = {.kind = ENCODING_RANDOM_K, .block = 10, .kept = 4, .value_words = 1}}, "13", "8", 0, 52, 32},
    {OP_orthonormal, {0}, "5,3", "5,3", 5 * 3 * 11, 60, 60},
    /* three members' codes */
    {OP_decode, {.code = {.kind = ENCODING_INT8, .block = 4, .value_words = 1}}, "6 x 12", "6", 36, 48, 24},
    {OP_decode, {.code = {ENCODING_TOP_K, FEEDBACK_EF21, false, 10, 4, 1}}, "13 x 36 x 13", "13 x 13", 31, 4 * 49, 4 * 26},
    /* 2 sequences, 3 positions, 2 heads of 4: 36 scores, five passes more than the probabilities written once */
    {OP_attention,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .eager = true},
     "2,3,24",
     "2,3,8 x 2,2,3,3",
     4 * 4 * 36,
     4 * (144 + 3 * 36),
     4 * (48 + 36 + 2 * 36)},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .eager = true},
     "2,3,24 x 2,3,8 x 2,2,3,3 x 2,3,8",
     "2,3,24",
     8 * 4 * 36,
     4 * (144 + 48 + 36 + 48 + 5 * 36),
     4 * (144 + 3 * 36)},
    /* every pair: 2 x 2 x 3 x 3 */
    {OP_attention,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .bidirectional = true},
     "2,3,24",
     "2,3,8 x 2,2,3",
     4 * 4 * 36,
     576,
     240},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .bidirectional = true},
     "2,3,24 x 2,3,8 x 2,2,3 x 2,3,8",
     "2,3,24",
     10 * 4 * 36,
     4 * (144 + 48 + 12 + 48),
     576},
    {OP_attention,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .eager = true, .bidirectional = true},
     "2,3,24",
     "2,3,8 x 2,2,3,3",
     4 * 4 * 36,
     4 * (144 + 3 * 36),
     4 * (48 + 36 + 2 * 36)},
    /* 2 of 5 sequences, 3 of 4 */
    {OP_slice, {.start = 3, .sequences = 2}, "5,3,4", "2,3,4", 0, 96, 96},
    {OP_dropout, {.rate = 0.5}, "2,3,4", "2,3,4", 22 * 24, 96, 96},
    /* 5 + k an element */
    {OP_gating, {.chosen = 2}, "2,6,4", "2,6,4", 7 * 48, 192, 192},
    {OP_gating_grad, {.chosen = 2}, "2,6,4 x 2,6,4 x 2,6,4", "2,6,4", 8 * 48, 3 * 192, 192},
    /* 2 of 4 experts of 6 positions: 3 slots of an expert are filled, 2·4·3 = 24 rows of 5 */
    {OP_dispatch,
     {.chosen = 2, .capacity = 6},
     "2,6,5 x 2,6,4",
     "2,4,6,5",
     0,
     4 * (120 + 48),
     4 * 240},
    /* a capacity of 2 leaves 16 rows */
    {OP_dispatch,
     {.chosen = 2, .capacity = 2, .weighted = true},
     "2,6,5 x 2,6,4",
     "2,4,2,5",
     16 * 5,
     4 * (80 + 48),
     4 * 80},
    {OP_combine, {.chosen = 2}, "2,4,6,5 x 2,6,4", "2,6,5", 24 * 5, 4 * (120 + 48), 4 * 60},
    {OP_combine, {.chosen = 2, .weighted = true}, "2,4,6,5 x 2,6,4", "2,6,5", 240, 4 * 168, 240},
    {OP_gates_grad,
     {.chosen = 2},
     "2,4,6,5 x 2,6,4 x 2,6,5",
     "2,6,4",
     240,
     4 * (120 + 48 + 60),
     192},
    {OP_expert_matmul,
     {.chosen = 2},
     "2,4,6,5 x 4,5,7 x 2,6,4",
     "2,4,6,7",
     2 * 24 * 5 * 7,
     4 * (120 + 140 + 48),
     4 * 336},
    /* the gates of 2 of 4 experts: half of the rows */
    {OP_expert_matmul,
     {.chosen = 2, .experts = 4, .trans_b = true},
     "2,2,6,5 x 2,7,5 x 2,6,2",
     "2,2,6,7",
     2 * 12 * 5 * 7,
     4 * (60 + 70 + 24),
     4 * 168},
    {OP_expert_matmul,
     {.chosen = 2, .trans_a = true, .accumulate = true},
     "2,4,6,5 x 2,4,6,7 x 2,6,4",
     "4,5,7",
     2 * 24 * 5 * 7,
     4 * (120 + 168 + 48) + 560,
     560},
    {OP_paste, {.start = 1, .sequences = 4}, "3,2", "4,2", 0, 24, 24},
};
enum { N_TEXT = sizeof text_rows / sizeof *text_rows };
enum { N_ROWS = N_TEXT + N_IMAGE_ROWS + N_SHARD_ROWS };

static const struct row *row_at(int i)
{
    if (i >= N_TEXT + N_IMAGE_ROWS) return &shard_rows[i - N_TEXT - N_IMAGE_ROWS];
    return i < N_TEXT ? &text_rows[i] : &image_rows[i - N_TEXT];
}

static int32_t parse_shapes(const char *text, struct shape *out)
{
    int32_t n = 0;
    for (const char *p = text; *p;) {
        struct shape s = {0};
        for (;;) {
            char *end;
            s.dim[s.rank++] = strtoll(p, &end, 10);
            p = end;
            if (*p != ',') break;
            p++;
        }
        out[n++] = s;
        while (*p == ' ' || *p == 'x') p++;
    }
    return n;
}

static struct op_shapes with_inputs(const char *text)
{
    struct op_shapes s = {0};
    s.n_inputs = parse_shapes(text, s.input);
    return s;
}

static struct op_shapes inferred(enum op_kind kind, const struct op_attrs *attrs, const char *text)
{
    struct op_shapes s = with_inputs(text);
    struct error err;
    ck_assert_msg(op_infer(kind, attrs, &s, &err) == OK, "%s", err.text);
    return s;
}

START_TEST(every_row_infers_the_shapes_worked_by_hand)
{
    const struct row *r = row_at(_i);
    struct shape want[OP_OPERANDS_MAX];
    struct op_shapes s = inferred(r->kind, &r->attrs, r->inputs);
    ck_assert_int_eq(s.n_outputs, parse_shapes(r->outputs, want));
    for (int32_t i = 0; i < s.n_outputs; i++)
        ck_assert_msg(shape_equal(&s.output[i], &want[i]), "%s %s: output %d", op_kind_name(r->kind), r->inputs, i);
}
END_TEST

START_TEST(every_row_costs_what_was_worked_by_hand)
{
    const struct row *r = row_at(_i);
    struct op_shapes s = inferred(r->kind, &r->attrs, r->inputs);
    ck_assert_double_eq(op_flops(r->kind, &r->attrs, &s), r->flops);
    ck_assert_int_eq(op_bytes_read(r->kind, &r->attrs, &s, DTYPE_fp32), r->read);
    ck_assert_int_eq(op_bytes_written(r->kind, &r->attrs, &s, DTYPE_fp32), r->written);
}
END_TEST

START_TEST(every_kind_has_a_row_here_and_a_name_that_reads_back)
{
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        enum op_kind kind = OP_KIND_COUNT;
        /* Tests of their own: no operand to infer from, no result. */
        bool seen = k == OP_zero || k == OP_message || k == OP_assemble;
        for (int i = 0; i < N_ROWS; i++) seen = seen || (int)row_at(i)->kind == k;
        ck_assert_msg(seen, "%s has no row", op_kind_name((enum op_kind)k));
        ck_assert(op_kind_parse(op_kind_name((enum op_kind)k), &kind));
        ck_assert_int_eq(kind, k);
    }
    enum op_kind kind;
    ck_assert(!op_kind_parse("convolution", &kind));
}
END_TEST

START_TEST(zero_writes_its_output_and_reads_nothing)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = {.n_outputs = 1, .output[0] = {2, {2, 3}}};
    ck_assert(op_infer(OP_zero, &attrs, &s, NULL) == OK);
    ck_assert_double_eq(op_flops(OP_zero, &attrs, &s), 0);
    ck_assert_int_eq(op_bytes_read(OP_zero, &attrs, &s, DTYPE_fp64), 0);
    ck_assert_int_eq(op_bytes_written(OP_zero, &attrs, &s, DTYPE_fp64), 48);
    char text[200];
    ck_assert_str_eq(op_key_text(text, sizeof text, OP_zero, &attrs, &s, DTYPE_fp64), "zero fp64 (6)");
}
END_TEST

static const struct misfit text_misfits[] = {
    {OP_matmul, {0}, "2,3,4 x 5,4", "(2,3,4)", "(5,4)"},
    {OP_matmul, {.trans_b = true}, "2,3,4 x 4,5", "(2,3,4)", "(4,5)"},
    {OP_matmul, {.trans_a = true}, "2,3,4 x 2,2,5", "(2,3,4)", "(2,2,5)"},
    {OP_matmul, {.trans_a = true, .trans_b = true}, "4,4 x 4,4", "(4,4)", "transposed"},
    {OP_matmul, {0}, "2,3,4 x 4,5,6", "(2,3,4)", "(4,5,6)"},
    {OP_linear, {0}, "2,3 x 3,4 x 3", "(2,4)", "(3)"},
    {OP_linear_gelu, {0}, "2,3 x 3,4 x 3", "(2,4)", "(3)"},
    {OP_matmul_gelu_grad, {0}, "2,3 x 3,4 x 2,3", "(2,4)", "(2,3)"},
    {OP_logits_grad, {0}, "2,64 x 65,4", "(2,64)", "(65,4)"},
    {OP_logits_weight_grad, {.vocabulary = 65}, "2,64 x 2,4", "(2,64)", "(2,4)"},
    {OP_bias, {0}, "2,3 x 2", "(2,3)", "(2)"},
    {OP_add, {0}, "2,3 x 3,2", "(2,3)", "(3,2)"},
    {OP_bias_gelu_grad, {0}, "2,3 x 3 x 2,4", "(2,3)", "(2,4)"},
    {OP_layer_norm, {0}, "2,4 x 2 x 2", "(2,4)", "(2)"},
    {OP_layer_norm, {0}, "2,4 x 4 x 3", "(2,4)", "(3)"},
    {OP_layer_norm_grad, {0}, "2,4 x 4 x 2,1 x 2,4", "(2,2)", "(2,1)"},
    {OP_layer_norm_weight_grad, {0}, "2,4 x 4,2 x 2,4", "(2,4)", "(4,2)"},
    {OP_rms_norm, {0}, "2,4 x 3", "(2,4)", "(3)"},
    {OP_rms_norm_weight_grad, {0}, "2,4 x 3,1 x 2,4", "(2,4)", "(3,1)"},
    {OP_embedding, {0}, "2,3 x 7", "(2,3)", "(7)"},
    {OP_embedding_grad, {.vocabulary = 9}, "2,3 x 2,4,5", "(2,3)", "(2,4,5)"},
    {OP_rotary, {.heads = 2, .head_dim = 4}, "2,3,9", "(2,3,9)", "(2,4)"},
    {OP_rotary, {.heads = 3, .head_dim = 3}, "2,3,9", "(2,3,9)", "(3,3)"},
    {OP_attention, {.heads = 2, .kv_heads = 2, .head_dim = 4}, "2,3,23", "(2,3,23)", "(2,3,24)"},
    {OP_attention,
     {.heads = 2, .kv_heads = 1, .head_dim = 4},
     "2,3,8 x 2,3,4 x 2,3,8",
     "(2,3,8)",
     "(2,3,4)"},
    {OP_attention,
     {.heads = 2, .kv_heads = 2, .head_dim = 4, .window = 2, .bidirectional = true},
     "2,3,24",
     "window of 2",
     "causal"},
    {OP_attention, {.heads = 3, .kv_heads = 2, .head_dim = 4}, "2,3,28", "3 heads", "2 key-value"},
    {OP_attention_grad,
     {.heads = 2, .kv_heads = 2, .head_dim = 4},
     "2,3,24 x 2,3,8 x 2,3,2 x 2,3,8",
     "(2,3,2)",
     "(2,2,3)"},
    {OP_cross_entropy, {0}, "2,3,10 x 2,4", "(2,3,10)", "(2,4)"},
    {OP_dropout, {.rate = 1}, "2,3", "a rate of 1", "below 1"},
    {OP_cross_entropy, {.counted = 4}, "2,3,10 x 2,3", "4 targets", "of 3"},
    {OP_gating, {.chosen = 5}, "2,3,4", "5 of 4", "not possible"},
    {OP_gating, {.chosen = 2}, "6,4", "(6,4)", "(b, T, experts)"},
    {OP_dispatch, {.capacity = 2}, "2,3,5 x 2,4,6", "(2,3,5)", "(2,4,6)"},
    {OP_dispatch, {.capacity = 4}, "2,3,5 x 2,3,6", "capacity of 4", "3 positions"},
    {OP_combine, {0}, "2,4,2,5 x 2,3,5", "(2,4,2,5)", "(2,3,5)"},
    {OP_gates_grad, {0}, "2,4,2,5 x 2,3,4 x 2,3,6", "(2,3,5)", "(2,3,6)"},
    {OP_expert_matmul, {0}, "2,4,2,5 x 4,6,7 x 2,3,4", "(2,4,2,5)", "(4,6,7)"},
    {OP_expert_matmul, {.trans_b = true}, "2,4,2,5 x 4,5,7 x 2,3,4", "(2,4,2,5)", "(4,5,7)"},
    {OP_expert_matmul, {.trans_a = true}, "2,4,2,5 x 2,4,3,7 x 2,3,4", "(2,4,2,5)", "(2,4,3,7)"},
    {OP_adamw, {0}, "6 x 6 x 6 x 5", "(6)", "(5)"},
    {OP_add, {0}, "2,3", "takes 2 operands", "not 1"},
    {OP_slice, {.start = 4, .sequences = 2}, "5,3", "2 sequences from 4", "(5,3)"},
    {OP_slice, {.start = -1, .sequences = 2}, "5,3", "from -1", "(5,3)"},
    {OP_paste, {.start = 2, .sequences = 4}, "3,2", "3 sequences from 2", "(3,2)"},
};

enum { N_TEXT_MISFITS = sizeof text_misfits / sizeof *text_misfits };

START_TEST(shapes_that_do_not_fit_are_named_with_their_operator)
{
    const struct misfit *m =
        _i < N_TEXT_MISFITS ? &text_misfits[_i] : &image_misfits[_i - N_TEXT_MISFITS];
    struct op_shapes s = with_inputs(m->inputs);
    struct error err;
    ck_assert_int_eq(op_infer(m->kind, &m->attrs, &s, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, op_kind_name(m->kind)) == err.text, "%s", err.text);
    ck_assert_msg(strstr(err.text, m->first) != NULL, "%s", err.text);
    ck_assert_msg(strstr(err.text, m->second) != NULL, "%s", err.text);
}
END_TEST

START_TEST(half_precision_halves_all_but_the_integers)
{
    struct op_attrs attrs = {0};
    struct op_shapes s = inferred(OP_cross_entropy, &attrs, "2,3,10 x 2,3");
    ck_assert_int_eq(op_bytes_read(OP_cross_entropy, &attrs, &s, DTYPE_bf16), 60 * 2 + 6 * 4);
    ck_assert(op_input_is_int32(OP_cross_entropy, 1) && !op_input_is_int32(OP_cross_entropy, 0));
    ck_assert(op_input_is_int32(OP_embedding, 0) && !op_input_is_int32(OP_embedding, 1));
}
END_TEST

static uint64_t key(enum op_kind kind, struct op_attrs attrs, const char *inputs, enum dtype t)
{
    struct op_shapes s = inferred(kind, &attrs, inputs);
    return op_key(kind, &attrs, &s, t);
}

START_TEST(keys_see_what_changes_the_work_and_nothing_else)
{
    struct op_attrs none = {0}, tb = {.trans_b = true}, acc = {.trans_a = true, .accumulate = true},
                    ta = {.trans_a = true};
    const char *square = "4,4 x 4,4";
    ck_assert(key(OP_matmul, none, square, DTYPE_fp32) != key(OP_matmul, tb, square, DTYPE_fp32));
    ck_assert(key(OP_matmul, ta, square, DTYPE_fp32) != key(OP_matmul, acc, square, DTYPE_fp32));
    ck_assert(key(OP_matmul, none, square, DTYPE_fp32) != key(OP_matmul, none, square, DTYPE_fp64));
    ck_assert(key(OP_matmul, none, square, DTYPE_fp32) !=
              key(OP_matmul, none, "4,4 x 4,5", DTYPE_fp32));
    ck_assert(key(OP_add, none, "4,4 x 4,4", DTYPE_fp32) !=
              key(OP_multiply, none, "4,4 x 4,4", DTYPE_fp32));
    struct op_attrs a = {.eps = 1e-5, .scale = 3}, b = {.eps = 1e-6, .heads = 7};
    ck_assert(key(OP_rms_norm, a, "2,4 x 4", DTYPE_fp32) ==
              key(OP_rms_norm, b, "2,4 x 4", DTYPE_fp32));
    struct op_attrs r = {.heads = 2, .head_dim = 4, .theta = 1e4}, back = r;
    back.inverse = true, back.theta = 5e5;
    ck_assert(key(OP_rotary, r, "1,3,8", DTYPE_fp32) == key(OP_rotary, back, "1,3,8", DTYPE_fp32));
    ck_assert(key(OP_matmul, none, "2,3,4 x 4,5", DTYPE_fp32) ==
              key(OP_matmul, none, "3,2,4 x 4,5", DTYPE_fp32)); /* six rows either way */
    struct op_attrs w = {.heads = 1, .kv_heads = 1, .head_dim = 2, .window = 3}, free_ = w, two = w;
    struct op_attrs both = {.heads = 1, .kv_heads = 1, .head_dim = 2, .bidirectional = true};
    free_.window = 0, two.window = 2;
    ck_assert(key(OP_attention, both, "1,3,6", DTYPE_fp32) !=
              key(OP_attention, free_, "1,3,6", DTYPE_fp32));
    ck_assert(key(OP_attention, w, "1,3,6", DTYPE_fp32) ==
              key(OP_attention, free_, "1,3,6", DTYPE_fp32)); /* a window of T sees all */
    ck_assert(key(OP_attention, w, "1,3,6", DTYPE_fp32) !=
              key(OP_attention, two, "1,3,6", DTYPE_fp32));
}
END_TEST

START_TEST(key_texts_of_different_keys_differ)
{
    char text[N_ROWS][200];
    uint64_t keys[N_ROWS];
    for (int i = 0; i < N_ROWS; i++) {
        struct op_shapes s = inferred(row_at(i)->kind, &row_at(i)->attrs, row_at(i)->inputs);
        op_key_text(text[i], sizeof text[i], row_at(i)->kind, &row_at(i)->attrs, &s, DTYPE_fp32);
        keys[i] = op_key(row_at(i)->kind, &row_at(i)->attrs, &s, DTYPE_fp32);
        ck_assert_uint_lt(strlen(text[i]), sizeof text[i] - 1);
        for (int j = 0; j < i; j++)
            ck_assert_msg((keys[i] == keys[j]) == !strcmp(text[i], text[j]), "%s / %s", text[i], text[j]);
    }
    ck_assert_str_eq(text[1], "matmul fp32 (6,4)x(5,4) tb");
    char small[12];
    struct op_shapes s = inferred(text_rows[0].kind, &text_rows[0].attrs, text_rows[0].inputs);
    ck_assert_str_eq(
        op_key_text(small, sizeof small, text_rows[0].kind, &text_rows[0].attrs, &s, DTYPE_fp32), "matmul fp32");
}
END_TEST

START_TEST(types_and_phases_have_names)
{
    enum dtype t;
    ck_assert(dtype_parse("bfloat16", &t) && t == DTYPE_bf16);
    ck_assert(dtype_parse("fp64", &t) && t == DTYPE_fp64);
    ck_assert(dtype_parse("float32", &t) && t == DTYPE_fp32);
    ck_assert(!dtype_parse("int4", &t));
    ck_assert_int_eq(dtype_bytes(DTYPE_fp64), 8);
    ck_assert_str_eq(dtype_name(DTYPE_fp16), "fp16");
    for (int p = 0; p < 256; p++)
        ck_assert(phase_is_valid((enum phase)p) == (p && strchr("FBIWU", p)));
}
END_TEST

START_TEST(fused_kinds_name_their_parts)
{
    enum op_kind shards[2];
    ck_assert_int_eq(op_fuses(OP_bias_gelu, shards), 2);
    ck_assert(shards[0] == OP_bias && shards[1] == OP_gelu);
    ck_assert_int_eq(op_fuses(OP_swiglu, shards), 2);
    ck_assert(shards[0] == OP_silu && shards[1] == OP_multiply);
    ck_assert_int_eq(op_fuses(OP_flat_adamw, shards), 1);
    ck_assert(shards[0] == OP_adamw);
    ck_assert_int_eq(op_fuses(OP_matmul, shards), 0);
}
END_TEST

Suite *op_suite(void)
{
    Suite *s = suite_create("core/graph/op");
    TCase *t = tcase_create("all");
    tcase_add_loop_test(t, every_row_infers_the_shapes_worked_by_hand, 0, N_ROWS);
    tcase_add_loop_test(t, every_row_costs_what_was_worked_by_hand, 0, N_ROWS);
    tcase_add_test(t, every_kind_has_a_row_here_and_a_name_that_reads_back);
    tcase_add_test(t, zero_writes_its_output_and_reads_nothing);
    tcase_add_loop_test(t, shapes_that_do_not_fit_are_named_with_their_operator, 0,
                        N_TEXT_MISFITS + N_IMAGE_MISFITS);
    tcase_add_test(t, half_precision_halves_all_but_the_integers);
    tcase_add_test(t, keys_see_what_changes_the_work_and_nothing_else);
    tcase_add_test(t, key_texts_of_different_keys_differ);
    tcase_add_test(t, types_and_phases_have_names);
    tcase_add_test(t, fused_kinds_name_their_parts);
    suite_add_tcase(s, t);
    return s;
}
