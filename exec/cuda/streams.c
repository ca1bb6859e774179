/* exec/cuda/streams.c - streams with their scratch and faults, and events between them.
 *
 * Streams do not synchronise with the legacy default stream. The first stream computes at the lowest priority; the
 * others carry messages, which are short and latency-critical, at the highest. Scratch is allocated in stream order
 * (cudaMallocAsync), so growth waits for nothing. A plain cudaMalloc may wait for the whole device, whose running
 * message may depend on a peer that waits for this rank.
 */
#include "exec/cuda/blas.h"
#include "exec/cuda/device.h"
#include "exec/cuda/kernels_check.h"

#include "core/base/arena.h"

#include <inttypes.h>

struct cuda_context *cuda_context_of(struct backend *b, int32_t stream)
{
    struct cuda_device *d = b->state;
    if (stream < 0 || stream >= d->n_contexts) BUG("stream %" PRId32 " does not exist", stream);
    return d->contexts[stream];
}

static enum status stream_make(struct backend *b, int32_t *out, struct error *err)
{
    struct cuda_device *d = b->state;
    int32_t n = d->n_contexts;
    if (n == STREAMS_MAX)
        return error_set(err, ERR_RESOURCE, "%s: more than %d streams", d->name, STREAMS_MAX);
    TRY(cuda_enter(b, err));
    struct cuda_context *x = arena_alloc(d->arena, 1, sizeof *x);
    *x = (struct cuda_context){.multiprocessors = d->multiprocessors,
                               .capability = d->capability,
                               .fault = &d->faults[n],
                               .device = d,
                               .index = n,
                               .issued = -1};
    int priority = n == STREAM_COMPUTE ? 0 : d->priority;
    if (d->green)
        TRY(cuda_green_context_stream(d->green, priority, &x->stream, err));
    else
        TRY(cuda_device_failed(
            d, cudaStreamCreateWithPriority(&x->stream, cudaStreamNonBlocking, priority),
            "cudaStreamCreateWithPriority", err));
    d->contexts[n] = x;
    d->n_contexts = n + 1;
    *out = n;
    return OK;
}

void cuda_context_close(struct cuda_context *x)
{
    (void)cudaStreamSynchronize(x->stream);
    cuda_product_close(x);
    if (x->scratch)
        (void)(x->prepared ? cudaFree(x->scratch) : cudaFreeAsync(x->scratch, x->stream));
    (void)cudaStreamSynchronize(x->stream);
    (void)cudaStreamDestroy(x->stream);
}

enum status cuda_scratch(struct cuda_context *x, size_t bytes, void **out, struct error *err)
{
    struct cuda_device *d = x->device;
    if (x->prepared && bytes > x->scratch_bytes)
        return error_set(err, ERR_RESOURCE,
                         "%zu bytes of scratch, but the program planned %zu",
                         bytes, x->scratch_bytes);
    if (!x->prepared && (bytes > x->scratch_bytes || !x->scratch)) {
        void *p = NULL;
        if (x->scratch)
            TRY(cuda_device_failed(d, cudaFreeAsync(x->scratch, x->stream), "cudaFreeAsync", err));
        x->scratch = NULL;
        x->scratch_bytes = 0;
        size_t n = bytes + bytes / 4 + 256; /* slack for slightly larger calls */
        TRY(cuda_device_failed(d, cudaMallocAsync(&p, n, x->stream), "cudaMallocAsync", err));
        x->scratch = p;
        x->scratch_bytes = n;
    }
    *out = x->scratch;
    return OK;
}

/* By cudaMalloc: nothing is in flight yet, and a pool would reserve more than it returns. */
static enum status prepare(struct backend *b, int64_t scratch_bytes, int64_t workspace_bytes,
                           struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, STREAM_COMPUTE);
    void *p = NULL;
    TRY(cuda_enter(b, err));
    if (x->prepared || x->scratch || x->workspace) BUG("stream 0 must be prepared once, before anything else");
    if (scratch_bytes > 0)
        TRY(cuda_device_failed(x->device, cudaMalloc(&p, (size_t)scratch_bytes), "cudaMalloc", err));
    x->prepared = true;
    x->scratch = p;
    x->scratch_bytes = (size_t)scratch_bytes;
    return workspace_bytes > 0 ? cuda_product_prepare(x, err) : OK;
}

