/* Fused kinds beside what they fuse on the host, equal to the bit, and beside the host on the device of the stand-in: by
 * cuBLASLt's epilogues where it has them (rows of whole packs), by kernels behind the product where it has none. */
#include "tests/support/cuda_rows.h"

static struct made *made_from(enum op_kind kind, const struct op_attrs *attrs, const struct made *f,
                              const char *operands, const void *const *more)
{
    struct made *m = arena_alloc(memory, 1, sizeof *m);
    enum dtype t = f->c.dtype;
    m->attrs = *attrs;
    for (const char *o = operands; *o;
         o++) { /* a … inputs of f; A, B its outputs' shapes, what more has */
        int32_t i = m->shapes.n_inputs++;
        bool own = *o >= 'a';
        m->shapes.input[i] = own ? f->shapes.input[*o - 'a'] : f->shapes.output[*o - 'A'];
        m->c.input[i] = own ? f->c.input[*o - 'a'] : *more++;
    }
    calls_finish(m, kind, t);
    calls_run_checked(m);
    return m;
}

static void check_same(const struct made *f, int32_t output, const struct made *other)
{
    ck_assert_mem_eq(f->c.output[output], other->c.output[0],
                     calls_output_size(f, output) * dtype_bytes(f->c.dtype));
}

START_TEST(fused_kinds_of_products_equal_what_they_fuse)
{
    enum dtype t = _i % 2 ? DTYPE_fp64 : DTYPE_fp32;
    struct op_attrs attrs = {.trans_b = _i / 2}, none = {0};
    struct made *f =
        calls_make(OP_linear_gelu, &attrs, _i / 2 ? "5,37 x 9,37 x 9" : "5,37 x 37,9 x 9", t);
    calls_run(f);
    struct made *z = made_from(OP_linear, &attrs, f, "abc", NULL);
    check_same(f, 1, z);
    check_same(f, 0, made_from(OP_gelu, &none, f, "A", (const void *[]){z->c.output[0]}));

    f = calls_make(OP_matmul_gelu_grad, &attrs, _i / 2 ? "5,37 x 9,37 x 5,9" : "5,37 x 37,9 x 5,9",
                   t);
    calls_run(f);
    struct made *dy = made_from(OP_matmul, &attrs, f, "ab", NULL);
    struct made *dz = made_from(OP_gelu_grad, &none, f, "cA", (const void *[]){dy->c.output[0]});
    check_same(f, 0, dz);
    check_same(f, 1, made_from(OP_bias_grad, &none, f, "A", (const void *[]){dz->c.output[0]}));
}
END_TEST

START_TEST(a_norms_gradient_and_a_sum_equal_both)
{
    enum dtype t = _i % 2 ? DTYPE_fp64 : DTYPE_fp32;
    struct op_attrs none = {0};
    struct made *f =
        calls_make(OP_layer_norm_grad_add, &none, "2,3,37 x 37 x 6,2 x 2,3,37 x 2,3,37", t);
    calls_run(f);
    struct made *dx = made_from(OP_layer_norm_grad, &none, f, "abcd", NULL);
    check_same(f, 0, made_from(OP_add, &none, f, "Ae", (const void *[]){dx->c.output[0]}));
}
END_TEST

START_TEST(logits_are_the_product_with_zeros_behind)
{
    struct op_attrs trans_b = {.trans_b = true};
    struct made *f = calls_make(OP_logits, &(struct op_attrs){0}, "2,3,9 x 67,9", DTYPE_fp64);
    calls_run(f);
    struct made *plain = made_from(OP_matmul, &trans_b, f, "ab", NULL);
    for (int64_t r = 0; r < 6; r++)
        for (int64_t j = 0; j < 128; j++)
            ck_assert_double_eq_tol(
                calls_get(DTYPE_fp64, f->c.output[0], r * 128 + j),
                j < 67 ? calls_get(DTYPE_fp64, plain->c.output[0], r * 67 + j) : 0, 1e-13);
}
END_TEST

