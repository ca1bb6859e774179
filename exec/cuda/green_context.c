#include "exec/cuda/green_context.h"

#include "core/base/arena.h"
#include "exec/cuda/context.h"

#include <cuda.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DRIVER_MIN 12050 /* the first driver whose green contexts have streams */
#define OTHERWISE "; without `multiprocessors`, a slowdown emulates on the virtual clock alone"

#if CUDA_VERSION >= 13000 /* its resource struct describes the division */

typedef CUresult get_device(CUdevice *out, int device);
typedef CUresult get_resource(CUdevice device, CUdevResource *out, CUdevResourceType type);
typedef CUresult split(CUdevResource *result, unsigned *n, const CUdevResource *of,
                       CUdevResource *rest, unsigned flags, unsigned least);
typedef CUresult make_description(CUdevResourceDesc *out, CUdevResource *of, unsigned n);
typedef CUresult make(CUgreenCtx *out, CUdevResourceDesc of, CUdevice device, unsigned flags);
typedef CUresult destroy(CUgreenCtx green);
typedef CUresult make_stream(CUstream *out, CUgreenCtx green, unsigned flags, int priority);

struct driver { /* driver functions for green contexts */
    get_device *cuDeviceGet;
    get_resource *cuDeviceGetDevResource;
    split *cuDevSmResourceSplitByCount;
    make_description *cuDevResourceGenerateDesc;
    make *cuGreenCtxCreate;
    destroy *cuGreenCtxDestroy;
    make_stream *cuGreenCtxStreamCreate;
};

struct cuda_green_context {
    struct driver driver;
    CUgreenCtx context;
};

static enum status find_call(const char *name, void *out, struct error *err)
{
    enum cudaDriverEntryPointQueryResult how = cudaDriverEntryPointSuccess;
    void *at = NULL;
    cudaError_t e =
        cudaGetDriverEntryPointByVersion(name, &at, DRIVER_MIN, cudaEnableDefault, &how);
    if (e == cudaSuccess && at && how == cudaDriverEntryPointSuccess) {
        memcpy(out, &at, sizeof at);
        return OK;
    }
    (void)cudaGetLastError();
    return error_set(err, ERR_NO_DEVICE,
                     "the driver has no %s: green contexts need one for "
                     "CUDA 12.5 or newer" OTHERWISE,
                     name);
}

static enum status find_driver(struct driver *d, struct error *err)
{
#define FIND(name) TRY(find_call(#name, &d->name, err))
    FIND(cuDeviceGet);
    FIND(cuDeviceGetDevResource);
    FIND(cuDevSmResourceSplitByCount);
    FIND(cuDevResourceGenerateDesc);
    FIND(cuGreenCtxCreate);
    FIND(cuGreenCtxDestroy);
    FIND(cuGreenCtxStreamCreate);
#undef FIND
    return OK;
}

/* Error numbers of the driver and the runtime agree. */
static enum status failed(CUresult r, const char *call, struct error *err)
{
    return cuda_failed((cudaError_t)r, call, err);
}

static enum status all_of(const struct driver *d, int32_t device, CUdevice *handle,
                          CUdevResource *out, struct error *err)
{
    TRY(failed(d->cuDeviceGet(handle, device), "cuDeviceGet", err));
    return failed(d->cuDeviceGetDevResource(*handle, out, CU_DEV_RESOURCE_TYPE_SM),
                  "cuDeviceGetDevResource", err);
}

/* The nearest valid numbers on both sides. */
static enum status does_not_part(const CUdevSmResource *of, int32_t wanted, struct error *err)
{
    int32_t all = (int32_t)of->smCount, least = (int32_t)of->minSmPartitionSize;
    int32_t step = (int32_t)(of->smCoscheduledAlignment ? of->smCoscheduledAlignment : 1);
    int32_t below = wanted / step * step, above = below + step;
    if (below < least) below = above = least;
    if (above > all) above = all;
    if (below > all) below = all;
    return error_set(err, ERR_INPUT,
                     "multiprocessors: %" PRId32 " of %" PRId32
                     ": green contexts have multiples of %" PRId32 ", from %" PRId32
                     " on; the nearest are %" PRId32 " and %" PRId32,
                     wanted, all, step, least, below, above);
}

