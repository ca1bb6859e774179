/* The host's kernels, case by case from one table: gradients against finite differences, fp32
 * against fp64, the same bits at any address. A kind that no case runs fails the suite. */
#include "tests/support/calls.h"

/* --- a row of the table: the forward operator and its gradient operators --- */

struct trial {
    struct made *forward, *rule[RULES_MAX];
    void *base[RULES_MAX][OP_OPERANDS_MAX]; /* what accumulating outputs held before */
    void *dy;
    int32_t n_rules;
};

static void wire_input(struct trial *t, const struct kernel_rule *r, struct made *m, int32_t i)
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

static void try_rule(struct trial *t, const struct kernel_row *row, const struct kernel_rule *r,
                     bool accumulate)
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
    calls_finish(m, r->kind, t->forward->c.dtype);
    for (int32_t i = 0; i < m->shapes.n_outputs; i++) {
        if (r->kind == OP_accumulate && !m->attrs.accumulate)
            memset(m->c.output[i], 0, (size_t)(calls_output_size(m, i) * dtype_bytes(m->c.dtype)));
        t->base[t->n_rules][i] =
            m->attrs.accumulate
                ? calls_copy(m->c.output[i], calls_output_size(m, i) * dtype_bytes(m->c.dtype))
                : NULL;
    }
    calls_run_checked(m);
    t->rule[t->n_rules++] = m;
}

static struct trial try_row(const struct kernel_row *row, enum dtype type, bool accumulate)
{
    stream = 0;
    struct trial t = {.forward = calls_make(row->kind, &row->attrs, row->inputs, type)};
    calls_run_checked(t.forward);
    t.dy = calls_numbers(type, calls_output_size(t.forward, 0));
    for (int r = 0; r < RULES_MAX && row->rules[r].in; r++)
        try_rule(&t, row, &row->rules[r], accumulate);
    return t;
}

/* Σ dy·y; cross_entropy's output is the loss already. */
static double loss_of(struct trial *t)
{
    struct made *f = t->forward;
    double s = 0;
    calls_run(f);
    if (f->c.kind == OP_cross_entropy) return calls_get(DTYPE_fp64, f->c.output[0], 0);
    for (int64_t i = 0; i < calls_output_size(f, 0); i++)
        s += calls_get(DTYPE_fp64, f->c.output[0], i) * calls_get(DTYPE_fp64, t->dy, i);
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
    return input == op_gates_input(f->c.kind) && calls_get(DTYPE_fp64, f->c.input[input], i) == 0;
}

/* Central differences err by h² f'''/6 + rounding / h, about 1e-10 here. */
static void check_slopes(struct trial *t, const struct kernel_row *row, int r, int32_t output)
{
    enum { SAMPLES = 40 };
    const struct made *m = t->rule[r];
    const double *got = m->c.output[output], *base = t->base[r][output];
    int64_t n = calls_output_size(m, output), step = n > SAMPLES ? n / SAMPLES : 1;
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
        struct trial t = try_row(&kernel_rows[_i], DTYPE_fp64, accumulate);
        for (int r = 0; r < t.n_rules; r++)
            for (int32_t o = 0; o < t.rule[r]->shapes.n_outputs; o++)
                check_slopes(&t, &kernel_rows[_i], r, o);
    }
}
END_TEST
START_TEST(single_and_double_precision_agree_to_rounding)
{
    struct trial a = try_row(&kernel_rows[_i], DTYPE_fp32, true);
    struct trial b = try_row(&kernel_rows[_i], DTYPE_fp64, true);
    calls_check_near(a.forward, b.forward, 5e-6);
    for (int r = 0; r < a.n_rules; r++) calls_check_near(a.rule[r], b.rule[r], 2e-5);
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
        again.c.input[i] = shifted(m->c.input[i], calls_input_size(m, i),
                                   op_input_is_int32(m->c.kind, i) ? 4 : by);
    for (int32_t o = 0; o < m->shapes.n_outputs; o++)
        again.c.output[o] =
            shifted(base && base[o] ? base[o] : calls_poisoned(m->c.dtype, calls_output_size(m, o)),
                    calls_output_size(m, o) * (int64_t)by, by);
    calls_run(&again);
    for (int32_t o = 0; o < m->shapes.n_outputs; o++)
        ck_assert_msg(
            !memcmp(m->c.output[o], again.c.output[o], (size_t)calls_output_size(m, o) * by),
            "%s depends on alignment", op_kind_name(m->c.kind));
}

