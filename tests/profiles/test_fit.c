/* Robust fits on synthetic measurements with a known truth. */
#include "profiles/fit.h"

#include "core/base/rng.h"
#include "tests/support/suites.h"
#include "traces/quantile.h"

#include <math.h>

enum { SIZES = 9, REPEATS = 40, N = SIZES * REPEATS };

/* latency 5 us, 1 GB/s, 5 % noise, 3 % stragglers ten times as long */
static void measure(uint64_t seed, double noise, double stragglers, double *x, double *y)
{
    for (uint64_t i = 0; i < N; i++) {
        x[i] = (double)((int64_t)1024 << (i % SIZES * 4 / 3));
        y[i] = (5e-6 + x[i] / 1e9) * (1 + noise * rng_normal(seed, 0, i));
        if (rng_uniform(seed, 1, i) < stragglers) y[i] *= 10;
    }
}

START_TEST(a_link_is_found_through_noise_and_stragglers)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        double x[N], y[N];
        struct fit_line f;
        measure(seed, 0.05, 0.03, x, y);
        ck_assert_int_eq(fit_relative(x, 1, y, N, &f, NULL), OK);
        ck_assert_double_eq_tol(f.constant, 5e-6, 0.5e-6);
        ck_assert_double_eq_tol(1 / f.slope[0], 1e9, 0.02e9);
        ck_assert_double_eq_tol(f.residual, 0.05, 0.02);
        ck_assert_uint_eq(f.n, N);
    }
}
END_TEST

START_TEST(an_exact_line_is_found_exactly)
{
    double x[N], y[N];
    struct fit_line f;
    measure(1, 0, 0, x, y);
    ck_assert_int_eq(fit_relative(x, 1, y, N, &f, NULL), OK);
    ck_assert_double_eq_tol(f.constant, 5e-6, 1e-12);
    ck_assert_double_eq_tol(f.slope[0], 1e-9, 1e-17);
    ck_assert_double_eq_tol(f.residual, 0, 1e-9);
}
END_TEST

START_TEST(two_points_make_a_line)
{
    double x[] = {1, 3}, y[] = {10, 20};
    struct fit_line f;
    ck_assert_int_eq(fit_relative(x, 1, y, 2, &f, NULL), OK);
    ck_assert_double_eq_tol(f.constant, 5, 1e-9);
    ck_assert_double_eq_tol(f.slope[0], 5, 1e-9);
}
END_TEST

START_TEST(two_variables_are_told_apart)
{
    double x[200], y[100];
    struct fit_line f;
    for (uint64_t i = 0; i < 100; i++) {
        x[2 * i] = 1e6 * (1 + (double)rng_below(7, 0, i, 1000));
        x[2 * i + 1] = 1e3 * (1 + (double)rng_below(7, 1, i, 1000));
        y[i] = (2e-6 + 1e-11 * x[2 * i] + 1e-10 * x[2 * i + 1]) * (1 + 0.01 * rng_normal(7, 2, i));
    }
    ck_assert_int_eq(fit_relative(x, 2, y, 100, &f, NULL), OK);
    ck_assert_double_eq_tol(f.slope[0], 1e-11, 0.02e-11);
    ck_assert_double_eq_tol(f.slope[1], 1e-10, 0.2e-10);
}
END_TEST

START_TEST(variables_that_run_in_step_still_make_a_line)
{
    double x[40], y[20];
    struct fit_line f;
    for (int i = 0; i < 20; i++) {
        x[2 * i] = 1 + i;
        x[2 * i + 1] = 3 * x[2 * i];
        y[i] = 2 + 6 * x[2 * i];
    }
    ck_assert_int_eq(fit_relative(x, 2, y, 20, &f, NULL), OK);
    for (int i = 0; i < 20; i++)
        ck_assert_double_eq_tol(f.constant + f.slope[0] * x[2 * i] + f.slope[1] * x[2 * i + 1],
                                y[i], 1e-6 * y[i]);
}
END_TEST

