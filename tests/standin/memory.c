/* tests/standin/memory.c - device and pinned memory, and copies.
 *
 * Both are the host's own, each allocation exactly as long as asked for, so that the address sanitizer sees a kernel that
 * leaves it; device memory begins as NaNs. Every copy is checked against the table of allocations: a pointer that is not
 * where the kind of copy says, or that leaves its allocation, is cudaErrorInvalidValue, where a GPU would go on or fail
 * much later.
 * As on the GPU: copies from or to pageable memory have happened when the call returns; cudaFree waits for the device. So do
 * cudaMalloc and cudaHostAlloc here, which may there; what a pool gave may go back on a stream, and nothing else.
 */
#include "tests/standin/standin.h"

#include "tests/standin/activity.h"
#include "tests/standin/internal.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 256 };

struct allocation {
    unsigned char *at;
    size_t bytes;
    int64_t taken; /* of a device: bytes in whole granules */
    enum place place;
    int device;
    bool registered; /* the caller's own memory */
    bool pooled;     /* of cudaMallocAsync */
};

static struct allocation *table; /* by address; under the books */
static size_t n_table, room;
static int64_t used[STANDIN_DEVICES_MAX], peak[STANDIN_DEVICES_MAX];

/* --- the table --- */

/* The first that begins past p. */
static size_t past(const void *p)
{
    size_t low = 0, high = n_table;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uintptr_t)table[middle].at <= (uintptr_t)p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(struct allocation a)
{
    if (n_table == room) {
        room = room ? 2 * room : 64;
        table = realloc(table, room * sizeof *table);
        if (!table) abort();
    }
    size_t at = past(a.at);
    memmove(&table[at + 1], &table[at], (n_table - at) * sizeof *table);
    table[at] = a;
    n_table++;
}

/* Takes out the allocation that begins at p and is of that place, and, if wanted, of a pool. */
static bool take_out(void *p, enum place place, bool registered, bool pooled,
                     struct allocation *out)
{
    books_open();
    size_t at = past(p);
    bool found = at && table[at - 1].at == p && table[at - 1].place == place &&
                 table[at - 1].registered == registered && (!pooled || table[at - 1].pooled);
    if (found) {
        *out = table[--at];
        n_table--;
        memmove(&table[at], &table[at + 1], (n_table - at) * sizeof *table);
        if (place == PLACE_DEVICE) used[out->device] -= out->taken;
    }
    books_close();
    return found;
}

cudaError_t memory_find(const void *p, size_t bytes, enum place *out, int *out_device)
{
    cudaError_t e = cudaSuccess;
    *out = PLACE_PAGEABLE;
    *out_device = -1;
    books_open();
    size_t at = past(p);
    const struct allocation *a = at ? &table[at - 1] : NULL;
    size_t into = a ? (size_t)((const unsigned char *)p - a->at) : 0;
    if (a && into < a->bytes) {
        *out = a->place;
        *out_device = a->device;
        if (bytes > a->bytes - into) e = cudaErrorInvalidValue;
    } else if (at < n_table && (const unsigned char *)p + bytes > table[at].at)
        e = cudaErrorInvalidValue; /* runs into one from below */
    books_close();
    return e;
}

/* --- allocating --- */

static cudaError_t allocate(void **out, size_t bytes, enum place place, bool pooled)
{
    int device = standin_device();
    void *p = NULL;
    int64_t granule = standin_granule(),
            taken = place == PLACE_DEVICE ? ((int64_t)bytes + granule - 1) / granule * granule : 0;
    *out = NULL;
    if (!bytes) return cudaSuccess;
    if (!pooled) streams_wait(device);
    books_open();
    bool fits = taken <= standin_device_memory(device) - used[device];
    if (fits) used[device] += taken;
    if (used[device] > peak[device]) peak[device] = used[device];
    books_close();
    if (!fits) return cudaErrorMemoryAllocation;
    if (posix_memalign(&p, ALIGNMENT, bytes)) abort();
    memset(p, 0xff, bytes);
    books_open();
    insert((struct allocation){p, bytes, taken, place, device, false, pooled});
    books_close();
    standin_keep(place == PLACE_DEVICE ? KEPT_DEVICE_MEMORY : KEPT_PINNED_MEMORY, 1);
    *out = p;
    return cudaSuccess;
}

int64_t standin_peak(int device)
{
    books_open();
    int64_t bytes = peak[device];
    books_close();
    return bytes;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    ENTER();
    return standin_leave(allocate(out, bytes, PLACE_DEVICE, false));
}

cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream)
{
    ENTER();
    cudaStream_t s;
    cudaError_t e = stream_find(stream, true, &s);
    return standin_leave(e != cudaSuccess ? e : allocate(out, bytes, PLACE_DEVICE, true));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    ENTER();
    if (flags > 7) return standin_leave(cudaErrorInvalidValue);
    return standin_leave(allocate(out, bytes, PLACE_PINNED, false));
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, cudaHostAllocDefault);
}

