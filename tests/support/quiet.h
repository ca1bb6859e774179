/* tests/support/quiet.h - for suites that call what prints for people: standard output goes nowhere for a while.
 *
 *     int before = quiet_begin();
 *     ...
 *     quiet_end(before);
 */
#ifndef TESTS_SUPPORT_QUIET_H
#define TESTS_SUPPORT_QUIET_H

#include "tests/support/suites.h"

#include <stdio.h>
#include <unistd.h>

/* Where standard output went before; for quiet_end. */
static inline int quiet_begin(void)
{
    fflush(stdout);
    int before = dup(STDOUT_FILENO);
    ck_assert_int_ge(before, 0);
    ck_assert_ptr_nonnull(freopen("/dev/null", "w", stdout));
    return before;
}

static inline void quiet_end(int before)
{
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
}

#endif