static bool is_mine(enum op_kind kind)
{
    return kind == OP_linear || kind == OP_linear_gelu || kind == OP_matmul_gelu_grad ||
           kind == OP_logits || kind == OP_cross_entropy || kind == OP_layer_norm;
}

START_TEST(rows_of_the_table_are_as_the_host_computes_them)
{
    for (int t = 0; t < N_DTYPES && is_mine(kernel_rows[_i].kind); t++)
        for (int add = 0; add < 2; add++)
            cuda_rows_compare(&kernel_rows[_i], all_dtypes[t], add, 3);
}
END_TEST

START_TEST(rows_of_nothing_are_as_the_host_computes_them)
{
    for (int t = 0; t < N_DTYPES && is_mine(empty_kernel_rows[_i].kind); t++)
        cuda_rows_compare(&empty_kernel_rows[_i], all_dtypes[t], false, 3);
}
END_TEST

/* A norm's run in a part of a warp, in a warp, in a block, and longer than what is kept; what is added lies packed or not. */
START_TEST(norms_of_all_lengths_take_along_what_is_added)
{
    static const char *const shapes[] = {"9,64 x 64 x 64", "3,768 x 768 x 768", "3,771 x 771 x 771",
                                         "2,1544 x 1544 x 1544", "1,8200 x 8200 x 8200"};
    struct kernel_row row = {OP_layer_norm, {.eps = 1e-5}, shapes[_i], LAYER_NORM};
    for (int t = 0; t < N_DTYPES; t++) cuda_rows_compare(&row, all_dtypes[t], false, 4);
}
END_TEST

/* Whole tiles, an odd vocabulary, more rows than a block has. */
START_TEST(drawn_products_are_as_the_host_computes_them)
{
    for (uint64_t i = 0; i < 6; i++) {
        int n[3];
        for (uint64_t k = 0; k < 3; k++) n[k] = 1 + (int)rng_below(11, i, k, i % 2 ? 130 : 30);
        if (i % 3) n[1] = (n[1] + 7) / 8 * 8;
        bool turned = i % 4 > 1;
        int b0 = turned ? n[1] : n[2], b1 = turned ? n[2] : n[1];
        struct op_attrs attrs = {.trans_b = turned}, v = {.vocabulary = n[1]};
        const struct kernel_row rows[] = {
            {OP_linear_gelu, attrs,
             arena_printf(memory, "%d,%d x %d,%d x %d", n[0], n[2], b0, b1, n[1]), LINEAR_GELU},
            {OP_matmul_gelu_grad,
             attrs,
             arena_printf(memory, "%d,%d x %d,%d x %d,%d", n[0], n[2], b0, b1, n[0], n[1]),
             {{0}}},
            {OP_logits, v, arena_printf(memory, "%d,%d x %d,%d", n[0], n[2], n[1], n[2]), LOGITS}};
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            cuda_rows_compare(&rows[r], all_dtypes[(i + r) % N_DTYPES], i % 2, i);
    }
}
END_TEST

Suite *cuda_fused_suite(void)
{
    Suite *s = suite_create("cuda_fused");
    TCase *host = tcase_create("host"), *t = tcase_create("stand-in");
    tcase_add_checked_fixture(host, calls_begin, calls_end);
    tcase_add_loop_test(host, fused_kinds_of_products_equal_what_they_fuse, 0, 4);
    tcase_add_loop_test(host, a_norms_gradient_and_a_sum_equal_both, 0, 2);
    tcase_add_test(host, logits_are_the_product_with_zeros_behind);
    suite_add_tcase(s, host);
    tcase_set_timeout(t, 0);
    tcase_add_checked_fixture(t, cuda_rows_open, cuda_rows_close);
    tcase_add_loop_test(t, rows_of_the_table_are_as_the_host_computes_them, 0, N_KERNEL_ROWS);
    tcase_add_loop_test(t, rows_of_nothing_are_as_the_host_computes_them, 0, N_EMPTY_KERNEL_ROWS);
    tcase_add_loop_test(t, norms_of_all_lengths_take_along_what_is_added, 0, 5);
    tcase_add_test(t, drawn_products_are_as_the_host_computes_them);
    suite_add_tcase(s, t);
    return s;
}
