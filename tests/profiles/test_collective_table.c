/* Tables of collectives: what is measured is given back, what lies between is between, GSL's own Steffen agrees. */
#include "profiles/collective_table.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "tests/support/suites.h"

#include <gsl/gsl_interp.h>
#include <math.h>

static struct arena *a;
static struct error err;
static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct collective_row row(int32_t n, int64_t bytes, double seconds)
{
    return (struct collective_row){.n_ranks = n,
                                   .n_nodes = 1,
                                   .algorithm = "",
                                   .protocol = "",
                                   .bytes = bytes,
                                   .seconds = seconds,
                                   .samples = 1,
                                   .provenance = "test"};
}

/* alpha + bytes / B with a little noise; sizes from 1 KiB on. */
static struct collective_table made(uint64_t seed, size_t n, double noise)
{
    struct collective_row *rows = ARENA_ARRAY(a, struct collective_row, n);
    int64_t bytes = 1024;
    for (size_t i = 0; i < n; i++) {
        double t = 2e-5 + (double)bytes / 1e11;
        rows[i] = row(8, bytes, t * (1 + noise * (rng_uniform(seed, 0, i) - .5)));
        bytes =
            bytes * (int64_t)(2 + rng_below(seed, 1, i, 3)) + (int64_t)rng_below(seed, 2, i, 999);
    }
    return (struct collective_table){rows, n};
}

START_TEST(measured_sizes_are_given_back_and_others_lie_between)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct collective_table t = made(seed, 1 + seed % 12, seed % 2 ? .4 : .01);
        for (size_t i = 0; i < t.n; i++) {
            ck_assert_double_eq(collective_table_seconds(&t, t.rows[i].bytes), t.rows[i].seconds);
            if (i + 1 == t.n) break;
            double low = t.rows[i].seconds, high = t.rows[i + 1].seconds, before = low;
            int64_t from = t.rows[i].bytes, step = (t.rows[i + 1].bytes - from) / 50;
            for (int64_t b = from; b < t.rows[i + 1].bytes; b += step) {
                double s = collective_table_seconds(&t, b);
                ck_assert_double_ge(s, fmin(low, high) * (1 - 1e-12));
                ck_assert_double_le(s, fmax(low, high) * (1 + 1e-12));
                if (low <= high)
                    ck_assert_double_ge(s, before * (1 - 1e-12));
                else
                    ck_assert_double_le(s, before * (1 + 1e-12));
                before = s;
            }
        }
        arena_reset(a);
    }
}
END_TEST

/* At the two ends GSL takes the slope of the chord, Steffen's paper and we that of a parabola. */
START_TEST(gsl_draws_the_same_curve_between_inner_rows)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct collective_table t = made(seed, 4 + seed % 10, .5);
        double x[16], y[16];
        for (size_t i = 0; i < t.n; i++)
            x[i] = log((double)t.rows[i].bytes), y[i] = log(t.rows[i].seconds);
        gsl_interp *g = gsl_interp_alloc(gsl_interp_steffen, t.n);
        gsl_interp_init(g, x, y, t.n);
        for (uint64_t k = 0; k < 200; k++) {
            int64_t span = t.rows[t.n - 2].bytes - t.rows[1].bytes;
            int64_t b = t.rows[1].bytes + (int64_t)rng_below(seed, 9, k, (uint64_t)span);
            double theirs = exp(gsl_interp_eval(g, x, y, log((double)b), NULL));
            ck_assert_double_eq_tol(collective_table_seconds(&t, b) / theirs, 1, 1e-11);
        }
        gsl_interp_free(g);
        arena_reset(a);
    }
}
END_TEST

START_TEST(below_stands_the_latency_and_beyond_goes_the_bandwidth)
{
    struct collective_row rows[] = {row(8, 1000, 1e-5), row(8, 1000000, 2e-5),
                                    row(8, 101000000, 1.02e-3)};
    struct collective_table t = {rows, 3};
    ck_assert_double_eq(collective_table_seconds(&t, 0), 1e-5);
    ck_assert_double_eq(collective_table_seconds(&t, 10), 1e-5);
    ck_assert_double_eq_tol(collective_table_seconds(&t, 201000000), 2.02e-3, 1e-12); /* 100 GB/s */
    t.n = 1;
    ck_assert_double_eq(collective_table_seconds(&t, 1), 1e-5);
    ck_assert_double_eq_tol(collective_table_seconds(&t, 5000), 5e-5, 1e-15);
}
END_TEST

START_TEST(a_row_left_out_is_told_by_its_neighbours)
{
    struct collective_row rows[] = {row(2, 100, 1e-3), row(2, 1000, 1e-2), row(2, 10000, 1e-1),
                                    row(2, 100000, 7)};
    struct collective_table t = {rows, 4};
    double told = collective_table_left_out(&t, 1);
    ck_assert(told > 1e-3 && told < 1e-1);
    rows[1].seconds = 5; /* a bad row has no say in it */
    ck_assert_double_eq(collective_table_left_out(&t, 1), told);
    t.n = 3; /* two are left: a straight line in logarithms */
    ck_assert_double_eq_tol(collective_table_left_out(&t, 1), 1e-2, 1e-12);
}
END_TEST