static enum status check_part(const CUdevSmResource *of, int32_t wanted, struct error *err)
{
    uint32_t step = of->smCoscheduledAlignment ? of->smCoscheduledAlignment : 1;
    uint32_t n = (uint32_t)wanted;
    if (n >= of->minSmPartitionSize && n < of->smCount && n % step == 0) return OK;
    return does_not_part(of, wanted, err);
}

static enum status make_green_context(struct cuda_green_context *g, CUdevice device,
                                      const CUdevResource *all, int32_t wanted, struct error *err)
{
    const struct driver *d = &g->driver;
    CUdevResource part, rest;
    CUdevResourceDesc description = NULL;
    unsigned n = 1;
    memset(&part, 0, sizeof part);
    TRY(failed(d->cuDevSmResourceSplitByCount(&part, &n, all, &rest, 0, (unsigned)wanted),
               "cuDevSmResourceSplitByCount", err));
    if (n != 1 || (int32_t)part.sm.smCount != wanted) return does_not_part(&all->sm, wanted, err);
    TRY(failed(d->cuDevResourceGenerateDesc(&description, &part, 1), "cuDevResourceGenerateDesc",
               err));
    return failed(
        d->cuGreenCtxCreate(&g->context, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
        "cuGreenCtxCreate", err);
}

enum status cuda_green_context_make(struct arena *a, int32_t device, int32_t multiprocessors,
                                    struct cuda_green_context **out, struct error *err)
{
    struct driver driver = {0};
    CUdevResource all = {0};
    CUdevice handle = 0;
    *out = NULL;
    if (!multiprocessors) return OK;
    TRY(find_driver(&driver, err));
    TRY(all_of(&driver, device, &handle, &all, err));
    if ((uint32_t)multiprocessors == all.sm.smCount) return OK;
    TRY(check_part(&all.sm, multiprocessors, err));
    struct cuda_green_context *g = ARENA_ARRAY(a, struct cuda_green_context, 1);
    g->driver = driver;
    TRY(make_green_context(g, handle, &all, multiprocessors, err));
    *out = g;
    return OK;
}

void cuda_green_context_close(struct cuda_green_context *g)
{
    if (g) (void)g->driver.cuGreenCtxDestroy(g->context);
}

enum status cuda_green_context_stream(struct cuda_green_context *g, int priority, cudaStream_t *out,
                                      struct error *err)
{
    return failed(
        g->driver.cuGreenCtxStreamCreate(out, g->context, CU_STREAM_NON_BLOCKING, priority),
        "cuGreenCtxStreamCreate", err);
}

void cuda_green_context_offer(int32_t device, char *out, int32_t bytes)
{
    struct driver driver = {0};
    CUdevResource all = {0};
    CUdevice handle = 0;
    struct error why = {0};
    enum status st = find_driver(&driver, &why);
    if (st == OK) st = all_of(&driver, device, &handle, &all, &why);
    if (st == OK)
        snprintf(out, (size_t)bytes,
                 "%u multiprocessors, in parts that are multiples of %u, from %u on",
                 all.sm.smCount, all.sm.smCoscheduledAlignment, all.sm.minSmPartitionSize);
    else
        snprintf(out, (size_t)bytes, "%s", why.text);
}

#else /* an older toolkit has no green contexts */

enum status cuda_green_context_make(struct arena *a, int32_t device, int32_t multiprocessors,
                                    struct cuda_green_context **out, struct error *err)
{
    (void)a, (void)device;
    *out = NULL;
    if (!multiprocessors) return OK;
    return error_set(err, ERR_NO_DEVICE,
                     "this plugin was built with a toolkit before CUDA 13, "
                     "which has no green contexts" OTHERWISE);
}

void cuda_green_context_close(struct cuda_green_context *g) { (void)g; }

enum status cuda_green_context_stream(struct cuda_green_context *g, int priority, cudaStream_t *out,
                                      struct error *err)
{
    (void)g, (void)priority, (void)out;
    return error_set(err, ERR_NO_DEVICE, "no green contexts");
}

void cuda_green_context_offer(int32_t device, char *out, int32_t bytes)
{
    (void)device;
    snprintf(out, (size_t)bytes, "none: the plugin was built with a toolkit before CUDA 13");
}

#endif
