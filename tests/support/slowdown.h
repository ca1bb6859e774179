/* tests/support/slowdown.h - sanitizers take so many times as long, kernels of the stand-in most of all; limits of time are for what hangs. */
#ifndef TESTS_SUPPORT_SLOWDOWN_H
#define TESTS_SUPPORT_SLOWDOWN_H

#if defined(__SANITIZE_THREAD__)
#define TEST_SLOWDOWN 20
#elif defined(__SANITIZE_ADDRESS__)
#define TEST_SLOWDOWN 6
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_SLOWDOWN 20
#elif __has_feature(address_sanitizer)
#define TEST_SLOWDOWN 6
#endif
#endif
#ifndef TEST_SLOWDOWN
#define TEST_SLOWDOWN 1
#endif

#endif
