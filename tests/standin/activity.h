/* tests/standin/activity.h - interface between the stand-in's streams and its CUPTI, and test hooks. */
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

/* On the issuing thread, before the push: the name of a work item (which must outlive it), and for a copy its
 * direction in CUPTI's numbers. NULL if nothing is traced. */
struct wanted_activity *activity_requested(enum activity_kind_requested kind, const char *name,
                                           size_t bytes, int copy_kind, int device);
/* On the stream's thread: the current instant; and the end of an item, which frees x. ran: false on a lost device. */
uint64_t activity_now(void);
void activity_ended(struct wanted_activity *x, uint64_t begin, bool ran);

/* Like STANDIN_CUPTI_FAIL_AT; the next CUPTI call is number 1; n = 0: none fails. */
void standin_cupti_fail_at(int64_t n, int result);
int64_t standin_cupti_calls(void);
/* Name of the call that failed by request; NULL: none yet. */
const char *standin_cupti_failed_call(void);

#endif
