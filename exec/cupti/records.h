/* exec/cupti/records.h - what CUPTI's buffers say, kept until the session is over.
 *
 * A kernel's record knows a correlation id, not who asked for it; that is in another record, of the same correlation id, which may
 * lie in another buffer and come first or last. So both are kept as they come and joined once, when everything is there.
 * Names are copied: CUPTI's live as long as the module that they are of.
 * Not thread-safe: the session's lock is around it.
 */
#ifndef EXEC_CUPTI_RECORDS_H
#define EXEC_CUPTI_RECORDS_H

#include "exec/activity.h"

#include <cupti.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_NAMES = 1024 };

struct records {
    struct arena *arena;
    struct noted_activity *noted; /* (n_noted) */
    size_t n_noted, noted_capacity;
    struct noted_cause *causes; /* (n_causes) */
    size_t n_causes, causes_capacity;
    struct noted_name *names[RECORD_NAMES]; /* lists by hash */
    int64_t lost;                           /* without instants, or dropped by CUPTI */
};

/* One record of a buffer; kinds that nobody asked for, and that are asked for only for their correlation ids, are passed over. */
void records_note(struct records *r, const CUpti_Activity *a);
/* Joins; the log is the arena's. O(n log n). */
void records_join(struct records *r, struct activity_log *out);

#endif
