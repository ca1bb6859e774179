/* exec/host/backend_host.c - the CPU as a device: kernels_host behind the backend's table.
 *
 * Memory is mapped in whole pages and prefaulted, so that the first operator to touch it is not charged with page
 * faults. A header of one cache line before each allocation holds its size. Operators are complete when run returns;
 * finish does nothing.
 */
#include "exec/backend.h"

#include "core/base/arena.h"
#include "core/base/settings.h"
#include "core/graph/half.h"
#include "exec/clock.h"
#include "exec/host/kernels_host.h"

#include <cblas.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct header {                /* before every allocation */
    _Alignas(64) size_t bytes; /* of the whole mapping */
};

struct host {
    int32_t n_streams, n_events;
    int64_t *event_ns; /* (n_events) instant of the last record */
    size_t events_room;
    struct arena *arena;
    struct host_context context;
};

static struct host_context *context_of(struct backend *b)
{
    return &((struct host *)b->state)->context;
}

static enum status host_open(struct backend *b, int32_t device, struct error *err)
{
    (void)device, (void)err; /* every index is this CPU */
    openblas_set_num_threads(1);
    struct arena *a = arena_new();
    struct host *h = arena_alloc(a, 1, sizeof *h);
    h->arena = a;
    host_context_init(&h->context);
    h->context.blas_clock = settings_on("MUSHER_BLAS_CLOCK");
    b->state = h;
    return OK;
}

static void host_close(struct backend *b)
{
    struct host *h = b->state;
    if (!h) return;
    host_context_free(&h->context);
    arena_free(h->arena);
    b->state = NULL;
}

static enum status host_allocate(struct backend *b, int64_t bytes, void **out, struct error *err)
{
    (void)b;
    if (bytes < 0) BUG("allocate %" PRId64 " bytes", bytes);
    size_t whole = (size_t)bytes + sizeof(struct header);
    void *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                   -1, 0);
    if (p == MAP_FAILED)
        return error_set(err, ERR_RESOURCE, "host memory: no %" PRId64 " bytes: %s", bytes,
                         strerror(errno));
    struct header *h = p;
    h->bytes = whole;
    *out = h + 1;
    return OK;
}

static void host_release(struct backend *b, void *memory)
{
    (void)b;
    if (!memory) return;
    struct header *h = (struct header *)memory - 1;
    if (munmap(h, h->bytes)) BUG("munmap: %s", strerror(errno));
}

/* A copy in both directions; memcpy does not allow NULL even for 0 bytes. */
static enum status host_copy(struct backend *b, void *to, const void *from, int64_t bytes,
                             struct error *err)
{
    (void)b, (void)err;
    if (bytes > 0) memcpy(to, from, (size_t)bytes);
    return OK;
}

static enum status host_copy_on(struct backend *b, int32_t stream, void *to, const void *from,
                                int64_t bytes, struct error *err)
{
    (void)stream;
    return host_copy(b, to, from, bytes, err);
}

/* Between half precision and fp32, the only mixtures in programs. */
static enum status host_cast(struct backend *b, int32_t stream, void *to, enum dtype to_dtype,
                             const void *from, enum dtype from_dtype, int64_t n, struct error *err)
{
    if (to_dtype == from_dtype)
        return host_copy_on(b, stream, to, from, n * dtype_bytes(to_dtype), err);
    if (dtype_is_half(to_dtype) && from_dtype == DTYPE_fp32)
        half_narrow(to_dtype, from, to, n);
    else if (to_dtype == DTYPE_fp32 && dtype_is_half(from_dtype))
        half_widen(from_dtype, from, to, n);
    else
        return error_set(err, ERR_INPUT, "the host cannot cast %s to %s", dtype_name(from_dtype),
                         dtype_name(to_dtype));
    return OK;
}

static enum status host_run(struct backend *b, int32_t stream, const struct op_call *call,
                            struct error *err)
{
    (void)stream;
    return kernels_host_run(context_of(b), call, err);
}

static enum status host_finish(struct backend *b, struct error *err)
{
    (void)b, (void)err;
    return OK;
}

/* --- streams and events: nothing is ever in flight --- */

static enum status host_count(struct backend *b, int32_t *out, struct error *err)
{
    (void)b, (void)err;
    *out = 1;
    return OK;
}

static enum status host_describe(struct backend *b, int32_t device, struct backend_device *out,
                                 struct error *err)
{
    (void)b, (void)device, (void)err;
    *out = (struct backend_device){.memory_bytes =
                                       (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE),
                                   .dtypes = 1u << DTYPE_fp32 | 1u << DTYPE_fp64 |
                                             1u << DTYPE_bf16 | 1u << DTYPE_fp16};
    snprintf(out->name, sizeof out->name, "%s", openblas_get_corename());
    snprintf(out->version, sizeof out->version, "%s", openblas_get_config());
    return OK;
}

static enum status host_stream_make(struct backend *b, int32_t *out, struct error *err)
{
    (void)err;
    *out = ++((struct host *)b->state)->n_streams;
    return OK;
}

static enum status host_event_make(struct backend *b, bool timed, int32_t *out, struct error *err)
{
    struct host *h = b->state;
    (void)timed, (void)err;
    h->event_ns = arena_grow(h->arena, h->event_ns, (size_t)h->n_events, &h->events_room,
                             sizeof *h->event_ns);
    h->event_ns[h->n_events] = 0;
    *out = h->n_events++;
    return OK;
}

static enum status host_event_record(struct backend *b, int32_t event, int32_t stream,
                                     struct error *err)
{
    (void)stream, (void)err;
    ((struct host *)b->state)->event_ns[event] = clock_wall_ns();
    return OK;
}

static enum status host_event_wait(struct backend *b, int32_t stream, int32_t event,
                                   struct error *err)
{
    (void)b, (void)stream, (void)event, (void)err;
    return OK;
}

static enum status host_event_done(struct backend *b, int32_t event, bool *out, struct error *err)
{
    (void)b, (void)event, (void)err;
    *out = true;
    return OK;
}

static enum status host_event_wait_here(struct backend *b, int32_t event, struct error *err)
{
    (void)b, (void)event, (void)err;
    return OK;
}

static enum status host_event_at(struct backend *b, int32_t event, int64_t *out_ns,
                                 struct error *err)
{
    (void)err;
    *out_ns = ((struct host *)b->state)->event_ns[event];
    return OK;
}

/* Two readings of the thread's CPU clock per product would cost small ones several per cent. */
static double host_blas_seconds(struct backend *b)
{
    const struct host_context *x = context_of(b);
    return x->blas_clock ? x->blas_s : -1;
}

void backend_host(struct backend *out)
{
    *out = (struct backend){.abi = BACKEND_ABI,
                            .name = "host",
                            .count = host_count,
                            .describe = host_describe,
                            .open = host_open,
                            .close = host_close,
                            .allocate = host_allocate,
                            .release = host_release,
                            .allocate_pinned = host_allocate,
                            .release_pinned = host_release,
                            .upload = host_copy,
                            .download = host_copy,
                            .stream_make = host_stream_make,
                            .event_make = host_event_make,
                            .run = host_run,
                            .copy = host_copy_on,
                            .cast = host_cast,
                            .event_record = host_event_record,
                            .event_wait = host_event_wait,
                            .event_done = host_event_done,
                            .event_wait_here = host_event_wait_here,
                            .event_at = host_event_at,
                            .finish = host_finish,
                            .blas_seconds = host_blas_seconds};
}
