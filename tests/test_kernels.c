/* The host's kernels, case by case from one table: gradients against finite differences, fp32
 * against fp64, the same bits at any address. A kind that no case runs fails the suite. */
#include "tests/kernel_calls.h"

enum { TA = 1, TB = 2, ACC = 4, TURN_BACK = 8, FRONT = 16, BLANK = 32, RULES_MAX = 3 };

/* FRONT: what stands in front of the part; BLANK: zeros around it, in all of the first input's dimension. */
/* One gradient operator. in: a b c are the forward inputs, A B its outputs, d the gradient of A,
 * p what the rule before gave. out: for each output the forward input whose gradient it is. */
struct rule {
    enum op_kind kind;
    unsigned flags;
    const char *in, *out;
};

struct row {
    enum op_kind kind;
    struct op_attrs attrs;
    const char *inputs;
    struct rule rules[RULES_MAX];
};

/* clang-format off */
#define PACKED {{OP_attention_grad, 0, "aABd", "0"}}
#define SEPARATE {{OP_attention_grad, 0, "abcABd", "012"}}
#define MATMUL {{OP_matmul, TB, "db", "0"}, {OP_matmul, TA | ACC, "ad", "1"}}
#define LINEAR {{OP_matmul, TB, "db", "0"}, {OP_matmul, TA | ACC, "ad", "1"}, {OP_bias_grad, ACC, "d", "2"}}
#define LAYER_NORM {{OP_layer_norm_grad, 0, "abBd", "0"}, {OP_layer_norm_weight_grad, ACC, "aBd", "12"}}
#define RMS_NORM {{OP_rms_norm_grad, 0, "abBd", "0"}, {OP_rms_norm_weight_grad, ACC, "aBd", "1"}}
#define BIAS_GELU {{OP_bias_gelu_grad, 0, "abd", "0"}, {OP_bias_grad, ACC, "p", "1"}}
#define GATING(k, r) {.chosen = (k), .renormalise = (r)}
#define COMBINE {{OP_dispatch, 0, "db", "0"}, {OP_gates_grad, 0, "abd", "1"}}
#define EXPERTS {{OP_expert_matmul, TB, "dbc", "0"}, {OP_expert_matmul, TA | ACC, "adc", "1"}}
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

