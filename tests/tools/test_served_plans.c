/* Progress and rates of plans with parameter servers (tools/strategy/served_plans.h), against descent with late gradients. */
#include "tools/strategy/served_plans.h"

#include "tests/support/suites.h"

#include <math.h>

enum { STEPS = 40000, LATEST = 16 };

/* |x| after descent on x² / 2 from 1: each gradient is `delay` updates late and has an n-th of the rate. */
static double descend(double rate, int n, int delay)
{
    double past[LATEST + 1] = {0}, x = 1;
    for (int t = 0; t < STEPS && fabs(x) < 1e100; t++) {
        past[t % (delay + 1)] = x;
        x -= rate / n * past[t < delay ? 0 : (t - delay) % (delay + 1)];
    }
    return fabs(x);
}

START_TEST(progress_is_the_ratio_of_stable_rates)
{
    struct parameter_server rule = {.n = 1, .mode = SERVER_ASP, .drop_above = -1};
    static const double synchronous = 2; /* the largest stable rate of gradient descent with curvature 1 */
    for (int n = 3; n <= LATEST + 1; n++) {
        struct server_counts counts = {.pushes = 100, .staleness = 100 * (n - 1)};
        double progress = served_plans_progress(&rule, n, &counts);
        ck_assert(progress > 0.78 && progress < 1);
        ck_assert(descend(0.97 * progress * synchronous, n, n - 1) < 1e-3);
        ck_assert(descend(1.03 * progress * synchronous, n, n - 1) > 1e3);
    }
}
END_TEST

START_TEST(progress_is_at_most_one)
{
    struct parameter_server rule = {.n = 1, .mode = SERVER_SSP, .bound = 3, .drop_above = -1};
    struct server_counts fresh = {.pushes = 10}, late = {.pushes = 10, .staleness = 90}, later = {.pushes = 10, .staleness = 190};
    ck_assert(served_plans_progress(&rule, 4, &fresh) == 1);
    ck_assert(served_plans_progress(&rule, 4, &late) < 1 && served_plans_progress(&rule, 4, &later) < served_plans_progress(&rule, 4, &late));
    rule.bound = 0; /* one update a step */
    ck_assert(served_plans_progress(&rule, 4, &later) == 1);
    rule.mode = SERVER_BSP;
    ck_assert(served_plans_progress(&rule, 4, &later) == 1);
}
END_TEST

START_TEST(optimizers_that_normalise_have_the_inverse_rate)
{
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        struct optimizer o = {.kind = (enum optimizer_kind)kind};
        ck_assert_int_eq(served_plans_rate(&o), kind == OPTIMIZER_SGD ? SERVER_CONSTANT : SERVER_INVERSE);
    }
}
END_TEST

Suite *served_plans_suite(void)
{
    Suite *s = suite_create("served_plans");
    TCase *t = tcase_create("served_plans");
    tcase_add_test(t, progress_is_the_ratio_of_stable_rates);
    tcase_add_test(t, progress_is_at_most_one);
    tcase_add_test(t, optimizers_that_normalise_have_the_inverse_rate);
    suite_add_tcase(s, t);
    return s;
}
