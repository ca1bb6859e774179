/* tests/standin/driver.c - green contexts: a part of a device's multiprocessors, and streams of it.
 *
 * Functions are found by name, as a driver that is new enough shows them. Nothing is computed on fewer threads; what is checked is
 * that resources come from where they must, that a part is one the device parts in, and that a context outlives its streams:
 * one that is destroyed before them stays among what was not given back.
 */
#include "tests/standin/cuda.h"

#include "tests/standin/internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_VERSION = 12040, FIRST_STREAMS = 12050 };

struct CUgreenCtx_st {
    int device, multiprocessors;
    int streams; /* alive; under the books */
    struct CUgreenCtx_st *next;
};
struct CUdevResourceDesc_st {
    int device, multiprocessors;
    struct CUdevResourceDesc_st *next;
};

static struct CUgreenCtx_st *contexts; /* alive; under the books */
/* The driver has no call that gives a description back: they end with the process. */
static struct CUdevResourceDesc_st *descriptions;

/* Where a resource came from stands in its padding. */
struct origin {
    unsigned magic;
    int device;
    bool part; /* from a split */
};
enum { MAGIC = 0x6e656572 };

static struct origin origin_of(const CUdevResource *r)
{
    struct origin o;
    memcpy(&o, r->padding, sizeof o);
    return o;
}

static CUdevResource resource(int device, bool part, int n)
{
    const struct origin o = {MAGIC, device, part};
    bool hopper = standin_capability(device) >= 90, ampere = standin_capability(device) >= 80;
    CUdevResource r = {.type = CU_DEV_RESOURCE_TYPE_SM};
    memcpy(r.padding, &o, sizeof o);
    r.sm = (CUdevSmResource){.smCount = (unsigned)n,
                             .minSmPartitionSize = hopper   ? 8
                                                   : ampere ? 4
                                                            : 2,
                             .smCoscheduledAlignment = hopper ? 8 : 2};
    return r;
}

#define ENTER_DRIVER()                                                                             \
    do {                                                                                           \
        cudaError_t entered_ = standin_enter(__func__);                                            \
        if (entered_ != cudaSuccess) return (CUresult)entered_;                                    \
    } while (0)

static CUresult cuDeviceGet(CUdevice *out, int device)
{
    ENTER_DRIVER();
    if (device < 0 || device >= standin_device_count()) return CUDA_ERROR_INVALID_DEVICE;
    *out = device;
    return CUDA_SUCCESS;
}

static CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *out, CUdevResourceType type)
{
    ENTER_DRIVER();
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *out = resource(device, false, standin_multiprocessors());
    return CUDA_SUCCESS;
}

/* Groups of `least`, moved up to what the device parts in; as many as there are room for and multiprocessors. */
static CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned *n,
                                            const CUdevResource *of, CUdevResource *rest,
                                            unsigned flags, unsigned least)
{
    ENTER_DRIVER();
    struct origin o = origin_of(of);
    if (of->type != CU_DEV_RESOURCE_TYPE_SM || o.magic != MAGIC || o.part)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    unsigned step = of->sm.smCoscheduledAlignment, each = least, most = *n;
    if (flags || least > of->sm.smCount) return CUDA_ERROR_INVALID_VALUE;
    if (each < of->sm.minSmPartitionSize) each = of->sm.minSmPartitionSize;
    each = (each + step - 1) / step * step;
    *n = of->sm.smCount / each < most ? of->sm.smCount / each : most;
    for (unsigned i = 0; result && i < *n; i++) result[i] = resource(o.device, true, (int)each);
    if (rest) *rest = resource(o.device, true, (int)(of->sm.smCount - *n * each));
    return *n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
}

static CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *out, CUdevResource *of, unsigned n)
{
    ENTER_DRIVER();
    struct origin o = origin_of(of);
    if (n != 1 || o.magic != MAGIC || !of->sm.smCount)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    struct CUdevResourceDesc_st *d = calloc(1, sizeof *d);
    if (!d) abort();
    *d = (struct CUdevResourceDesc_st){.device = o.device, .multiprocessors = (int)of->sm.smCount};
    books_open();
    d->next = descriptions;
    descriptions = d;
    books_close();
    *out = d;
    return CUDA_SUCCESS;
}

static CUresult cuGreenCtxCreate(CUgreenCtx *out, CUdevResourceDesc of, CUdevice device,
                                 unsigned flags)
{
    ENTER_DRIVER();
    if (!of || flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    if (of->device != device) return CUDA_ERROR_INVALID_DEVICE;
    struct CUgreenCtx_st *g = calloc(1, sizeof *g);
    if (!g) abort();
    *g = (struct CUgreenCtx_st){.device = device, .multiprocessors = of->multiprocessors};
    books_open();
    g->next = contexts;
    contexts = g;
    books_close();
    standin_keep(KEPT_GREEN, 1);
    *out = g;
    return CUDA_SUCCESS;
}

/* Under the books. */
static struct CUgreenCtx_st **find(CUgreenCtx g)
{
    struct CUgreenCtx_st **at = &contexts;
    while (*at && *at != g) at = &(*at)->next;
    return at;
}

/* What fails is given back nevertheless (runtime.c). */
static CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    cudaError_t e = standin_enter(__func__);
    books_open();
    struct CUgreenCtx_st **at = find(green), *g = *at;
    bool in_use = g && g->streams;
    if (g && !in_use) *at = g->next;
    books_close();
    if (!g) return CUDA_ERROR_INVALID_CONTEXT;
    if (in_use) return CUDA_ERROR_INVALID_VALUE;
    free(g);
    standin_keep(KEPT_GREEN, -1);
    return (CUresult)e;
}

static CUresult cuGreenCtxStreamCreate(CUstream *out, CUgreenCtx green, unsigned flags,
                                       int priority)
{
    ENTER_DRIVER();
    (void)priority;
    if (flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    books_open();
    struct CUgreenCtx_st *g = *find(green);
    if (g) g->streams++;
    books_close();
    if (!g) return CUDA_ERROR_INVALID_CONTEXT;
    *out = stream_make_green_context(g->device, &g->streams);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *how)
{
    ENTER();
    typedef void (*function)(void);
    static const struct {
        const char *name;
        function at;
        int since;
    } known[] = {
#define KNOWN(name, since) {#name, (function)name, since}
        KNOWN(cuDeviceGet, 2000),
        KNOWN(cuDeviceGetDevResource, FIRST_VERSION),
        KNOWN(cuDevSmResourceSplitByCount, FIRST_VERSION),
        KNOWN(cuDevResourceGenerateDesc, FIRST_VERSION),
        KNOWN(cuGreenCtxCreate, FIRST_VERSION),
        KNOWN(cuGreenCtxDestroy, FIRST_VERSION),
        KNOWN(cuGreenCtxStreamCreate, FIRST_STREAMS),
#undef KNOWN
    };
    *out = NULL;
    *how = cudaDriverEntryPointSymbolNotFound;
    if (flags) return standin_leave(cudaErrorInvalidValue);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, symbol) != 0) continue;
        bool there = standin_driver_version() >= known[i].since;
        if (there && (int)version >= known[i].since)
            memcpy(out, &known[i].at, sizeof *out), *how = cudaDriverEntryPointSuccess;
        else
            *how = cudaDriverEntryPointVersionNotSufficent;
    }
    return cudaSuccess;
}