enum status cuda_check_ids(struct cuda_context *x, enum op_kind kind, const int32_t *ids, int64_t n,
                           int64_t vocabulary, bool minus_one, struct error *err)
{
    return cuda_failed(
        cuda_launch_check_ids(x->stream, ids, n, vocabulary, minus_one, (int32_t)kind, x->fault),
        "check of ids", err);
}

enum status cuda_faults(struct cuda_device *d, struct error *err)
{
    for (int32_t i = 0; i < d->n_contexts; i++) {
        const struct cuda_fault *f = d->contexts[i]->fault;
        if (f->set)
            return error_set(err, ERR_INPUT,
                             "%s: id %" PRId32 " at %" PRId64
                             " is outside the vocabulary of %" PRId64,
                             op_kind_name((enum op_kind)f->kind), f->id, f->index, f->vocabulary);
    }
    return OK;
}

/* ---- events -----------------------------------------------------------------------------------
 */

static struct cuda_event *event_of(struct cuda_device *d, int32_t event)
{
    if (event < 0 || event >= d->n_events) BUG("event %" PRId32 " does not exist", event);
    return &d->events[event / EVENT_BLOCK][event % EVENT_BLOCK];
}

static enum status event_make(struct backend *b, bool timed, int32_t *out, struct error *err)
{
    struct cuda_device *d = b->state;
    int32_t n = d->n_events, block = n / EVENT_BLOCK;
    if (block == EVENT_BLOCKS)
        return error_set(err, ERR_RESOURCE, "%s: more than %d events", d->name,
                         EVENT_BLOCK * EVENT_BLOCKS);
    TRY(cuda_enter(b, err));
    if (!d->events[block]) d->events[block] = ARENA_ARRAY(d->arena, struct cuda_event, EVENT_BLOCK);
    struct cuda_event *e = &d->events[block][n % EVENT_BLOCK];
    TRY(cuda_device_failed(
        d, cudaEventCreateWithFlags(&e->event, timed ? cudaEventDefault : cudaEventDisableTiming),
        "cudaEventCreate", err));
    e->timed = timed;
    d->n_events = n + 1;
    *out = n;
    return OK;
}

static enum status event_record(struct backend *b, int32_t event, int32_t stream, struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, stream);
    struct cuda_event *e = event_of(x->device, event);
    TRY(cuda_enter(b, err));
    return cuda_device_failed(x->device, cudaEventRecord(e->event, x->stream), "cudaEventRecord",
                              err);
}

static enum status event_wait(struct backend *b, int32_t stream, int32_t event, struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, stream);
    struct cuda_event *e = event_of(x->device, event);
    TRY(cuda_enter(b, err));
    return cuda_device_failed(x->device, cudaStreamWaitEvent(x->stream, e->event, 0),
                              "cudaStreamWaitEvent", err);
}

static enum status event_done(struct backend *b, int32_t event, bool *out, struct error *err)
{
    struct cuda_device *d = b->state;
    TRY(cuda_enter(b, err));
    cudaError_t e = cudaEventQuery(event_of(d, event)->event);
    *out = e == cudaSuccess;
    if (e == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* "not ready" is recorded as an error */
        return OK;
    }
    TRY(cuda_device_failed(d, e, "cudaEventQuery", err));
    return cuda_faults(d, err);
}

static enum status event_wait_here(struct backend *b, int32_t event, struct error *err)
{
    struct cuda_device *d = b->state;
    TRY(cuda_enter(b, err));
    TRY(cuda_device_failed(d, cudaEventSynchronize(event_of(d, event)->event),
                           "cudaEventSynchronize", err));
    return cuda_faults(d, err);
}

static enum status event_at(struct backend *b, int32_t event, int64_t *out_ns, struct error *err)
{
    struct cuda_device *d = b->state;
    struct cuda_event *e = event_of(d, event);
    if (!e->timed) BUG("event %" PRId32 " is not timed", event);
    TRY(cuda_enter(b, err));
    return cuda_device_failed(d, timeline_at(&d->timeline, e->event, out_ns),
                              "cudaEventElapsedTime", err);
}

void cuda_streams_table(struct backend *out)
{
    out->stream_make = stream_make;
    out->prepare = prepare;
    out->event_make = event_make;
    out->event_record = event_record;
    out->event_wait = event_wait;
    out->event_done = event_done;
    out->event_wait_here = event_wait_here;
    out->event_at = event_at;
}
