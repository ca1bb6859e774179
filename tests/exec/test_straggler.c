#include "core/base/arena.h"
#include "exec/straggler.h"

#include <check.h>


#include <math.h>

/* A step of n values; returns in which of them, from 1, a change was reported; 0: none. */
static int feed(struct straggler_series *s, double value, int n)
{
    int at = 0;
    for (int i = 1; i <= n; i++)
        if (straggler_add(s, value, 0, 0) && !at) at = i;
    return at;
}

START_TEST(slow_device_is_named_and_recovers)
{
    struct straggler_series s = {0};
    ck_assert_int_eq(feed(&s, 10, 100), 0);
    ck_assert_int_eq(feed(&s, 20, 100), STRAGGLER_WINDOW); /* once */
    ck_assert_double_eq_tol(s.level, 2, 1e-12);
    ck_assert_int_eq(feed(&s, 10, 100), STRAGGLER_WINDOW);
    ck_assert_double_eq_tol(s.level, 1, 1e-12);
    ck_assert_int_eq(feed(&s, 5, 100), STRAGGLER_WINDOW); /* faster than at first */
}
END_TEST

START_TEST(some_slow_steps_are_not_reported)
{
    struct straggler_series s = {0};
    ck_assert_int_eq(feed(&s, 10, 50), 0);
    for (int k = 0; k < 200; k++) {
        ck_assert_int_eq(feed(&s, 1000, STRAGGLER_WINDOW - 1), 0);
        ck_assert_int_eq(feed(&s, 10, 1), 0);
    }
    ck_assert_int_eq(feed(&s, 10 * STRAGGLER_FACTOR * 0.999, 1000), 0);
    ck_assert_int_eq(feed(&s, 10 / STRAGGLER_FACTOR * 1.001, 1000), 0);
}
END_TEST

/* Ten steps of 50 ms are half a second. */
START_TEST(wall_times_must_last)
{
    struct straggler_series s = {0};
    int64_t ns = 0;
    for (int i = 0; i < 50; i++) ck_assert(!straggler_add(&s, 10, ns += 50000000, STRAGGLER_NS));
    for (int i = 0; i < 10; i++) ck_assert(!straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
    ck_assert(!straggler_add(&s, 10, ns += 50000000, STRAGGLER_NS));
    for (int i = 0; i < 20; i++) ck_assert(!straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
    ck_assert(straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
}
END_TEST

START_TEST(base_is_a_median)
{
    struct straggler_series s = {0};
    for (int i = 0; i < STRAGGLER_BASE; i++) ck_assert(!straggler_add(&s, i < 3 ? 1000 : 10, 0, 0));
    ck_assert_double_eq_tol(s.base, 10, 1e-12);
}
END_TEST

/* Uniform noise of half the factor in each direction: none of a million steps is reported. */
START_TEST(noise_is_not_reported)
{
    struct straggler_series s = {0};
    uint64_t state = 1;
    for (int i = 0; i < 1000000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double noise = (double)(state >> 40) / (double)(1 << 24) - 0.5;
        ck_assert(!straggler_add(&s, 100 * (1 + (STRAGGLER_FACTOR - 1) * noise), 0, 0));
    }
}
END_TEST

/* What a rank adds up: operators of a step together, messages by byte and peer, the first step left out. */
START_TEST(ranks_report)
{
    struct arena *a = arena_new();
    struct program p = {.n_devices = 3, .emulated = true};
    struct straggler_table *t = ARENA_ARRAY(a, struct straggler_table, 1);
    struct straggler_watch *w = straggler_open(a, &p, 1, t);
    ck_assert_ptr_null(straggler_open(a, &p, 1, NULL));
    straggler_operator(NULL, 3, 5);
    straggler_message(NULL, 2, 3, 5, 5);
    for (int64_t step = 0; step < 60; step++) {
        int64_t slow = step >= 30 ? 2 : 1, link = step >= 40 ? 10 : 1;
        for (int i = 0; i < 7; i++) straggler_operator(w, step, step ? 100 * slow : 100000);
        straggler_message(w, 0, step, 1000 * (step % 3 + 1), 500 * (step % 3 + 1)); /* sizes differ */
        straggler_message(w, 2, step, 4000, 800 * link);
        ck_assert_int_eq(atomic_load(&t->ranks[1].step), step);
    }
    ck_assert_int_eq(atomic_load(&t->ranks[1].compute_ppm), 2000000);
    ck_assert_int_eq(atomic_load(&t->ranks[1].compute_step), 30 + STRAGGLER_WINDOW);
    ck_assert_int_eq(atomic_load(&t->ranks[1].link_ppm), 10000000);
    ck_assert_int_eq(atomic_load(&t->ranks[1].link_step), 40 + STRAGGLER_WINDOW);
    ck_assert_int_eq(atomic_load(&t->ranks[1].peer), 2);
    for (int i = 0; i < 3; i++)
        if (i != 1) ck_assert_int_eq(atomic_load(&t->ranks[i].compute_ppm) + atomic_load(&t->ranks[i].step), 0);
    arena_free(a);
}
END_TEST

Suite *straggler_suite(void)
{
    Suite *s = suite_create("straggler");
    TCase *c = tcase_create("straggler");
    tcase_add_test(c, slow_device_is_named_and_recovers);
    tcase_add_test(c, some_slow_steps_are_not_reported);
    tcase_add_test(c, wall_times_must_last);
    tcase_add_test(c, base_is_a_median);
    tcase_add_test(c, noise_is_not_reported);
    tcase_add_test(c, ranks_report);
    suite_add_tcase(s, c);
    return s;
}
