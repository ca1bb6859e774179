/* exec/device_transport/paced_stream.h - paced operators, casts and copies on the collective stream.
 *
 * A CUDA stream queues about a thousand launches; one more blocks in the driver, and peers are not checked meanwhile.
 * Therefore at most (PACED_STREAM_PACES + 1) · PACED_STREAM_PACE kernels and copies are unfinished; the caller waits
 * here and calls `check` while it does. Compute does not wait for a gradient all-reduce, so the pace of the compute
 * stream (exec/worker/async_issue.h) does not cover this stream.
 */
#ifndef EXEC_DEVICE_TRANSPORT_PACED_STREAM_H
#define EXEC_DEVICE_TRANSPORT_PACED_STREAM_H

#include "core/base/arena.h"
#include "core/collective/collective.h"
#include "exec/backend.h"
#include "exec/device_transport/watchdog.h"

#include <stdint.h>

enum {
    PACED_STREAM_PACE = 32, /* kernels and copies per pace */
    PACED_STREAM_PACES = 4  /* paces in flight */
};

/* Called while waiting; an error ends the wait. */
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
        *vectors; /* shapes of operands, kept because operators may read them after they are issued */
};

/* Creates the events. */
MUST_CHECK enum status paced_stream_open(struct paced_stream *s, struct arena *a, struct backend *b,
                                         int32_t stream, struct watchdog *watchdog,
                                         paced_stream_check *check, void *owner, struct error *err);
/* add: y += x; zero: y = 0; convert: `to` = `from` in another dtype. n elements each. */
MUST_CHECK enum status paced_stream_add(struct paced_stream *s, void *y, const void *x, int64_t n,
                                        enum dtype dtype, struct error *err);
MUST_CHECK enum status paced_stream_zero(struct paced_stream *s, void *y, int64_t n,
                                         enum dtype dtype, struct error *err);
MUST_CHECK enum status paced_stream_convert(struct paced_stream *s, void *to, enum dtype to_dtype,
                                            const void *from, enum dtype from_dtype, int64_t n,
                                            struct error *err);
MUST_CHECK enum status paced_stream_copy(struct paced_stream *s, void *to, const void *from,
                                         int64_t bytes, struct error *err);
/* Packs a region of `operand` into `packed`, or unpacks it (exec/device_transport/device_region.h). */
MUST_CHECK enum status paced_stream_region(struct paced_stream *s, const struct region *r,
                                           enum dtype dtype, char *operand, char *packed,
                                           enum region_copy how, struct error *err);

#endif
