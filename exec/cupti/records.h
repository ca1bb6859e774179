/* exec/cupti/records.h - CUPTI's activity records, kept until the end of the session.
 *
 * A kernel's record has a correlation id. A second record with the same id names the operator that launched it; it
 * may lie in another buffer and come earlier or later. So both are stored as they come and joined once at the end.
 * Names are copied, because CUPTI's live only as long as their module. Not thread-safe: protected by the session's
 * lock.
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
    struct noted_name *names[RECORD_NAMES]; /* hash buckets */
    int64_t lost;                           /* without timestamps, or dropped by CUPTI */
};

/* Stores one record of a buffer; kinds that are not needed, or needed for their correlation ids only, are skipped. */
void records_note(struct records *r, const CUpti_Activity *a);
/* Joins the records; the arena owns the log. O(n log n). */
void records_join(struct records *r, struct activity_log *out);

#endif