static const struct row rows[] = {
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
    {OP_embedding, {.vocabulary = VOCABULARY}, "3,5 x 7,9", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_embedding, {.vocabulary = VOCABULARY}, "1 x 7,1", {{OP_embedding_grad, ACC, "ad", "1"}}},
    {OP_rotary, ROTARY(2, 6, 0), "2,9,12", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_rotary, ROTARY(1, 8, 8), "2,9,8", {{OP_rotary, TURN_BACK, "d", "0"}}},
    {OP_attention, ATTENTION(2, 2, 3, 0), "2,5,18", PACKED},
    {OP_attention, ATTENTION(4, 2, 3, 0), "1,7,24", PACKED},
    {OP_attention, ATTENTION(1, 1, 1, 0), "1,1,3", PACKED},
    {OP_attention, ATTENTION(2, 1, 4, 5), "1,131,16", PACKED},
    {OP_attention, ATTENTION(4, 2, 3, 0), "2,67,12 x 2,67,6 x 2,67,6", SEPARATE},
    {OP_attention, ATTENTION(3, 1, 5, 70), "1,150,15 x 1,150,5 x 1,150,5", SEPARATE},
    {OP_attention, ATTENTION(2, 2, 2, 1), "2,3,4 x 2,3,4 x 2,3,4", SEPARATE},
    {OP_attention, BOTH_WAYS(2, 2, 3), "2,5,18", PACKED},
    {OP_attention, BOTH_WAYS(4, 2, 3), "1,131,24", PACKED},
    {OP_attention, BOTH_WAYS(2, 1, 4), "2,67,8 x 2,67,4 x 2,67,4", SEPARATE},
    {OP_cross_entropy,
     {.scale = 1.0 / 15},
     "3,5,7 x 3,5",
     {{OP_cross_entropy_grad, 0, "abB", "0"}}},
    {OP_cross_entropy, {.scale = 1}, "1,1,600 x 1,1", {{OP_cross_entropy_grad, 0, "abB", "0"}}},
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
enum { N_ROWS = sizeof rows / sizeof *rows };
/* --- a row of the table: the forward operator and its gradient operators --- */

struct trial {
    struct made *forward, *rule[RULES_MAX];
    void *base[RULES_MAX][OP_OPERANDS_MAX]; /* what accumulating outputs held before */
    void *dy;
    int32_t n_rules;
};

static void wire_input(struct trial *t, const struct rule *r, struct made *m, int32_t i)
{
    const struct made *f = t->forward, *p = t->n_rules ? t->rule[t->n_rules - 1] : NULL;
    char from = r->in[i];
    if (from >= 'a' && from <= 'c')
        m->c.input[i] = f->c.input[from - 'a'], m->shapes.input[i] = f->shapes.input[from - 'a'];
    else if (from == 'd')
        m->c.input[i] = t->dy, m->shapes.input[i] = f->shapes.output[0];
    else if (from == 'p')
        m->c.input[i] = p->c.output[0], m->shapes.input[i] = p->shapes.output[0];
    else
        m->c.input[i] = f->c.output[from - 'A'], m->shapes.input[i] = f->shapes.output[from - 'A'];
}

static void try_rule(struct trial *t, const struct row *row, const struct rule *r, bool accumulate)
{
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    m->attrs = row->attrs;
    m->attrs.trans_a = r->flags & TA;
    m->attrs.trans_b = r->flags & TB;
    m->attrs.accumulate = accumulate && r->flags & ACC;
    m->attrs.inverse = r->flags & TURN_BACK;
    m->attrs.blank = r->flags & BLANK;
    if (r->flags & BLANK) m->attrs.sequences = t->forward->shapes.input[0].dim[m->attrs.dim];
    if (r->flags & FRONT) m->attrs.sequences = m->attrs.start, m->attrs.start = 0;
    m->shapes.n_inputs = (int32_t)strlen(r->in);
    for (int32_t i = 0; i < m->shapes.n_inputs; i++) wire_input(t, r, m, i);
    finish(m, r->kind, t->forward->c.dtype);
    for (int32_t i = 0; i < m->shapes.n_outputs; i++) {
        if (r->kind == OP_accumulate && !m->attrs.accumulate)
            memset(m->c.output[i], 0, (size_t)(n_out(m, i) * dtype_bytes(m->c.dtype)));
        t->base[t->n_rules][i] =
            m->attrs.accumulate ? copy_of(m->c.output[i], n_out(m, i) * dtype_bytes(m->c.dtype))
                                : NULL;
    }
    run_checked(m);
    t->rule[t->n_rules++] = m;
}

static struct trial try_row(const struct row *row, enum dtype type, bool accumulate)
{
    stream = 0;
    struct trial t = {.forward = make(row->kind, &row->attrs, row->inputs, type)};
    run_checked(t.forward);
    t.dy = numbers(type, n_out(t.forward, 0));
    for (int r = 0; r < RULES_MAX && row->rules[r].in; r++)
        try_rule(&t, row, &row->rules[r], accumulate);
    return t;
}

/* Σ dy·y; cross_entropy's output is the loss already. */
static double loss_of(struct trial *t)
{
    struct made *f = t->forward;
    double s = 0;
    call(f);
    if (f->c.kind == OP_cross_entropy) return get(DTYPE_fp64, f->c.output[0], 0);
    for (int64_t i = 0; i < n_out(f, 0); i++)
        s += get(DTYPE_fp64, f->c.output[0], i) * get(DTYPE_fp64, t->dy, i);
    return s;
}

static double slope(struct trial *t, int32_t input, int64_t i)
{
    const double h = 1e-5;
    double *x = (double *)(uintptr_t)t->forward->c.input[input], kept = x[i], up;
    x[i] = kept + h;
    up = loss_of(t);
    x[i] = kept - h;
    double down = loss_of(t);
    x[i] = kept;
    return (up - down) / (2 * h);
}

/* A gate of 0 sends nothing, however it is moved: the loss jumps there. */
static bool is_closed(const struct trial *t, int32_t input, int64_t i)
{
    const struct made *f = t->forward;
    return input == op_gates_input(f->c.kind) && get(DTYPE_fp64, f->c.input[input], i) == 0;
}

/* Central differences err by h² f'''/6 + rounding / h, about 1e-10 here. */
static void check_slopes(struct trial *t, const struct row *row, int r, int32_t output)
{
    enum { SAMPLES = 40 };
    const struct made *m = t->rule[r];
    const double *got = m->c.output[output], *base = t->base[r][output];
    int64_t n = n_out(m, output), step = n > SAMPLES ? n / SAMPLES : 1;
    double scale = 1e-3;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(got[i] - (base ? base[i] : 0)));
    if (!row->rules[r].out[output]) return; /* on the way to another */
    for (int64_t i = 0; i < n; i += step) {
        double g = got[i] - (base ? base[i] : 0);
        if (is_closed(t, row->rules[r].out[output] - '0', i)) {
            ck_assert_double_eq(g, 0);
            continue;
        }
        double s = slope(t, row->rules[r].out[output] - '0', i);
        ck_assert_msg(fabs(g - s) <= 1e-6 * scale,
                      "%s of %s (%s), output %d [%d]: %.12g, slope %.12g", op_kind_name(m->c.kind),
                      op_kind_name(row->kind), row->inputs, output, (int)i, g, s);
    }
}

START_TEST(gradients_are_the_slopes_of_the_loss)
{
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        struct trial t = try_row(&rows[_i], DTYPE_fp64, accumulate);
        for (int r = 0; r < t.n_rules; r++)
            for (int32_t o = 0; o < t.rule[r]->shapes.n_outputs; o++)
                check_slopes(&t, &rows[_i], r, o);
    }
}
END_TEST
START_TEST(single_and_double_precision_agree_to_rounding)
{
    struct trial a = try_row(&rows[_i], DTYPE_fp32, true);
    struct trial b = try_row(&rows[_i], DTYPE_fp64, true);
    check_near(a.forward, b.forward, 5e-6);
    for (int r = 0; r < a.n_rules; r++) check_near(a.rule[r], b.rule[r], 2e-5);
}
END_TEST

