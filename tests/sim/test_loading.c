#include "sim/uncertainty/loading.h"

#include "core/base/rng.h"
#include "tests/support/suites.h"

#include <math.h>

static struct error err;

static struct loading_result walk(struct loading l, double step_ns, int64_t steps)
{
    struct loading_result r;
    ck_assert_msg(loading_walk(&l, &step_ns, 1, steps, 1, &r, &err) == OK, "%s", err.text);
    return r;
}

START_TEST(even_loads_take_the_larger_of_step_and_load)
{
    for (int32_t w = 1; w <= 6; w++)
        for (int64_t load = 1; load <= 8; load++) {
            struct loading_result r = walk((struct loading){w, w + 1, load * 1000, 0}, 1000, 5000);
            double expected = fmax(1000, (double)load * 1000 / w);
            ck_assert_double_eq_tol(r.step_ns, expected, 0.002 * expected);
            ck_assert_double_eq_tol(r.waiting, 1 - 1000 / expected, 0.002);
            ck_assert_int_eq(r.first_ns, load * 1000);
        }
}
END_TEST

/* One batch ahead: it is begun when the step before it begins, so a step takes E max(T, X). For a log-normal X of mean m that is T
 * Φ(d) + m Φ(s − d) with d = (ln T − μ) ÷ s. */
START_TEST(one_batch_ahead_takes_the_mean_of_the_later)
{
    const double T = 1000, cv = 1, s = sqrt(log(2)), loads[] = {500, 1000, 3000};
    for (int i = 0; i < 3; i++) {
        double m = loads[i], d = (log(T) - (log(m) - s * s / 2)) / s;
        double expected = T * 0.5 * erfc(-d / sqrt(2)) + m * 0.5 * erfc(-(s - d) / sqrt(2));
        struct loading_result r =
            walk((struct loading){4, 1, (int64_t)m, cv}, T, suites_long() ? 2000000 : 200000);
        ck_assert_double_eq_tol(r.step_ns / expected, 1, 0.01);
    }
}
END_TEST

/* Two loaders of 3 at a step of 1: they never rest, 1.5 a step; at balance variance costs some percent; eight hide it. */
START_TEST(variance_costs_most_at_balance)
{
    struct loading l = {2, 32, 3000, 1};
    double two = walk(l, 1000, 200000).step_ns / 1000;
    l.loaders = 3;
    double three = walk(l, 1000, 200000).step_ns / 1000;
    l.loaders = 8;
    double eight = walk(l, 1000, 200000).step_ns / 1000;
    ck_assert_double_eq_tol(two, 1.5, 0.02);
    ck_assert_double_gt(three, 1.02);
    ck_assert_double_lt(three, 1.2);
    ck_assert_double_lt(eight, 1.015);
    ck_assert_double_ge(eight, 1);
}
END_TEST

START_TEST(more_loaders_and_more_ahead_never_wait_more)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct loading l = {1 + (int32_t)rng_below(seed, 1, 0, 6),
                            1 + (int32_t)rng_below(seed, 1, 1, 12),
                            (int64_t)rng_below(seed, 1, 2, 5000), rng_uniform(seed, 1, 3)};
        double one = walk(l, 1000, 2000).step_ns;
        ck_assert_double_ge(one, 999.999);
        l.prefetch++;
        double ahead = walk(l, 1000, 2000).step_ns;
        ck_assert_double_le(ahead, one * 1.0000001 + 1e4 / 2000);
    }
}
END_TEST

START_TEST(the_fewest_loaders_that_suffice)
{
    struct loading l = {1, 2, 3500, 0};
    double step = 1000;
    int32_t n = -1;
    ck_assert_int_eq(loading_enough(&l, &step, 1, 5000, 1, 0.01, 64, &n, &err), OK);
    ck_assert_int_eq(n, 4);
    ck_assert_int_eq(loading_enough(&l, &step, 1, 5000, 1, 0.01, 3, &n, &err), OK);
    ck_assert_int_eq(n, 0);
}
END_TEST

START_TEST(no_loaders_are_refused)
{
    struct loading l = {0, 1, 1, 0};
    struct loading_result r;
    double step = 1;
    ck_assert_int_eq(loading_walk(&l, &step, 1, 1, 1, &r, &err), ERR_USAGE);
    l.loaders = 1;
    ck_assert_int_eq(loading_walk(&l, &step, 0, 1, 1, &r, &err), ERR_USAGE);
    l.cv = NAN;
    ck_assert_int_eq(loading_walk(&l, &step, 1, 1, 1, &r, &err), ERR_USAGE);
}
END_TEST

SUITE_OF(loading, even_loads_take_the_larger_of_step_and_load,
         one_batch_ahead_takes_the_mean_of_the_later, variance_costs_most_at_balance,
         more_loaders_and_more_ahead_never_wait_more, the_fewest_loaders_that_suffice,
         no_loaders_are_refused)