/* What fails is given back nevertheless (runtime.c). */
static cudaError_t give_back(void *p, enum place place, const char *call)
{
    cudaError_t e = standin_enter(call);
    struct allocation a;
    if (!p) return standin_leave(e);
    if (!take_out(p, place, false, false, &a)) return standin_leave(e ? e : cudaErrorInvalidValue);
    streams_wait(a.device);
    free(a.at);
    standin_keep(place == PLACE_DEVICE ? KEPT_DEVICE_MEMORY : KEPT_PINNED_MEMORY, -1);
    return standin_leave(e ? e : standin_lost(a.device));
}

cudaError_t cudaFree(void *p) { return give_back(p, PLACE_DEVICE, __func__); }
cudaError_t cudaFreeHost(void *p) { return give_back(p, PLACE_PINNED, __func__); }

struct free_work {
    struct work w;
    void *p;
};

static void drop_free(struct work *w) { free(((struct free_work *)w)->p); }

cudaError_t cudaFreeAsync(void *p, cudaStream_t stream)
{
    cudaError_t e = standin_enter(__func__);
    cudaStream_t s;
    struct allocation a;
    if (!p) return standin_leave(e);
    cudaError_t found = stream_find(stream, false, &s);
    if (found != cudaSuccess) return standin_leave(e ? e : found);
    if (!take_out(p, PLACE_DEVICE, false, true, &a)) return standin_leave(e ? e : cudaErrorInvalidValue);
    struct free_work *w = work_new(sizeof *w, NULL);
    w->w.drop = drop_free;
    w->p = a.at;
    stream_push(s, &w->w);
    standin_keep(KEPT_DEVICE_MEMORY, -1);
    return standin_leave(e);
}

cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags)
{
    ENTER();
    enum place place;
    int device;
    if (!p || !bytes || flags > 15) return standin_leave(cudaErrorInvalidValue);
    if (memory_find(p, bytes, &place, &device) != cudaSuccess || place != PLACE_PAGEABLE)
        return standin_leave(cudaErrorHostMemoryAlreadyRegistered);
    books_open();
    insert((struct allocation){p, bytes, 0, PLACE_PINNED, standin_device(), true, false});
    books_close();
    standin_keep(KEPT_PINNED_MEMORY, 1);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    cudaError_t e = standin_enter(__func__);
    struct allocation a;
    if (!take_out(p, PLACE_PINNED, true, false, &a))
        return standin_leave(e ? e : cudaErrorHostMemoryNotRegistered);
    standin_keep(KEPT_PINNED_MEMORY, -1);
    return standin_leave(e);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *host, unsigned flags)
{
    ENTER();
    enum place place;
    int device;
    if (flags || memory_find(host, 1, &place, &device) != cudaSuccess || place != PLACE_PINNED)
        return standin_leave(cudaErrorInvalidValue);
    *out = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p)
{
    ENTER();
    enum place place;
    int device;
    (void)memory_find(p, 0, &place, &device);
    *out = (struct cudaPointerAttributes){.device = device};
    union {
        const void *in;
        void *out;
    } u = {p};
    switch (place) {
    case PLACE_PAGEABLE:
        out->type = cudaMemoryTypeUnregistered;
        break;
    case PLACE_PINNED:
        out->type = cudaMemoryTypeHost;
        break;
    case PLACE_DEVICE:
        out->type = cudaMemoryTypeDevice;
        break;
    }
    out->hostPointer = place == PLACE_DEVICE ? NULL : u.out;
    out->devicePointer = place == PLACE_PAGEABLE ? NULL : u.out;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    ENTER();
    int device = standin_device();
    books_open();
    *out_total = (size_t)standin_device_memory(device);
    *out_free = *out_total - (size_t)used[device];
    books_close();
    return cudaSuccess;
}

/* --- copies --- */

struct copy_work { /* rows of width bytes; from NULL: of `value` */
    struct work w;
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
    int value;
};

static void run_copy(struct work *w)
{
    const struct copy_work *c = (struct copy_work *)w;
    for (size_t i = 0; i < c->height; i++)
        if (c->from)
            memcpy(c->to + i * c->to_pitch, c->from + i * c->from_pitch, c->width);
        else
            memset(c->to + i * c->to_pitch, c->value, c->width);
}

static size_t span(size_t pitch, const struct copy_work *c)
{
    return c->height ? (c->height - 1) * pitch + c->width : 0;
}

