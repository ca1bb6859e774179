/* Fits of a profile's rows: per kind, per orientation of products, and their errors. */
#include "profiles/op_fits.h"

#include "core/base/arena.h"
#include "profiles/profile.h"
#include "tests/support/suites.h"

static struct arena *a;
static struct error err;
static struct device_type types[] = {{.name = "fast", .catalogue = "host", .slowdown = 1.5}};
static struct cluster cluster = {.name = "team", .n_types = 1, .types = types};

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

START_TEST(fits_are_made_for_each_base_kind_and_type_of_number)
{
    struct op_row rows[40];
    struct profile p = {.n_ops = 40, .ops = rows};
    for (size_t i = 0; i < 40; i++) {
        bool dense = i < 20;
        double flops = 1e6 * (double)(1 + i % 20), bytes = 1e3 * (double)(1 + i * i % 23);
        rows[i] = (struct op_row){.base = "host",
                                  .key = i,
                                  .kind = dense ? OP_matmul : OP_gelu,
                                  .dtype = DTYPE_fp32,
                                  .flops = flops,
                                  .bytes = bytes,
                                  .seconds = dense ? 2e-6 + flops / 1e11 + bytes / 1e10
                                                   : 1e-6 + bytes / 5e9};
    }
    rows[39].base = "type:fast"; /* a type's own rows do not belong to its base */
    rows[39].seconds = 100;
    rows[38].dtype = DTYPE_fp64; /* one row makes no line */
    ck_assert_int_eq(op_fits_fit(a, &p, &err), OK);
    ck_assert_uint_eq(p.n_fits, 2);
    ck_assert_int_eq(p.fits[0].kind, OP_matmul);
    ck_assert_double_eq_tol(p.fits[0].constant_s, 2e-6, 1e-10);
    ck_assert_double_eq_tol(p.fits[0].s_per_flop, 1e-11, 1e-15);
    ck_assert_double_eq_tol(p.fits[0].s_per_byte, 1e-10, 1e-14);
    ck_assert_double_eq(p.fits[0].min_flops, 1e6);
    ck_assert_double_eq(p.fits[0].max_flops, 20e6);
    ck_assert_int_eq(p.fits[0].rows, 20);
    ck_assert_int_eq(p.fits[1].kind, OP_gelu);
    ck_assert_int_eq(p.fits[1].rows, 18);
    ck_assert_double_eq(p.fits[1].s_per_flop, 0);
    ck_assert_double_eq_tol(p.fits[1].s_per_byte, 1 / 5e9, 1e-14);
    ck_assert(p.ops_sorted);
}
END_TEST

/* Rows of products whose seconds are flops · by[orientation], texts as op_key_text writes them. */
static struct op_row oriented_row(size_t i, int orientation, const double by[3])
{
    struct op_attrs attrs = {.trans_a = orientation == 1, .trans_b = orientation == 2};
    int64_t m = 16 * (int64_t)(i + 1), k = 24, n = 8 * (int64_t)(1 + i * i % 5);
    struct op_shapes s = {
        .n_inputs = 2,
        .input = {{.rank = 2, .dim = {attrs.trans_a ? k : m, attrs.trans_a ? m : k}},
                  {.rank = 2, .dim = {attrs.trans_b ? n : k, attrs.trans_b ? k : n}}}};
    char text[256];
    ck_assert_int_eq(op_infer(OP_matmul, &attrs, &s, NULL), OK);
    double flops = op_flops(OP_matmul, &attrs, &s);
    return (struct op_row){
        .base = "host",
        .key = op_key(OP_matmul, &attrs, &s, DTYPE_fp32),
        .kind = OP_matmul,
        .dtype = DTYPE_fp32,
        .flops = flops,
        .bytes = (double)(op_bytes_read(OP_matmul, &attrs, &s, DTYPE_fp32) +
                          op_bytes_written(OP_matmul, &attrs, &s, DTYPE_fp32)),
        .text = arena_strdup(a, op_key_text(text, sizeof text, OP_matmul, &attrs, &s, DTYPE_fp32)),
        .seconds = flops * by[orientation]};
}

