/* tests/standin/activity.h - what streams tell CUPTI's twin, and its doors for tests. */
#ifndef TESTS_STANDIN_ACTIVITY_H
#define TESTS_STANDIN_ACTIVITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum activity_kind_requested {
    ACTIVITY_REQUESTED_KERNEL,
    ACTIVITY_REQUESTED_COPY,
    ACTIVITY_REQUESTED_FILL
};

/* On the thread that asks, in front of the push: what a work is called (`name` outlives it), and of a copy the way, as CUPTI
 * numbers it. NULL where nobody traces. */
struct wanted_activity *activity_requested(enum activity_kind_requested kind, const char *name,
                                           size_t bytes, int copy_kind, int device);
/* On the stream's thread: the instant, and the end of what was noted; x is gone then. ran: false on a lost device. */
uint64_t activity_now(void);
void activity_ended(struct wanted_activity *x, uint64_t begin, bool ran);

/* As STANDIN_CUPTI_FAIL_AT, from the next call of CUPTI on, which is number 1; n = 0: none fails. */
void standin_cupti_fail_at(int64_t n, int result);
int64_t standin_cupti_calls(void);
/* The name of the call that was made to fail; NULL: none yet. */
const char *standin_cupti_failed_call(void);

#endif
