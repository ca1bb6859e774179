/* tests/support/suites.h - what every suite includes. A suite is tests/test_NAME.c with one function,
 * `Suite *NAME_suite(void)`; the Makefile finds the file and tests/run.c the function. */
#ifndef TESTS_SUPPORT_SUITES_H
#define TESTS_SUPPORT_SUITES_H

#include "tests/support/slowdown.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Check writes the place of every assertion that holds to a file, for its report of a crash: a third of the time of a suite with a million of
 * them. Here the last place is kept in memory, and tests/run.c writes it on a signal. */
struct suites_place {
    const char *file;
    int line;
};
__attribute__((weak)) struct suites_place suites_place;
#define _mark_point(in, at)                                                                        \
    ((void)(__atomic_store_n(&suites_place.file, in, __ATOMIC_RELAXED),                            \
            __atomic_store_n(&suites_place.line, at, __ATOMIC_RELAXED)))

#define tcase_set_timeout(test_case, seconds)                                                      \
    (tcase_set_timeout)(test_case, (double)TEST_SLOWDOWN * (seconds))

/* `make check-long` asks for the heavy counts. */
static inline bool suites_long(void) { return getenv("MUSHER_LONG") != NULL; }

/* A Suite of one case with the tests of a NULL-ended list. */
#define SUITE_OF(suite_name, ...)                                                                  \
    Suite *suite_name##_suite(void)                                                                \
    {                                                                                              \
        const TTest *tests_[] = {__VA_ARGS__};                                                     \
        Suite *suite_ = suite_create(#suite_name);                                                 \
        TCase *case_ = tcase_create(#suite_name);                                                  \
        for (size_t i_ = 0; i_ < sizeof tests_ / sizeof *tests_; i_++)                             \
            tcase_add_test(case_, tests_[i_]);                                                     \
        suite_add_tcase(suite_, case_);                                                            \
        return suite_;                                                                             \
    }

#endif
