/* exec/cuda/device.c - an open device: memory, operators, errors.
 *
 * Lifetime: open creates the device (an arena, the faults, the timeline, stream 0) or leaves nothing behind; close
 * frees streams, events and workspaces. The process keeps CUDA's primary context, which NCCL shares. Memory belongs
 * to its allocator. A lost device fails every later call; the first error names the call and the last operator issued
 * to each stream, because one of them caused it. MUSHER_CUDA_WAIT=1 waits after every operator, so that the error
 * names it exactly.
 */
#include "exec/cuda/device.h"

#include "core/base/arena.h"
#include "core/base/settings.h"
#include "exec/clock.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/nccl.h"
#include "exec/cuda/operands.h"
#include "exec/cuda/ops.h"
#include "exec/cuda/watchdog_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REST_LOOK_NS 200000    /* between two polls for running work */
#define LAST_LOOK_NS 100000000 /* and for the last poll to return */
#ifndef CUDA_OLDEST
#define CUDA_OLDEST 75
#endif

static _Thread_local int32_t entered = -1; /* device that is current on this thread */

static struct cuda_device *device_of(struct backend *b) { return b->state; }

/* ---- failures ---------------------------------------------------------------------------------
 */

enum status cuda_failed(cudaError_t e, const char *what, struct error *err)
{
    if (e == cudaSuccess) return OK;
    (void)cudaGetLastError(); /* otherwise the next launch would report it */
    return error_set(err, ERR_RESOURCE, "%s: %s (%d)", what, cudaGetErrorString(e), (int)e);
}

/* "; last issued: matmul (stream 0), add (stream 3)" */
static void posted_last(const struct cuda_device *d, char *out, size_t n)
{
    size_t at = 0;
    out[0] = 0;
    for (int32_t i = 0; i < d->n_contexts; i++) {
        int32_t kind = d->contexts[i]->issued;
        if (kind < 0 || at + 64 > n) continue;
        int more = snprintf(out + at, n - at, "%s%s (stream %" PRId32 ")",
                            at ? ", " : "; last issued: ", op_kind_name((enum op_kind)kind), i);
        at += (size_t)more;
    }
}

enum status cuda_device_failed(struct cuda_device *d, cudaError_t e, const char *call,
                               struct error *err)
{
    char issued[200];
    if (e == cudaSuccess) return OK;
    (void)cudaGetLastError();
    posted_last(d, issued, sizeof issued);
    return error_set(err, ERR_RESOURCE, "%s: %s: %s (%d)%s", d->name, call, cudaGetErrorString(e),
                     (int)e, issued);
}

enum status cuda_enter(struct backend *b, struct error *err)
{
    struct cuda_device *d = device_of(b);
    if (entered == d->index) return OK;
    TRY(cuda_device_failed(d, cudaSetDevice(d->index), "cudaSetDevice", err));
    entered = d->index;
    return OK;
}

void cuda_abandon(struct backend *b) { device_of(b)->abandoned = device_of(b)->unfinished = true; }

bool cuda_is_abandoned(struct backend *b) { return device_of(b)->abandoned; }

static bool device_unfinished(struct backend *b) { return device_of(b)->unfinished; }

struct rest { /* state of the polling thread, owned by it */
    int32_t n;
    cudaStream_t stream[STREAMS_MAX];
    int64_t until_ns;
    bool rests;
};

static bool is_at_rest(const struct rest *r)
{
    for (int32_t i = 0; i < r->n; i++)
        if (cudaStreamQuery(r->stream[i]) != cudaSuccess) {
            (void)cudaGetLastError(); /* "not ready" is recorded as an error */
            return false;
        }
    return true;
}

static void await_rest(void *owner)
{
    struct rest *r = owner;
    while (!(r->rests = is_at_rest(r)) && clock_wall_ns() < r->until_ns)
        clock_sleep_until(clock_wall_ns() + REST_LOOK_NS);
}

/* A poll may block on a lock of the library, so another thread polls. */
void cuda_await_rest(struct backend *b, int64_t until_ns)
{
    struct cuda_device *d = device_of(b);
    struct arena *a = arena_new();
    struct rest *r = ARENA_ARRAY(a, struct rest, 1);
    d->unfinished = true;
    r->until_ns = until_ns;
    for (; r->n < d->n_contexts; r->n++) r->stream[r->n] = d->contexts[r->n]->stream;
    int64_t left_ns = until_ns - clock_wall_ns();
    bool ended = watchdog_call(await_rest, r, (left_ns > 0 ? left_ns : 0) + LAST_LOOK_NS);
    if (!ended || !r->rests) cuda_abandon(b);
    if (ended) arena_free(a); /* else the thread keeps its state */
}

