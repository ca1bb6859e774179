#include "core/base/parallel.h"
#include "tests/support/suites.h"

#include <sched.h>
#include <stdatomic.h>

static void mark(void *user, int64_t index, int32_t thread)
{
    atomic_int *seen = user;
    ck_assert_int_ge(thread, 0);
    atomic_fetch_add(&seen[index], 1);
}

START_TEST(every_index_is_taken_once_by_any_number_of_threads)
{
    for (int32_t threads = 1; threads <= 5; threads++) {
        atomic_int seen[500] = {0};
        parallel_each(500, threads, mark, seen);
        for (int i = 0; i < 500; i++) ck_assert_int_eq(atomic_load(&seen[i]), 1);
    }
    parallel_each(0, 4, mark, NULL);
}
END_TEST

/* The suite's tests are processes of their own, so that the mask ends with this one. */
START_TEST(processors_are_those_of_the_affinity_mask)
{
    cpu_set_t one;
    int32_t all = parallel_processors();
    ck_assert_int_ge(all, 1);
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(parallel_processors(), 1);
}
END_TEST

Suite *parallel_suite(void)
{
    Suite *s = suite_create("core/base/parallel");
    TCase *t = tcase_create("threads");
    tcase_add_test(t, every_index_is_taken_once_by_any_number_of_threads);
    tcase_add_test(t, processors_are_those_of_the_affinity_mask);
    suite_add_tcase(s, t);
    return s;
}