static void *shifted(const void *p, int64_t bytes, size_t by)
{
    unsigned char *q = arena_alloc(memory, (size_t)bytes + 64, 1);
    return bytes ? memcpy(q + by, p, (size_t)bytes) : q + by;
}

/* m again on operands one element further in memory; outputs begin as `base` or poisoned. */
static void check_shifted(const struct made *m, void *const base[])
{
    struct made again = *m;
    size_t by = (size_t)dtype_bytes(m->c.dtype);
    again.c.attrs = &again.attrs;
    again.c.shapes = &again.shapes;
    for (int32_t i = 0; i < m->shapes.n_inputs; i++)
        again.c.input[i] =
            shifted(m->c.input[i], size_of_input(m, i), op_input_is_int32(m->c.kind, i) ? 4 : by);
    for (int32_t o = 0; o < m->shapes.n_outputs; o++)
        again.c.output[o] = shifted(base && base[o] ? base[o] : poisoned(m->c.dtype, n_out(m, o)),
                                    n_out(m, o) * (int64_t)by, by);
    call(&again);
    for (int32_t o = 0; o < m->shapes.n_outputs; o++)
        ck_assert_msg(!memcmp(m->c.output[o], again.c.output[o], (size_t)n_out(m, o) * by),
                      "%s depends on alignment", op_kind_name(m->c.kind));
}

START_TEST(results_repeat_bit_for_bit_at_any_address)
{
    for (int k = 0; k < 2; k++) {
        struct trial t = try_row(&rows[_i], k ? DTYPE_fp64 : DTYPE_fp32, true);
        check_shifted(t.forward, NULL);
        for (int r = 0; r < t.n_rules; r++) check_shifted(t.rule[r], t.base[r]);
    }
}
END_TEST

START_TEST(every_kind_has_a_kernel_and_a_test)
{
    /* Tests of their own in test_kernel_values.c. */
    static const enum op_kind others[] = {
        OP_zero, OP_adamw, OP_flat_adamw, OP_sgd, OP_flat_sgd,
        /* in test_kernel_parts.c, their gradients in test_shard.c */
        OP_take_part, OP_add_part, OP_cross_entropy_part, OP_cross_entropy_join,
        /* between the cards of one device: refused before they run */
        OP_all_reduce, OP_all_gather, OP_reduce_scatter};
    bool tested[OP_KIND_COUNT] = {false}, forward[OP_KIND_COUNT] = {false};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) tested[others[i]] = true;
    for (int i = 0; i < N_ROWS; i++) {
        tested[rows[i].kind] = forward[rows[i].kind] = true;
        for (int r = 0; r < RULES_MAX && rows[i].rules[r].in; r++)
            tested[rows[i].rules[r].kind] = true;
    }
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const char *name = op_kind_name((enum op_kind)k);
        if (op_is_measured((enum op_kind)k) || op_is_group((enum op_kind)k)) {
            ck_assert_msg(!kernels_host_fp32[k] && !kernels_host_fp64[k], "a kernel for %s", name);
            continue;
        }
        ck_assert_msg(kernels_host_fp32[k] && kernels_host_fp64[k], "no kernel for %s", name);
        ck_assert_msg(tested[k], "no test of %s", name);
        bool joins = k == OP_all_reduce || k == OP_all_gather || k == OP_reduce_scatter ||
                     k == OP_take_part || k == OP_cross_entropy_join;
        ck_assert_msg(forward[k] || joins || !op_gradient((enum op_kind)k),
                      "no gradient test of %s", name);
    }
}
END_TEST
START_TEST(operands_without_rows_are_fine)
{
    static const struct row empty[] = {
        {OP_matmul, {0}, "0,3,4 x 4,5", MATMUL},
        {OP_matmul, {0}, "2,3,4 x 4,0", MATMUL},
        {OP_matmul, {0}, "2,3,0 x 0,5", MATMUL},
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
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
        for (int k = 0; k < 4; k++) try_row(&empty[i], k & 1 ? DTYPE_fp64 : DTYPE_fp32, k & 2);
}
END_TEST
Suite *kernels_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *c = tcase_create("kernels");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_loop_test(c, gradients_are_the_slopes_of_the_loss, 0, N_ROWS);
    tcase_add_loop_test(c, single_and_double_precision_agree_to_rounding, 0, N_ROWS);
    tcase_add_loop_test(c, results_repeat_bit_for_bit_at_any_address, 0, N_ROWS);
    tcase_add_test(c, every_kind_has_a_kernel_and_a_test);
    tcase_add_test(c, operands_without_rows_are_fine);
    suite_add_tcase(suite, c);
    return suite;
}