/* Whether resources can be freed. */
static bool may_take_back(struct backend *b)
{
    return !device_of(b)->abandoned && cuda_enter(b, NULL) == OK;
}

/* ---- open and close ---------------------------------------------------------------------------
 */

static enum status check_capability(const struct cuda_device *d, struct error *err)
{
    if (d->capability >= CUDA_OLDEST) return OK;
    return error_set(err, ERR_NO_DEVICE,
                     "%s (sm_%" PRId32 ") is older than the kernels of this plugin (sm_%d and "
                     "newer): build it with a CUDA 12 toolkit and CUDA_ARCHS=\"%" PRId32 " …\"",
                     d->name, d->capability, CUDA_OLDEST, d->capability);
}

static enum status learn(struct backend *b, int32_t device, struct error *err)
{
    struct cuda_device *d = b->state;
    struct backend_device about;
    int n = 0;
    TRY(cuda_describe(b, device, &about, err));
    d->index = device;
    d->capability = about.capability;
    d->dtypes = about.dtypes;
    snprintf(d->name, sizeof d->name, "%.70s (device %" PRId32 ")", about.name, device);
    TRY(check_capability(d, err));
    TRY(cuda_device_failed(d, cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device),
                           "cudaDeviceGetAttribute", err));
    d->multiprocessors = n;
    TRY(cuda_device_failed(d, cudaDeviceGetAttribute(&n, cudaDevAttrMaxPitch, device),
                           "cudaDeviceGetAttribute", err));
    d->pitch_max = n;
    return OK;
}

/* Creates the requested subset of multiprocessors; the context exists. */
static enum status local_slice(struct backend *b, struct error *err)
{
    struct cuda_device *d = b->state;
    TRY(cuda_green_context_make(d->arena, d->index, b->multiprocessors, &d->green, err));
    if (!d->green) return OK;
    size_t at = strlen(d->name) - 1; /* before the bracket */
    snprintf(d->name + at, sizeof d->name - at, ", %" PRId32 " of %" PRId32 " multiprocessors)",
             b->multiprocessors, d->multiprocessors);
    d->multiprocessors = b->multiprocessors;
    return OK;
}

static enum status set_up(struct backend *b, int32_t device, struct error *err)
{
    struct cuda_device *d = b->state;
    void *faults = NULL;
    int least = 0, most = 0;
    int32_t first = 0;
    size_t bytes = STREAMS_MAX * sizeof *d->faults;
    TRY(learn(b, device, err));
    entered = -1;
    TRY(cuda_enter(b, err));
    TRY(local_slice(b, err));
    TRY(cuda_device_failed(d, cudaHostAlloc(&faults, bytes, cudaHostAllocPortable), "cudaHostAlloc",
                           err));
    d->faults = memset(faults, 0, bytes);
    TRY(cuda_device_failed(d, cudaDeviceGetStreamPriorityRange(&least, &most),
                           "cudaDeviceGetStreamPriorityRange", err));
    d->priority = most;
    TRY(cuda_device_failed(d, timeline_open(&d->timeline, most), "the clock of events", err));
    TRY(b->stream_make(b, &first, err));
    b->comm = cuda_device_comm(NULL); /* a single device needs none */
    return OK;
}

static void take_back(struct cuda_device *d)
{
    for (int32_t i = 0; i < d->n_contexts; i++) cuda_context_close(d->contexts[i]);
    for (int32_t i = 0; i < d->n_events; i++)
        (void)cudaEventDestroy(d->events[i / EVENT_BLOCK][i % EVENT_BLOCK].event);
    timeline_close(&d->timeline);
    if (d->faults) (void)cudaFreeHost(d->faults);
    cuda_green_context_close(d->green);
}

/* Resources of a lost or abandoned device cannot be freed. */
static void device_close(struct backend *b)
{
    struct cuda_device *d = b->state;
    if (!d) return;
    if (may_take_back(b)) take_back(d);
    arena_free(d->arena);
    b->state = NULL;
}

