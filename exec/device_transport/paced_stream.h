/* exec/device_transport/paced_stream.h - operators, conversions and copies on the collective stream, at a pace.
 *
 * A stream takes about a thousand launches; one more blocks in the driver until there is room, and nobody looks at peers meanwhile.
 * Therefore no more than (PACED_STREAM_PACES + 1) · PACED_STREAM_PACE kernels and copies are issued of which none has been seen to
 * end; the caller waits here, and `check` looks at peers. Compute does not stand behind a gradient all-reduce, so its own pace
 * (exec/worker/async_issue.h) does not cover this stream.
 */
#ifndef EXEC_DEVICE_TRANSPORT_PACED_STREAM_H
#define EXEC_DEVICE_TRANSPORT_PACED_STREAM_H

#include "core/base/arena.h"
#include "core/collective/collective.h"
#include "exec/backend.h"
#include "exec/device_transport/watchdog.h"

#include <stdint.h>

enum {
    PACED_STREAM_PACE = 32, /* kernels and copies to a pace, … */
    PACED_STREAM_PACES = 4  /* … and paces in flight */
};

/* What is called while the caller waits; an error ends the wait. */
typedef enum status paced_stream_check(void *owner, struct error *err);

/* All fields belong to paced_stream.c. */
struct paced_stream {
    struct arena *a;
    struct backend *backend;
    int32_t stream;
    struct watchdog *watchdog;
    paced_stream_check *check;
    void *owner;                      /* of check */
    int32_t pace[PACED_STREAM_PACES]; /* events; pace n: n mod PACED_STREAM_PACES */
    int64_t in_pace, next_pace;       /* issued in the current pace; its number */
    struct paced_vector
        *vectors; /* shapes of operands: operators may read them later than they are issued */
};

/* Its events are made here. */
MUST_CHECK enum status paced_stream_open(struct paced_stream *s, struct arena *a, struct backend *b,
                                         int32_t stream, struct watchdog *watchdog,
                                         paced_stream_check *check, void *owner, struct error *err);
/* y += x; y = 0; `to` = `from` in another type: n elements each. */
MUST_CHECK enum status paced_stream_add(struct paced_stream *s, void *y, const void *x, int64_t n,
                                        enum dtype dtype, struct error *err);
MUST_CHECK enum status paced_stream_zero(struct paced_stream *s, void *y, int64_t n,
                                         enum dtype dtype, struct error *err);
MUST_CHECK enum status paced_stream_convert(struct paced_stream *s, void *to, enum dtype to_dtype,
                                            const void *from, enum dtype from_dtype, int64_t n,
                                            struct error *err);
MUST_CHECK enum status paced_stream_copy(struct paced_stream *s, void *to, const void *from,
                                         int64_t bytes, struct error *err);
/* A region of `operand` to `packed`, or back (exec/device_transport/device_region.h). */
MUST_CHECK enum status paced_stream_region(struct paced_stream *s, const struct region *r,
                                           enum dtype dtype, char *operand, char *packed,
                                           enum region_copy how, struct error *err);

#endif
