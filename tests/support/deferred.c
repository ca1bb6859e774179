#include "tests/support/deferred_internal.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/host/kernels_host.h"

#include <cblas.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct deferred_options deferred_options = {
    .mode = DEFERRED_LAZY, .memory_bytes = INT64_C(1) << 40, .name = "Late H200"};

static _Atomic int64_t calls, left;

/* ---- failures ---------------------------------------------------------------------------------
 */

void deferred_reset(void) { atomic_store(&calls, 0); }
int64_t deferred_calls(void) { return atomic_load(&calls); }
int64_t deferred_left(void) { return atomic_load(&left); }

static enum status counted(const struct deferred_options *o, const char *what, struct error *err)
{
    int64_t n = atomic_fetch_add(&calls, 1) + 1;
    if (!o->fail_at || n < o->fail_at || (n > o->fail_at && !o->lost)) return OK;
    return error_set(err, ERR_RESOURCE, "late device: call %" PRId64 " (%s) fails", n, what);
}

static enum status told(struct deferred *d, struct error *err)
{
    pthread_mutex_lock(&d->mutex);
    enum status status = d->failed;
    if (status != OK) error_set(err, status, "%s", d->error.text);
    pthread_mutex_unlock(&d->mutex);
    return status;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static void *map(size_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) BUG("mmap of %zu bytes", bytes);
    return p;
}

static enum status get(struct backend *b, int64_t bytes, bool pinned, void **out, struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, pinned ? "allocate_pinned" : "allocate", err));
    if (bytes <= 0 || d->n_pieces == PIECES_MAX) BUG("%" PRId64 " bytes asked for", bytes);
    struct deferred_piece x = {.bytes = (size_t)bytes};
    x.real = map(x.bytes, PROT_READ | PROT_WRITE);
    x.shown = pinned ? x.real : map(x.bytes, PROT_NONE);
    pthread_mutex_lock(&d->mutex);
    d->pieces[d->n_pieces++] = x;
    pthread_mutex_unlock(&d->mutex);
    *out = x.shown;
    return OK;
}

static enum status late_allocate(struct backend *b, int64_t bytes, void **out, struct error *err)
{
    return get(b, bytes, false, out, err);
}

static enum status late_allocate_pinned(struct backend *b, int64_t bytes, void **out,
                                        struct error *err)
{
    return get(b, bytes, true, out, err);
}

static void unmap(const struct deferred_piece *x)
{
    munmap(x->real, x->bytes);
    if (x->shown != x->real) munmap(x->shown, x->bytes);
}

static void late_release(struct backend *b, void *memory)
{
    struct deferred *d = b->state;
    pthread_mutex_lock(&d->mutex);
    int32_t i = 0;
    while (i < d->n_pieces && d->pieces[i].shown != memory) i++;
    if (i == d->n_pieces) BUG("released what was not allocated");
    unmap(&d->pieces[i]);
    d->pieces[i] = d->pieces[--d->n_pieces];
    pthread_mutex_unlock(&d->mutex);
}

/* The real address of [p, p + bytes); NULL where that is not one piece of this device (or pinned). */
static void *real(struct deferred *d, const void *p, size_t bytes, bool on_device)
{
    const char *at = p;
    void *found = NULL;
    pthread_mutex_lock(&d->mutex);
    for (int32_t i = 0; i < d->n_pieces && !found; i++) {
        const struct deferred_piece *x = &d->pieces[i];
        if (at >= x->shown && at + bytes <= x->shown + x->bytes &&
            (!on_device || x->shown != x->real))
            found = x->real + (at - x->shown);
    }
    pthread_mutex_unlock(&d->mutex);
    return found;
}

static int64_t operand_bytes(const struct op_call *c, const struct shape *s, bool int32)
{
    return shape_elements(s) * dtype_bytes(int32 ? DTYPE_int32 : c->dtype);
}

static enum status late_run(struct backend *b, int32_t stream, const struct op_call *call,
                            struct error *err)
{
    struct deferred *d = b->state;
    struct task t = {.kind = TASK_OP, .call = *call};
    TRY(counted(&d->o, "run", err));
    if (call->optimizer) t.optimizer = *call->optimizer;
    for (int32_t i = 0; i < call->shapes->n_inputs + call->shapes->n_outputs; i++) {
        bool in = i < call->shapes->n_inputs;
        int32_t k = in ? i : i - call->shapes->n_inputs;
        const struct shape *s = in ? &call->shapes->input[k] : &call->shapes->output[k];
        size_t bytes = (size_t)operand_bytes(call, s, in && op_input_is_int32(call->kind, k));
        void *at = bytes ? real(d, in ? call->input[k] : call->output[k], bytes, true) : NULL;
        if (bytes && !at)
            return error_set(err, ERR_INTERNAL, "late device: %s %d of %s is not on it",
                             in ? "input" : "output", (int)k, op_kind_name(call->kind));
        if (in)
            t.call.input[k] = at;
        else
            t.call.output[k] = at;
    }
    if (call->clip) t.call.clip = real(d, call->clip, (size_t)dtype_bytes(call->dtype), true);
    if (call->clip && !t.call.clip) return error_set(err, ERR_INTERNAL, "late device: the factor of %s is not on it", op_kind_name(call->kind));
    deferred_post(d, stream, &t);
    return OK;
}

