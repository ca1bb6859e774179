/* exec/device_transport/timed_spans.h - spans of work on streams, each between two timed events. */
#ifndef EXEC_DEVICE_TRANSPORT_TIMED_SPANS_H
#define EXEC_DEVICE_TRANSPORT_TIMED_SPANS_H

#include "exec/backend.h"
#include "exec/host_transport/spans.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct timed_span {
    int32_t begin, end; /* events */
    struct span span;
};

/* All fields belong to timed_spans.c. */
struct timed_spans {
    struct arena *a;
    struct backend *backend;
    bool kept; /* else no event is recorded */
    int32_t *free_events;
    size_t n_free, free_capacity;
    struct timed_span *spans; /* (n) not yet reported */
    size_t n, capacity;
};

/* Records a timed event if spans are kept; else *event is -1. */
MUST_CHECK enum status timed_spans_record(struct timed_spans *x, int32_t stream, int32_t *event,
                                          struct error *err);
void timed_spans_keep(struct timed_spans *x, int32_t begin, int32_t end, struct span span);
/* Moves the completed spans of steps <= step to *out, relative to zero_ns; their events are reused. */
MUST_CHECK enum status timed_spans_report(struct timed_spans *x, int64_t step, int64_t zero_ns,
                                          struct span_list *out, struct error *err);

#endif
