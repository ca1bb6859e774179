/* core/base/sanitized.h - active sanitizers, detected alike for gcc and clang. */
#ifndef CORE_BASE_SANITIZED_H
#define CORE_BASE_SANITIZED_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED_ADDRESS 1
#endif
#if __has_feature(thread_sanitizer)
#define SANITIZED_THREAD 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__) && !defined(SANITIZED_ADDRESS)
#define SANITIZED_ADDRESS 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(SANITIZED_THREAD)
#define SANITIZED_THREAD 1
#endif

#ifndef SANITIZED_ADDRESS
#define SANITIZED_ADDRESS 0
#endif
#ifndef SANITIZED_THREAD
#define SANITIZED_THREAD 0
#endif

#endif