static enum status late_copy(struct backend *b, int32_t stream, void *to, const void *from,
                             int64_t bytes, struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "copy", err));
    struct task t = {.kind = TASK_COPY, .bytes = (size_t)bytes};
    if (bytes <= 0) return OK;
    t.to = real(d, to, t.bytes, false);
    t.from = real(d, from, t.bytes, false);
    if (!t.to || !t.from)
        return error_set(err, ERR_INTERNAL,
                         "late device: %s of a copy of %" PRId64
                         " bytes is neither its own nor pinned",
                         t.to ? "the source" : "the destination", bytes);
    deferred_post(d, stream, &t);
    return OK;
}

static enum status late_event_record(struct backend *b, int32_t event, int32_t stream,
                                     struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "event_record", err));
    struct deferred_event *e = deferred_event(d, event);
    struct task t = {.kind = TASK_RECORD, .event = event};
    pthread_mutex_lock(&e->mutex);
    t.ticket = ++e->wanted;
    e->stream = stream;
    pthread_mutex_unlock(&e->mutex);
    deferred_post(d, stream, &t);
    return OK;
}

static enum status late_event_wait(struct backend *b, int32_t stream, int32_t event,
                                   struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "event_wait", err));
    struct deferred_event *e = deferred_event(d, event);
    struct task t = {.kind = TASK_WAIT, .event = event};
    pthread_mutex_lock(&e->mutex);
    t.ticket = e->wanted;
    pthread_mutex_unlock(&e->mutex);
    if (t.ticket) deferred_post(d, stream, &t);
    return OK;
}

/* ---- waiting ----------------------------------------------------------------------------------
 */

static enum status look(struct deferred *d, struct deferred_event *e, bool *out, struct error *err)
{
    pthread_mutex_lock(&e->mutex);
    int64_t ticket = e->wanted;
    int32_t stream = e->stream;
    pthread_mutex_unlock(&e->mutex);
    *out = deferred_reached(e, ticket);
    if (!*out && d->o.mode == DEFERRED_LAZY) {
        deferred_one_task(d, deferred_stream(d, stream));
        *out = deferred_reached(e, ticket);
    }
    return told(d, err);
}

static enum status late_event_done(struct backend *b, int32_t event, bool *out, struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "event_done", err));
    return look(d, deferred_event(d, event), out, err);
}

static enum status wait_here(struct deferred *d, int32_t event, struct error *err)
{
    struct deferred_event *e = deferred_event(d, event);
    bool done = false;
    if (d->o.mode == DEFERRED_THREADS) {
        pthread_mutex_lock(&e->mutex);
        int64_t ticket = e->wanted;
        pthread_mutex_unlock(&e->mutex);
        deferred_await(e, ticket);
        return told(d, err);
    }
    while (!done) TRY(look(d, e, &done, err));
    return OK;
}

static enum status late_event_wait_here(struct backend *b, int32_t event, struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "event_wait_here", err));
    return wait_here(d, event, err);
}

static enum status late_event_at(struct backend *b, int32_t event, int64_t *out_ns,
                                 struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "event_at", err));
    struct deferred_event *e = deferred_event(d, event);
    pthread_mutex_lock(&e->mutex);
    bool reached = e->done == e->wanted && e->done > 0;
    *out_ns = e->at_ns;
    pthread_mutex_unlock(&e->mutex);
    return reached ? OK : error_set(err, ERR_INTERNAL, "late device: an event was not reached yet");
}

static enum status late_finish(struct backend *b, struct error *err)
{
    struct deferred *d = b->state;
    enum status status = counted(&d->o, "finish", err);
    for (int32_t i = d->n_streams - 1; i >= 0; i--) deferred_drain(d, d->streams[i]);
    return status == OK ? told(d, err) : status;
}

/* Behind everything asked of the compute stream; apart: the address that is the device's. */
static enum status move_now(struct deferred *d, const char *what, const void *apart, void **at,
                            int64_t bytes, struct error *err)
{
    TRY(counted(&d->o, what, err));
    deferred_drain(d, d->streams[STREAM_COMPUTE]);
    if (bytes > 0 && !(*at = real(d, apart, (size_t)bytes, true)))
        return error_set(err, ERR_INTERNAL, "late device: %s of what is not on it", what);
    return told(d, err);
}

static enum status late_upload(struct backend *b, void *device, const void *host, int64_t bytes,
                               struct error *err)
{
    void *to;
    TRY(move_now(b->state, "upload", device, &to, bytes, err));
    if (bytes > 0) memcpy(to, host, (size_t)bytes);
    return OK;
}

static enum status late_download(struct backend *b, void *host, const void *device, int64_t bytes,
                                 struct error *err)
{
    void *from;
    TRY(move_now(b->state, "download", device, &from, bytes, err));
    if (bytes > 0) memcpy(host, from, (size_t)bytes);
    return OK;
}

