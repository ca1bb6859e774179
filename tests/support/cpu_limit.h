/* tests/support/cpu_limit.h - a test's process may use one second of CPU time, whatever else the machine does meanwhile
 * (more where it is built without optimization or with sanitizers). */
#ifndef TESTS_SUPPORT_CPU_LIMIT_H
#define TESTS_SUPPORT_CPU_LIMIT_H

#include "tests/support/suites.h"

#include <sys/resource.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
#define CPU_SECONDS 8
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CPU_SECONDS 8
#endif
#endif
#ifndef CPU_SECONDS
#define CPU_SECONDS 1
#endif

static inline void cpu_limit(void)
{
    const char *fork = getenv("CK_FORK");
    struct rlimit limit = {CPU_SECONDS, RLIM_INFINITY};
    /* Without processes of their own the tests would share one account of time. */
    if (!fork || strcmp(fork, "no") != 0) ck_assert_int_eq(setrlimit(RLIMIT_CPU, &limit), 0);
}

#endif