static enum status device_open(struct backend *b, int32_t device, struct error *err)
{
    struct arena *a = arena_new();
    struct cuda_device *d = arena_alloc(a, 1, sizeof *d);
    d->arena = a;
    d->wait_each = settings_on("MUSHER_CUDA_WAIT");
    b->state = d;
    enum status st = set_up(b, device, err);
    if (st != OK) device_close(b);
    return st;
}

/* ---- memory -----------------------------------------------------------------------------------
 */

/* Adds the free memory to an allocation error. */
static enum status no_memory(struct cuda_device *d, cudaError_t e, const char *call, int64_t bytes,
                             struct error *err)
{
    size_t left = 0, all = 0;
    if (e != cudaErrorMemoryAllocation) return cuda_device_failed(d, e, call, err);
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&left, &all);
    return error_set(err, ERR_RESOURCE, "%s: no %" PRId64 " bytes by %s: %zu of its %zu are free",
                     d->name, bytes, call, left, all);
}

static enum status device_allocate(struct backend *b, int64_t bytes, void **out, struct error *err)
{
    struct cuda_device *d = device_of(b);
    void *p = NULL;
    if (bytes < 0) BUG("allocate %" PRId64 " bytes", bytes);
    size_t n = bytes ? (size_t)bytes : 1;
    TRY(cuda_enter(b, err));
    TRY(no_memory(d, cudaMalloc(&p, n), "cudaMalloc", bytes, err));
    cudaStream_t s = d->contexts[STREAM_COMPUTE]->stream;
    cudaError_t e = cudaMemsetAsync(p, 0, n, s);
    if (e == cudaSuccess) e = cudaStreamSynchronize(s);
    enum status st = cuda_device_failed(d, e, "cudaMemsetAsync", err);
    if (st != OK)
        (void)cudaFree(p);
    else
        *out = p;
    return st;
}

static void device_release(struct backend *b, void *memory)
{
    if (memory && may_take_back(b)) (void)cudaFree(memory);
}

static enum status device_allocate_pinned(struct backend *b, int64_t bytes, void **out,
                                          struct error *err)
{
    struct cuda_device *d = device_of(b);
    void *p = NULL;
    if (bytes < 0) BUG("allocate %" PRId64 " bytes", bytes);
    size_t n = bytes ? (size_t)bytes : 1;
    TRY(cuda_enter(b, err));
    TRY(no_memory(d, cudaHostAlloc(&p, n, cudaHostAllocPortable), "cudaHostAlloc", bytes, err));
    *out = memset(p, 0, n);
    return OK;
}

static void device_release_pinned(struct backend *b, void *memory)
{
    if (memory && may_take_back(b)) (void)cudaFreeHost(memory);
}

static enum status device_free_bytes(struct backend *b, int64_t *out, struct error *err)
{
    struct cuda_device *d = device_of(b);
    size_t left = 0, all = 0;
    TRY(cuda_enter(b, err));
    TRY(cuda_device_failed(d, cudaMemGetInfo(&left, &all), "cudaMemGetInfo", err));
    *out = (int64_t)left;
    return OK;
}

/* A synchronous copy after all work of stream 0. An offloaded state is page-locked host memory, so the direction is left to the runtime. */
static enum status copy_now(struct backend *b, void *to, const void *from, int64_t bytes, struct error *err)
{
    struct cuda_device *d = device_of(b);
    cudaStream_t s = d->contexts[STREAM_COMPUTE]->stream;
    TRY(cuda_enter(b, err));
    if (bytes > 0)
        TRY(cuda_device_failed(d, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, s),
                               "cudaMemcpyAsync", err));
    TRY(cuda_device_failed(d, cudaStreamSynchronize(s), "cudaStreamSynchronize", err));
    return cuda_faults(d, err);
}

static enum status device_upload(struct backend *b, void *device, const void *host, int64_t bytes,
                                 struct error *err)
{
    return copy_now(b, device, host, bytes, err);
}

static enum status device_download(struct backend *b, void *host, const void *device, int64_t bytes,
                                   struct error *err)
{
    return copy_now(b, host, device, bytes, err);
}

/* ---- operators and copies on streams ----------------------------------------------------------
 */

static enum status check_dtype(const struct cuda_device *d, enum dtype t, struct error *err)
{
    char has[64] = "";
    if (d->dtypes >> t & 1) return OK;
    for (int i = 0, at = 0; i < DTYPE_COUNT; i++)
        if (d->dtypes >> i & 1)
            at += snprintf(has + at, sizeof has - (size_t)at, "%s%s", at ? ", " : "",
                           dtype_name((enum dtype)i));
    return error_set(err, ERR_INPUT, "%s (sm_%" PRId32 ") does not compute in %s; it does in %s",
                     d->name, d->capability, dtype_name(t), has);
}