/* ---- open, close ------------------------------------------------------------------------------
 */

static enum status late_stream_make(struct backend *b, int32_t *out, struct error *err)
{
    struct deferred *d = b->state;
    TRY(counted(&d->o, "stream_make", err));
    struct stream *s = calloc(1, sizeof *s);
    if (!s || d->n_streams == STREAMS_MAX) abort();
    s->of = d;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->more, NULL);
    host_context_init(&s->context);
    pthread_mutex_lock(&d->mutex);
    *out = d->n_streams;
    d->streams[d->n_streams++] = s;
    pthread_mutex_unlock(&d->mutex);
    if (d->o.mode == DEFERRED_THREADS && pthread_create(&s->thread, NULL, deferred_stream_main, s))
        abort();
    return OK;
}

static enum status late_event_make(struct backend *b, bool timed, int32_t *out, struct error *err)
{
    struct deferred *d = b->state;
    (void)timed;
    TRY(counted(&d->o, "event_make", err));
    struct deferred_event *e = calloc(1, sizeof *e);
    if (!e || d->n_events == EVENTS_MAX) abort();
    pthread_mutex_init(&e->mutex, NULL);
    pthread_cond_init(&e->reached, NULL);
    pthread_mutex_lock(&d->mutex);
    *out = d->n_events;
    d->events[d->n_events++] = e;
    pthread_mutex_unlock(&d->mutex);
    return OK;
}

static enum status late_count(struct backend *b, int32_t *out, struct error *err)
{
    (void)b;
    *out = 16;
    return counted(&deferred_options, "count", err);
}

static enum status late_describe(struct backend *b, int32_t device, struct backend_device *out,
                                 struct error *err)
{
    (void)b, (void)device;
    *out = (struct backend_device){.memory_bytes = deferred_options.memory_bytes,
                                   .dtypes = 1u << DTYPE_fp32 | 1u << DTYPE_fp64,
                                   .capability = 90};
    snprintf(out->name, sizeof out->name, "%s", deferred_options.name);
    return counted(&deferred_options, "describe", err);
}

static enum status late_open(struct backend *b, int32_t device, struct error *err)
{
    int32_t first;
    (void)device;
    TRY(counted(&deferred_options, "open", err));
    openblas_set_num_threads(1);
    struct deferred *d = calloc(1, sizeof *d);
    if (!d) abort();
    d->o = deferred_options;
    d->events = calloc(EVENTS_MAX, sizeof(struct deferred_event *));
    if (!d->events) abort();
    pthread_mutex_init(&d->mutex, NULL);
    b->state = d;
    d->o.fail_at = 0; /* open is one call */
    enum status status = late_stream_make(b, &first, err);
    d->o = deferred_options;
    return status;
}

static void late_close(struct backend *b)
{
    struct deferred *d = b->state;
    for (int32_t i = 0; i < d->n_streams; i++) deferred_drain(d, d->streams[i]);
    for (int32_t i = 0; i < d->n_streams; i++) {
        struct stream *s = d->streams[i];
        pthread_mutex_lock(&s->mutex);
        s->stop = true;
        pthread_cond_broadcast(&s->more);
        pthread_mutex_unlock(&s->mutex);
        if (d->o.mode == DEFERRED_THREADS) pthread_join(s->thread, NULL);
        host_context_free(&s->context);
        pthread_mutex_destroy(&s->mutex);
        pthread_cond_destroy(&s->more);
        free(s);
    }
    for (int32_t i = 0; i < d->n_events; i++) {
        pthread_mutex_destroy(&d->events[i]->mutex);
        pthread_cond_destroy(&d->events[i]->reached);
        free(d->events[i]);
    }
    atomic_fetch_add(&left, d->n_pieces);
    for (int32_t i = 0; i < d->n_pieces; i++) unmap(&d->pieces[i]);
    pthread_mutex_destroy(&d->mutex);
    free(d->events);
    free(d);
    b->state = NULL;
}

void deferred_backend(struct backend *out)
{
    *out = (struct backend){.abi = BACKEND_ABI,
                            .name = "late",
                            .discrete_memory = true,
                            .count = late_count,
                            .describe = late_describe,
                            .open = late_open,
                            .close = late_close,
                            .allocate = late_allocate,
                            .release = late_release,
                            .allocate_pinned = late_allocate_pinned,
                            .release_pinned = late_release,
                            .upload = late_upload,
                            .download = late_download,
                            .stream_make = late_stream_make,
                            .event_make = late_event_make,
                            .run = late_run,
                            .copy = late_copy,
                            .event_record = late_event_record,
                            .event_wait = late_event_wait,
                            .event_done = late_event_done,
                            .event_wait_here = late_event_wait_here,
                            .event_at = late_event_at,
                            .finish = late_finish};
}

enum status deferred_backends(const char *kind, struct backend *out, struct error *err)
{
    if (!strcmp(kind, "cuda"))
        deferred_backend(out);
    else if (!strcmp(kind, "host"))
        backend_host(out);
    else
        return error_set(err, ERR_INPUT, "no device is of kind '%s'", kind);
    return OK;
}