START_TEST(tables_are_found_by_what_they_are)
{
    struct collective_row rows[7];
    size_t at = 0, n_tables = 0;
    struct collective_table t;
    for (int i = 0; i < 7; i++) rows[i] = row(8, 1000 * (i % 2 + 1), 1e-5 * (i + 1));
    rows[2].n_ranks = rows[3].n_ranks = 4;
    rows[4].algorithm = rows[5].algorithm = "Ring";
    rows[4].n_ranks = rows[5].n_ranks = rows[6].n_ranks = 16;
    rows[4].n_nodes = rows[5].n_nodes = rows[6].n_nodes = 2;
    rows[6].algorithm = "Tree", rows[6].seconds = 1e-6;
    ck_assert_int_eq(collective_table_sort(rows, 7, &err), OK);
    while (collective_table_next(rows, 7, &at, &t)) n_tables++;
    ck_assert_uint_eq(n_tables, 4);
    ck_assert(collective_table_find(rows, 7, COLLECTIVE_ALL_REDUCE, 8, 1, NULL, 1000, &t));
    ck_assert_double_eq(t.rows[1].seconds, 2e-5);
    ck_assert(collective_table_find(rows, 7, COLLECTIVE_ALL_REDUCE, 16, 2, NULL, 1000, &t));
    ck_assert_str_eq(t.rows->algorithm, "Tree"); /* the least */
    ck_assert(collective_table_find(rows, 7, COLLECTIVE_ALL_REDUCE, 16, 2, "Ring", 1000, &t));
    ck_assert_uint_eq(t.n, 2);
    ck_assert(!collective_table_find(rows, 7, COLLECTIVE_ALL_REDUCE, 8, 2, NULL, 1000, &t));
    ck_assert(!collective_table_find(rows, 7, COLLECTIVE_BROADCAST, 8, 1, NULL, 1000, &t));
    ck_assert(!collective_table_find(rows, 7, COLLECTIVE_ALL_REDUCE, 8, 1, "Ring", 1000, &t));
}
END_TEST

START_TEST(a_new_table_replaces_the_old_one_and_no_other)
{
    struct collective_row old[] = {row(4, 1000, 1), row(4, 2000, 2), row(8, 1000, 3)};
    struct collective_row add[] = {row(4, 500, 4)}, *out = NULL;
    size_t n = 0;
    ck_assert_int_eq(collective_table_merge(a, old, 3, add, 1, &out, &n, &err), OK);
    ck_assert_uint_eq(n, 2);
    ck_assert_double_eq(out[0].seconds, 4);
    ck_assert_double_eq(out[1].seconds, 3);
}
END_TEST

START_TEST(measurements_go_before_priors)
{
    struct nccl_system s;
    struct collective_row rows[] = {row(8, 1000000, 123e-6)};
    struct collective_estimate e;
    ck_assert_int_eq(nccl_system_of("A100-SXM4-80", 8, 1, 0, &s, &err), OK);
    ck_assert_int_eq(
        collective_estimate(rows, 1, "2.28.9", &s, COLLECTIVE_ALL_REDUCE, 8, 1, 1000000, &e, &err),
        OK);
    ck_assert_int_eq(e.source, SOURCE_MEASURED);
    ck_assert_double_eq(e.seconds, 123e-6);
    ck_assert_int_eq(
        collective_estimate(rows, 0, "2.28.9", &s, COLLECTIVE_ALL_REDUCE, 8, 1, 1000000, &e, &err),
        OK);
    ck_assert_int_eq(e.source, SOURCE_CATALOGUE);
    ck_assert_double_lt(e.seconds, 123e-6);
    ck_assert_int_eq(
        collective_estimate(rows, 1, "2.28.9", NULL, COLLECTIVE_ALL_REDUCE, 4, 1, 1000, &e, &err),
        ERR_INPUT);
    ck_assert(strstr(err.text, "no measurement of all-reduce of 4 ranks"));
}
END_TEST

START_TEST(rows_that_cannot_be_are_refused)
{
    struct collective_row rows[] = {row(4, 1000, 1), row(4, 1000, 2)};
    ck_assert_int_eq(collective_table_sort(rows, 2, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "two rows of 1000 bytes"));
    rows[1].bytes = 0;
    ck_assert_int_eq(collective_table_sort(rows, 2, &err), ERR_INPUT);
    rows[1].bytes = 10, rows[1].seconds = NAN;
    ck_assert_int_eq(collective_table_sort(rows, 2, &err), ERR_INPUT);
    rows[1].seconds = 1, rows[1].n_nodes = 3;
    ck_assert_int_eq(collective_table_sort(rows, 2, &err), ERR_INPUT);
}
END_TEST

Suite *collective_table_suite(void)
{
    Suite *s = suite_create("collective_table");
    TCase *c = tcase_create("collective_table");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, measured_sizes_are_given_back_and_others_lie_between);
    tcase_add_test(c, gsl_draws_the_same_curve_between_inner_rows);
    tcase_add_test(c, below_stands_the_latency_and_beyond_goes_the_bandwidth);
    tcase_add_test(c, a_row_left_out_is_told_by_its_neighbours);
    tcase_add_test(c, tables_are_found_by_what_they_are);
    tcase_add_test(c, a_new_table_replaces_the_old_one_and_no_other);
    tcase_add_test(c, measurements_go_before_priors);
    tcase_add_test(c, rows_that_cannot_be_are_refused);
    suite_add_tcase(s, c);
    return s;
}