static bool allowed(enum cudaMemcpyKind kind, enum place to, enum place from)
{
    bool to_device = to == PLACE_DEVICE, from_device = from == PLACE_DEVICE;
    switch (kind) {
    case cudaMemcpyHostToHost:
        return !to_device && !from_device;
    case cudaMemcpyHostToDevice:
        return to_device && !from_device;
    case cudaMemcpyDeviceToHost:
        return !to_device && from_device;
    case cudaMemcpyDeviceToDevice:
        return to_device && from_device;
    case cudaMemcpyDefault:
        return true;
    }
    return false;
}

/* As CUPTI numbers it. */
static int copy_kind_of(enum place to, enum place from)
{
    if (to == PLACE_DEVICE) return from == PLACE_DEVICE ? 8 : 1;
    return from == PLACE_DEVICE ? 2 : 9;
}

/* Checks c and gives it to the stream; waits where memory is pageable, or `now`. */
static cudaError_t copy(const struct copy_work *c, enum cudaMemcpyKind kind, cudaStream_t stream,
                        bool now)
{
    cudaStream_t s;
    enum place to, from = PLACE_DEVICE;
    int device;
    cudaError_t e = stream_find(stream, false, &s);
    if (e != cudaSuccess) return e;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (!c->width || !c->height) return cudaSuccess;
    if (!c->to || c->to_pitch < c->width || (c->from && c->from_pitch < c->width))
        return cudaErrorInvalidValue;
    e = memory_find(c->to, span(c->to_pitch, c), &to, &device);
    if (e == cudaSuccess && c->from)
        e = memory_find(c->from, span(c->from_pitch, c), &from, &device);
    if (e != cudaSuccess) return e;
    if (c->from ? !allowed(kind, to, from) : to == PLACE_PAGEABLE) return cudaErrorInvalidValue;
    struct copy_work *w = work_new(sizeof *w, run_copy);
    struct work head = w->w;
    *w = *c;
    w->w = head;
    w->w.noted = c->from ? activity_requested(ACTIVITY_REQUESTED_COPY, NULL, c->width * c->height,
                                          copy_kind_of(to, from), stream_device(s))
                         : activity_requested(ACTIVITY_REQUESTED_FILL, NULL, c->width * c->height, 0,
                                          stream_device(s));
    stream_push(s, &w->w);
    if (now || to == PLACE_PAGEABLE || from == PLACE_PAGEABLE) {
        stream_wait(s);
        return standin_lost(stream_device(s));
    }
    return cudaSuccess;
}

static bool too_far(size_t pitch) { return pitch > (size_t)standin_pitch(); }

static struct copy_work line(void *to, const void *from, size_t bytes)
{
    return (struct copy_work){.to = to,
                              .from = from,
                              .to_pitch = bytes,
                              .from_pitch = bytes,
                              .width = bytes,
                              .height = 1};
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ENTER();
    struct copy_work c = line(to, from, bytes);
    if (bytes && !from) return standin_leave(cudaErrorInvalidValue);
    return standin_leave(copy(&c, kind, stream, false));
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    ENTER();
    struct copy_work c = line(to, from, bytes);
    if (bytes && !from) return standin_leave(cudaErrorInvalidValue);
    return standin_leave(copy(&c, kind, NULL, true));
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    ENTER();
    struct copy_work c = line(to, from, bytes);
    enum place place;
    int a = -1, b = -1;
    if (bytes && !from) return standin_leave(cudaErrorInvalidValue);
    (void)memory_find(to, 0, &place, &a);
    (void)memory_find(from, 0, &place, &b);
    if (bytes && (a != to_device || b != from_device)) return standin_leave(cudaErrorInvalidValue);
    return standin_leave(copy(&c, cudaMemcpyDeviceToDevice, stream, false));
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    ENTER();
    struct copy_work c = {.to = to,
                          .from = from,
                          .to_pitch = to_pitch,
                          .from_pitch = from_pitch,
                          .width = width,
                          .height = height};
    if (width && height && !from) return standin_leave(cudaErrorInvalidValue);
    if (too_far(to_pitch) || too_far(from_pitch)) return standin_leave(cudaErrorInvalidPitchValue);
    return standin_leave(copy(&c, kind, stream, false));
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch, int value, size_t width, size_t height,
                              cudaStream_t stream)
{
    ENTER();
    struct copy_work c = {
        .to = to, .to_pitch = pitch, .value = value, .width = width, .height = height};
    if (too_far(pitch)) return standin_leave(cudaErrorInvalidPitchValue);
    return standin_leave(copy(&c, cudaMemcpyDefault, stream, false));
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ENTER();
    struct copy_work c = line(to, NULL, bytes);
    c.value = value;
    return standin_leave(copy(&c, cudaMemcpyDefault, stream, false));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    ENTER();
    struct copy_work c = line(to, NULL, bytes);
    c.value = value;
    return standin_leave(copy(&c, cudaMemcpyDefault, NULL, false));
}
