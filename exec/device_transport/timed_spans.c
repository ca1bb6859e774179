#include "exec/device_transport/timed_spans.h"

enum status timed_spans_record(struct timed_spans *x, int32_t stream, int32_t *event,
                               struct error *err)
{
    *event = -1;
    if (!x->kept) return OK;
    if (x->n_free)
        *event = x->free_events[--x->n_free];
    else
        TRY(x->backend->event_make(x->backend, true, event, err));
    return x->backend->event_record(x->backend, *event, stream, err);
}

static void free_event(struct timed_spans *x, int32_t event)
{
    x->free_events =
        arena_grow(x->a, x->free_events, x->n_free, &x->free_capacity, sizeof *x->free_events);
    x->free_events[x->n_free++] = event;
}

void timed_spans_keep(struct timed_spans *x, int32_t begin, int32_t end, struct span span)
{
    if (!x->kept) return;
    x->spans = arena_grow(x->a, x->spans, x->n, &x->capacity, sizeof *x->spans);
    x->spans[x->n++] = (struct timed_span){begin, end, span};
}

enum status timed_spans_report(struct timed_spans *x, int64_t step, int64_t zero_ns,
                               struct span_list *out, struct error *err)
{
    struct backend *b = x->backend;
    size_t kept = 0;
    for (size_t i = 0; i < x->n; i++) {
        struct timed_span s = x->spans[i];
        int64_t begin_ns, end_ns;
        bool done = s.span.step <= step;
        if (done) TRY(b->event_done(b, s.end, &done, err));
        if (!done) {
            x->spans[kept++] = s;
            continue;
        }
        TRY(b->event_at(b, s.begin, &begin_ns, err));
        TRY(b->event_at(b, s.end, &end_ns, err));
        s.span.begin_ns = begin_ns - zero_ns;
        s.span.end_ns = end_ns - zero_ns;
        span_list_add(out, s.span);
        free_event(x, s.begin);
        free_event(x, s.end);
    }
    x->n = kept;
    return OK;
}