START_TEST(products_have_a_fit_for_each_orientation_with_enough_rows)
{
    static const double by[3] = {1e-9, 2e-9, 5e-9};
    struct op_row rows[26];
    struct profile p = {.ops = rows};
    /* ten of the first two, five of the third: too few for its own line */
    for (size_t i = 0; i < 25; i++) rows[i] = oriented_row(i % 10, (int)(i / 10), by);
    p.n_ops = 25;
    ck_assert_int_eq(op_fits_fit(a, &p, &err), OK);
    ck_assert_uint_eq(p.n_fits, 1);
    ck_assert_int_eq(p.fits[0].rows, 25);
    ck_assert_uint_eq(p.n_oriented, 2);
    for (int32_t o = 0; o < 2; o++) {
        struct op_attrs attrs = {.trans_a = o == 1};
        const struct op_fit *f = op_fits_of(&p, "host", OP_matmul, &attrs, DTYPE_fp32);
        ck_assert_int_eq(f->orientation, o);
        ck_assert_int_eq(f->rows, 10);
        ck_assert_double_eq_tol(f->s_per_flop, by[o], 1e-12);
    }
    struct op_attrs second = {.trans_b = true}, first = {.trans_a = true};
    ck_assert_ptr_eq(op_fits_of(&p, "host", OP_matmul, &second, DTYPE_fp32), &p.fits[0]);
    ck_assert_ptr_null(op_fits_of(&p, "host", OP_matmul, &first, DTYPE_fp64));
    ck_assert_ptr_null(op_fits_of(&p, "T4", OP_matmul, &first, DTYPE_fp32));
    /* and an operator is priced by it */
    struct op_row unseen = oriented_row(14, 1, by);
    struct op_shapes s = {.n_inputs = 2,
                          .input = {{.rank = 2, .dim = {24, 240}}, {.rank = 2, .dim = {24, 16}}}};
    double out = 0;
    enum source source;
    ck_assert_int_eq(op_infer(OP_matmul, &first, &s, NULL), OK);
    ck_assert_double_eq(op_flops(OP_matmul, &first, &s), unseen.flops);
    ck_assert_int_eq(profile_op_seconds(&p, &cluster, 0, OP_matmul, &first, &s, DTYPE_fp32, 1, &out,
                                        &source, &err),
                     OK);
    ck_assert_int_eq(source, SOURCE_FITTED);
    ck_assert_double_eq_tol(out / (1.5 * unseen.seconds), 1, 1e-6);
}
END_TEST

START_TEST(rows_of_some_of_the_experts_are_in_no_fit)
{
    struct op_row rows[20];
    struct profile p = {.n_ops = 20, .ops = rows};
    for (size_t i = 0; i < 20; i++)
        rows[i] =
            (struct op_row){.base = "host",
                            .key = i,
                            .kind = OP_expert_matmul,
                            .text = i < 10 ? "expert_matmul fp32 (1,8,4,4) chosen=2"
                                           : "expert_matmul fp32 (1,2,4,4) chosen=2 experts=8",
                            .flops = 1e6 * (double)(1 + i % 10),
                            .bytes = 1e3 * (double)(1 + i * i % 23),
                            .seconds = 1e-3 * (double)(1 + i % 10) * (i < 10 ? 1 : 4)};
    ck_assert_int_eq(op_fits_fit(a, &p, &err), OK);
    ck_assert_int_eq(p.fits[0].rows, 10);
    ck_assert_double_eq_tol(p.fits[0].s_per_flop, 1e-9, 1e-15);
    ck_assert_uint_eq(p.n_oriented, 1);
}
END_TEST

/* Lines that are exact for each orientation: one fit for all is wrong by what they differ, one for each by nothing. */
START_TEST(errors_of_shapes_left_out_are_told_for_both_kinds_of_fits)
{
    static const double apart[3] = {1e-9, 2e-9, 4e-9}, alike[3] = {3e-9, 3e-9, 3e-9};
    struct op_row rows[31];
    struct fit_error *e = NULL;
    for (int same = 0; same < 2; same++) {
        struct profile p = {.n_ops = 31, .ops = rows};
        for (size_t i = 0; i < 30; i++)
            rows[i] = oriented_row(i % 10, (int)(i / 10), same ? alike : apart);
        rows[30] = (struct op_row){.base = "host", .kind = OP_gelu, .bytes = 1, .seconds = 1};
        ck_assert_uint_eq(op_fits_errors(a, &p, &e), 1);
        ck_assert_int_eq(e[0].kind, OP_matmul);
        ck_assert_int_eq(e[0].rows, 30);
        ck_assert_double_lt(e[0].by_orientation, 1e-9);
        if (same)
            ck_assert_double_lt(e[0].by_kind, 1e-9);
        else
            ck_assert_double_gt(e[0].by_kind, 0.2);
    }
    struct profile few = {.n_ops = 2, .ops = rows};
    ck_assert_uint_eq(op_fits_errors(a, &few, &e), 0); /* one row alone makes no line */
}
END_TEST

START_TEST(a_profile_without_rows_has_no_fits)
{
    struct profile p = {0};
    ck_assert_int_eq(op_fits_fit(a, &p, &err), OK);
    ck_assert_uint_eq(p.n_fits, 0);
    ck_assert_str_eq(source_name(SOURCE_FITTED), "fitted");
}
END_TEST

Suite *op_fits_suite(void)
{
    Suite *s = suite_create("op_fits");
    TCase *c = tcase_create("op_fits");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, fits_are_made_for_each_base_kind_and_type_of_number);
    tcase_add_test(c, products_have_a_fit_for_each_orientation_with_enough_rows);
    tcase_add_test(c, rows_of_some_of_the_experts_are_in_no_fit);
    tcase_add_test(c, errors_of_shapes_left_out_are_told_for_both_kinds_of_fits);
    tcase_add_test(c, a_profile_without_rows_has_no_fits);
    suite_add_tcase(s, c);
    return s;
}