static enum status device_run(struct backend *b, int32_t stream, const struct op_call *call,
                              struct error *err)
{
    struct cuda_device *d = device_of(b);
    struct cuda_context *x = cuda_context_of(b, stream);
    const char *name = op_kind_name(call->kind);
    cuda_op *op = cuda_ops[call->kind];
    TRY(check_dtype(d, call->dtype, err));
    if (!op) return error_set(err, ERR_INPUT, "%s: %s", name, cuda_ops_why_not[call->kind]);
    TRY(cuda_enter(b, err));
    x->issued = (int32_t)call->kind;
    enum status st = op(x, call, err);
    if (st != OK) return error_wrap(err, st, "%s on %s", name, d->name);
    if (!d->wait_each) return OK;
    return cuda_device_failed(d, cudaStreamSynchronize(x->stream), name, err);
}

static enum status device_copy(struct backend *b, int32_t stream, void *to, const void *from,
                               int64_t bytes, struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, stream);
    TRY(cuda_enter(b, err));
    if (bytes <= 0) return OK;
    return cuda_device_failed(
        x->device, cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault, x->stream),
        "cudaMemcpyAsync", err);
}

/* For rows of 2 GiB or more, for example logits of long sequences. */
static enum status copy_each_row(struct backend *b, int32_t stream, char *to, int64_t to_stride,
                                 const char *from, int64_t from_stride, int64_t row_bytes,
                                 int64_t rows, struct error *err)
{
    for (int64_t i = 0; i < rows; i++)
        TRY(device_copy(b, stream, to + i * to_stride, from + i * from_stride, row_bytes, err));
    return OK;
}

static enum status device_copy_rows(struct backend *b, int32_t stream, void *to, int64_t to_stride,
                                    const void *from, int64_t from_stride, int64_t row_bytes,
                                    int64_t rows, struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, stream);
    if (row_bytes <= 0 || rows <= 0) return OK;
    if (to_stride > x->device->pitch_max || from_stride > x->device->pitch_max)
        return copy_each_row(b, stream, to, to_stride, from, from_stride, row_bytes, rows, err);
    TRY(cuda_enter(b, err));
    return cuda_device_failed(x->device,
                              cudaMemcpy2DAsync(to, (size_t)to_stride, from, (size_t)from_stride,
                                                (size_t)row_bytes, (size_t)rows,
                                                cudaMemcpyDeviceToDevice, x->stream),
                              "cudaMemcpy2DAsync", err);
}

static enum status device_cast(struct backend *b, int32_t stream, void *to, enum dtype to_dtype,
                               const void *from, enum dtype from_dtype, int64_t n,
                               struct error *err)
{
    struct cuda_context *x = cuda_context_of(b, stream);
    if (to_dtype == DTYPE_int32 || from_dtype == DTYPE_int32)
        return error_set(err, ERR_INPUT, "int32 cannot be cast");
    TRY(cuda_enter(b, err));
    return cuda_device_failed(x->device,
                              cuda_cast(cuda_dtype_of(from_dtype), from, cuda_dtype_of(to_dtype),
                                        to, false, n, x->stream),
                              "cast", err);
}

static enum status device_finish(struct backend *b, struct error *err)
{
    struct cuda_device *d = device_of(b);
    if (d->abandoned)
        return error_set(err, ERR_RESOURCE, "%s: running work does not end", d->name);
    TRY(cuda_enter(b, err));
    for (int32_t i = 0; i < d->n_contexts; i++)
        TRY(cuda_device_failed(d, cudaStreamSynchronize(d->contexts[i]->stream),
                               "cudaStreamSynchronize", err));
    return cuda_faults(d, err);
}

void cuda_device_table(struct backend *out)
{
    out->open = device_open;
    out->close = device_close;
    out->allocate = device_allocate;
    out->release = device_release;
    out->allocate_pinned = device_allocate_pinned;
    out->release_pinned = device_release_pinned;
    out->upload = device_upload;
    out->download = device_download;
    out->run = device_run;
    out->copy = device_copy;
    out->copy_rows = device_copy_rows;
    out->cast = device_cast;
    out->finish = device_finish;
    out->free_bytes = device_free_bytes;
    out->unfinished = device_unfinished;
}