START_TEST(a_negative_coefficient_is_dropped)
{
    double x[50], y[50];
    struct fit_line f;
    for (int i = 0; i < 50; i++) { /* 2x − 1 */
        x[i] = 1 + i;
        y[i] = 2 * x[i] - 1;
    }
    ck_assert_int_eq(fit_relative(x, 1, y, 50, &f, NULL), OK);
    ck_assert_double_eq(f.constant, 0);
    ck_assert(f.slope[0] > 1.8 && f.slope[0] < 2);  /* y/x goes from 1 to 1.98, mostly near 2 */
    for (int i = 0; i < 50; i++) y[i] = 100 - x[i]; /* falls: only the constant is left */
    ck_assert_int_eq(fit_relative(x, 1, y, 50, &f, NULL), OK);
    ck_assert_double_eq(f.slope[0], 0);
    ck_assert(f.constant > 50 && f.constant < 100);
}
END_TEST

START_TEST(rows_that_are_no_numbers_are_left_out)
{
    double x[N + 4], y[N + 4];
    struct fit_line f;
    measure(3, 0, 0, x, y);
    x[N] = NAN, y[N] = 1;
    x[N + 1] = 1024, y[N + 1] = INFINITY;
    x[N + 2] = 1024, y[N + 2] = -1;
    x[N + 3] = 1024, y[N + 3] = 0;
    ck_assert_int_eq(fit_relative(x, 1, y, N + 4, &f, NULL), OK);
    ck_assert_uint_eq(f.n, N);
    ck_assert_double_eq_tol(f.constant, 5e-6, 1e-12);
}
END_TEST

START_TEST(what_cannot_be_fitted_is_refused)
{
    double x[] = {4, 4, 4, 4}, y[] = {1, 2, 3, 4};
    struct fit_line f;
    struct error err;
    ck_assert_int_eq(fit_relative(x, 1, y, 4, &f, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "same x"));
    ck_assert_int_eq(fit_relative(x, 1, y, 1, &f, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "1 usable rows cannot fit 2"));
    ck_assert_int_eq(fit_relative(x, 2, y, 2, &f, &err), ERR_INPUT);
    ck_assert_int_eq(fit_relative(x, 1, y, 0, &f, &err), ERR_INPUT);
}
END_TEST

START_TEST(units_change_nothing)
{
    double x[N], y[N], z[N];
    struct fit_line f, g;
    measure(4, 0.05, 0.03, x, y);
    for (int i = 0; i < N; i++) z[i] = 1e9 * y[i];
    ck_assert_int_eq(fit_relative(x, 1, y, N, &f, NULL), OK);
    ck_assert_int_eq(fit_relative(x, 1, z, N, &g, NULL), OK);
    ck_assert_double_eq_tol(g.constant / 1e9, f.constant, 1e-9 * f.constant);
    ck_assert_double_eq_tol(g.slope[0] / 1e9, f.slope[0], 1e-9 * f.slope[0]);
}
END_TEST

START_TEST(the_median_is_the_middle_and_the_spread_ignores_a_straggler)
{
    double v[] = {3, 1, 2}, w[] = {4, 1, 3, 2}, s[] = {9, 10, 11, 10, 1000};
    ck_assert_double_eq(quantile_median_double(v, 3), 2);
    ck_assert_double_eq(quantile_median_double(w, 4), 2.5);
    ck_assert_double_eq(quantile_median_double(w, 0), 0);
    ck_assert_double_eq_tol(fit_spread(s, 5), 0.14826,
                            1e-9); /* deviations 1 0 1 0 990: median 1, over 10 */
    ck_assert_double_eq(fit_spread(s, 1), 0);
}
END_TEST

SUITE_OF(fit, a_link_is_found_through_noise_and_stragglers, an_exact_line_is_found_exactly,
         two_points_make_a_line, two_variables_are_told_apart,
         variables_that_run_in_step_still_make_a_line, a_negative_coefficient_is_dropped,
         rows_that_are_no_numbers_are_left_out, what_cannot_be_fitted_is_refused,
         units_change_nothing, the_median_is_the_middle_and_the_spread_ignores_a_straggler)