START_TEST(results_repeat_bit_for_bit_at_any_address)
{
    for (int k = 0; k < 2; k++) {
        struct trial t = try_row(&kernel_rows[_i], k ? DTYPE_fp64 : DTYPE_fp32, true);
        check_shifted(t.forward, NULL);
        for (int r = 0; r < t.n_rules; r++) check_shifted(t.rule[r], t.base[r]);
    }
}
END_TEST

START_TEST(every_kind_has_a_kernel_and_a_test)
{
    /* Tests of their own in test_kernel_values.c. */
    static const enum op_kind others[] = {
        OP_zero, OP_adamw, OP_flat_adamw, OP_sgd, OP_flat_sgd, OP_momentum, OP_flat_momentum, OP_lion, OP_flat_lion, OP_lamb, OP_lars, OP_outer_delta, OP_outer_average, OP_outer_nesterov,
        /* in test_codes.c */
        OP_encode, OP_decode, OP_orthonormal,
        /* in test_loss_scale.c */
        OP_overflow, OP_rescale,
        /* in test_kernel_norms.c */
        OP_square_sum, OP_clip,
        /* in test_kernel_parts.c, their gradients in test_shard.c */
        OP_local_slice, OP_add_to_slice, OP_cross_entropy_shard, OP_cross_entropy_join};
    bool tested[OP_KIND_COUNT] = {false}, forward[OP_KIND_COUNT] = {false};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) tested[others[i]] = true;
    for (int i = 0; i < N_KERNEL_ROWS; i++) {
        tested[kernel_rows[i].kind] = forward[kernel_rows[i].kind] = true;
        for (int r = 0; r < RULES_MAX && kernel_rows[i].rules[r].in; r++)
            tested[kernel_rows[i].rules[r].kind] = true;
    }
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        const char *name = op_kind_name((enum op_kind)k);
        if (op_is_measured((enum op_kind)k) || op_is_group((enum op_kind)k)) {
            ck_assert_msg(!kernels_host_fp32[k] && !kernels_host_fp64[k], "a kernel for %s", name);
            continue;
        }
        ck_assert_msg(kernels_host_fp32[k] && kernels_host_fp64[k], "no kernel for %s", name);
        ck_assert_msg(tested[k], "no test of %s", name);
        bool joins = k == OP_local_slice || k == OP_cross_entropy_join;
        ck_assert_msg(forward[k] || joins || !op_gradient((enum op_kind)k),
                      "no gradient test of %s", name);
    }
}
END_TEST
START_TEST(operands_without_rows_are_fine)
{
    for (size_t i = 0; i < N_EMPTY_KERNEL_ROWS; i++)
        for (int k = 0; k < 4; k++)
            try_row(&empty_kernel_rows[i], k & 1 ? DTYPE_fp64 : DTYPE_fp32, k & 2);
}
END_TEST
Suite *kernels_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *c = tcase_create("kernels");
    tcase_add_checked_fixture(c, calls_begin, calls_end);
    tcase_add_loop_test(c, gradients_are_the_slopes_of_the_loss, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(c, single_and_double_precision_agree_to_rounding, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(c, results_repeat_bit_for_bit_at_any_address, 0, N_KERNEL_ROWS);
    tcase_add_test(c, every_kind_has_a_kernel_and_a_test);
    tcase_add_test(c, operands_without_rows_are_fine);
    suite_add_tcase(suite, c);
    return suite;
}
