/* tests/standin/runtime.c - devices, errors, calls that are made to fail, and what was not given back.
 *
 * Errors are the real runtime's: a call's own error is remembered by its thread until cudaGetLastError; a device that is
 * lost says so in every call that follows, on every thread. A call that gives something back does so even then, as the end
 * of a process would, so that what is left over is what nobody tried to give back.
 */
#include "tests/standin/standin.h"

#include "tests/standin/internal.h"
#include "tests/standin/standin_launch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a GPU, as its driver tells; what a stream takes before a launch waits is some 1,000 there. */
enum { DRIVER_VERSION = 13000, MULTIPROCESSORS = 4, PITCH_MAX = 2147483647, QUEUE_MAX = 1024 };

static const int64_t MEMORY_BYTES = (int64_t)141
                                    << 30; /* an H200's; nothing is taken before it is asked for */

static struct {
    int devices;
    cudaError_t driver; /* cudaSuccess, or why there is none */
    int capability[STANDIN_DEVICES_MAX];
    int multiprocessors, driver_version;
    int64_t memory_bytes, granule, pitch, queue, calls, fail_at;
    long signal_at, signal;
    int64_t works, lose_at; /* things that streams did */
    cudaError_t fail_with, lose_with;
    const char *failed_call;
    int64_t kept[KEPT_COUNT];
} state; /* under the books */

static int lost[STANDIN_DEVICES_MAX]; /* read and written as atomics, without order */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread int current;
static __thread cudaError_t last;
static __thread bool host_function;

static void tell_leaks(void)
{
    char text[160];
    if (standin_left(text, sizeof text)) fprintf(stderr, "stand-in: not given back: %s\n", text);
}

static int64_t variable(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

/* "n:e" or "n" */
static void read_fault(const char *name, int64_t *out_at, cudaError_t *out_with)
{
    const char *text = getenv(name), *colon = text ? strchr(text, ':') : NULL;
    *out_at = variable(name, 0);
    *out_with = colon ? (cudaError_t)strtol(colon + 1, NULL, 10) : cudaErrorLaunchFailure;
}

/* "n:signal[:rank]" */
static void read_signal(const char *text)
{
    const char *mine = getenv("OMPI_COMM_WORLD_RANK");
    int rank = -1;
    if (!text || sscanf(text, "%ld:%ld:%d", &state.signal_at, &state.signal, &rank) < 2) return;
    if (rank >= 0 && (!mine || strtol(mine, NULL, 10) != rank)) state.signal_at = 0;
}

static void start(void)
{
    state.devices = (int)variable("STANDIN_DEVICES", 1);
    if (state.devices > STANDIN_DEVICES_MAX) state.devices = STANDIN_DEVICES_MAX;
    state.driver = (cudaError_t)variable("STANDIN_DRIVER", 0);
    if (!state.driver && state.devices < 1) state.driver = cudaErrorNoDevice;
    state.memory_bytes = variable("STANDIN_MEMORY", MEMORY_BYTES);
    state.multiprocessors = (int)variable("STANDIN_MULTIPROCESSORS", MULTIPROCESSORS);
    state.driver_version = (int)variable("STANDIN_DRIVER_VERSION", DRIVER_VERSION);
    state.granule = variable("STANDIN_GRANULE", 1);
    state.pitch = variable("STANDIN_PITCH", PITCH_MAX);
    state.queue = variable("STANDIN_QUEUE", QUEUE_MAX);
    const char *text = getenv("STANDIN_CAPABILITY");
    int capability = 90;
    for (int i = 0; i < STANDIN_DEVICES_MAX; i++) {
        if (text && *text) {
            char *rest;
            capability = (int)strtol(text, &rest, 10);
            text = *rest == ',' ? rest + 1 : NULL;
        }
        state.capability[i] = capability;
    }
    read_fault("STANDIN_FAIL_AT", &state.fail_at, &state.fail_with);
    read_fault("STANDIN_LOSE_AT", &state.lose_at, &state.lose_with);
    read_signal(getenv("STANDIN_SIGNAL_AT"));
    if (variable("STANDIN_LEAKS", 0)) atexit(tell_leaks);
}

/* --- calls --- */

static bool own_error(cudaError_t e)
{
    return e == cudaErrorInvalidValue || e == cudaErrorMemoryAllocation ||
           e == cudaErrorInvalidConfiguration || e == cudaErrorLaunchOutOfResources ||
           e == cudaErrorNotSupported;
}

void standin_lose(int device, cudaError_t e)
{
    int none = cudaSuccess;
    __atomic_compare_exchange_n(&lost[device], &none, (int)e, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

cudaError_t standin_lost(int device)
{
    return (cudaError_t)__atomic_load_n(&lost[device], __ATOMIC_RELAXED);
}

bool standin_may_work(int device)
{
    books_open();
    bool loses = ++state.works == state.lose_at;
    cudaError_t with = state.lose_with;
    books_close();
    if (loses) standin_lose(device, with);
    return standin_lost(device) == cudaSuccess;
}

void standin_lose_at(int64_t n, cudaError_t e)
{
    pthread_once(&once, start);
    books_open();
    state.works = 0;
    state.lose_at = n;
    state.lose_with = e;
    books_close();
}

cudaError_t standin_enter_uncounted(void)
{
    pthread_once(&once, start);
    if (host_function) return cudaErrorNotPermitted;
    if (state.driver) return state.driver;
    return standin_lost(current);
}

cudaError_t standin_enter(const char *call)
{
    cudaError_t e = standin_enter_uncounted();
    books_open();
    bool fails = ++state.calls == state.fail_at, signals = state.calls == state.signal_at;
    if (fails) state.failed_call = call;
    cudaError_t with = state.fail_with;
    int number = (int)state.signal;
    books_close();
    if (signals) raise(number);
    if (e != cudaSuccess || !fails) return e;
    if (!own_error(with)) standin_lose(current, with);
    return with;
}

cudaError_t standin_leave(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady) last = e;
    return e;
}

void standin_in_host_function(bool inside) { host_function = inside; }

void standin_fail_at(int64_t n, cudaError_t e)
{
    pthread_once(&once, start);
    books_open();
    state.calls = 0;
    state.fail_at = n;
    state.fail_with = e;
    state.failed_call = NULL;
    books_close();
}

int64_t standin_calls(void)
{
    books_open();
    int64_t n = state.calls;
    books_close();
    return n;
}

const char *standin_failed_call(void)
{
    books_open();
    const char *name = state.failed_call;
    books_close();
    return name;
}

/* --- what is alive --- */

void standin_keep(enum kept what, int by)
{
    books_open();
    state.kept[what] += by;
    books_close();
}

int64_t standin_left(char *out, size_t bytes)
{
    static const char *const names[KEPT_COUNT] = {
        "device memory", "pinned memory", "stream", "event", "BLAS handle or descriptor",
        "green context", "kind of activity"};
    int64_t sum = 0;
    size_t at = 0;
    if (bytes) *out = '\0';
    books_open();
    for (int i = 0; i < KEPT_COUNT; i++) {
        if (!state.kept[i]) continue;
        sum += state.kept[i];
        if (at < bytes)
            at += (size_t)snprintf(out + at, bytes - at, "%s%lld x %s", at ? ", " : "",
                                   (long long)state.kept[i], names[i]);
    }
    books_close();
    return sum;
}

/* --- errors --- */

const char *cudaGetErrorName(cudaError_t e)
{
    switch (e) {
#define X(name, number, text)                                                                      \
    case name:                                                                                     \
        return #name;
        STANDIN_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t e)
{
    switch (e) {
#define X(name, number, text)                                                                      \
    case name:                                                                                     \
        return text;
        STANDIN_ERRORS(X)
#undef X
    }
    return "unrecognized error code";
}

cudaError_t cudaPeekAtLastError(void)
{
    cudaError_t e = standin_lost(current);
    return e != cudaSuccess ? e : last;
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = cudaPeekAtLastError();
    last = cudaSuccess;
    return e;
}

/* --- devices --- */

int standin_device(void) { return current; }
int standin_device_count(void) { return state.devices; }
int64_t standin_device_memory(int device)
{
    (void)device;
    return state.memory_bytes;
}
int standin_multiprocessors(void) { return state.multiprocessors; }
int standin_driver_version(void) { return state.driver_version; }
int64_t standin_granule(void) { return state.granule; }
int64_t standin_pitch(void) { return state.pitch; }
int64_t standin_queue(void) { return state.queue; }
int standin_capability(int device) { return state.capability[device]; }

cudaError_t cudaDriverGetVersion(int *out)
{
    pthread_once(&once, start);
    *out = state.driver == cudaErrorInsufficientDriver ? 0 : state.driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *out)
{
    *out = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out)
{
    ENTER();
    *out = state.devices;
    return cudaSuccess;
}

static bool exists(int device) { return device >= 0 && device < state.devices; }

/* From a lost device to another one leads a way. */
cudaError_t cudaSetDevice(int device)
{
    bool leaves = standin_lost(current) != cudaSuccess && device != current;
    cudaError_t e = standin_enter(__func__);
    if (e != cudaSuccess && !(leaves && e == standin_lost(current))) return standin_leave(e);
    if (!exists(device)) return standin_leave(cudaErrorInvalidDevice);
    current = device;
    return standin_leave(standin_lost(device));
}

cudaError_t cudaGetDevice(int *out)
{
    ENTER();
    *out = current;
    return cudaSuccess;
}

cudaError_t cudaSetDeviceFlags(unsigned flags)
{
    ENTER();
    return standin_leave(flags > 15 ? cudaErrorInvalidValue : cudaSuccess);
}

/* Of an H100 where nothing else is known; shared memory as each generation has it. */
static int max_shared(int capability)
{
    switch (capability) {
    case 60:
        return 49152;
    case 70:
        return 98304;
    case 75:
        return 65536;
    case 80:
    case 87:
        return 166912;
    case 86:
    case 89:
        return 101376;
    default:
        return 232448;
    }
}

int standin_shared_max(int device) { return max_shared(state.capability[device]); }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    ENTER();
    if (!exists(device)) return standin_leave(cudaErrorInvalidDevice);
    int capability = state.capability[device];
    *out = (struct cudaDeviceProp){
        .totalGlobalMem = (size_t)state.memory_bytes,
        .sharedMemPerBlock = 49152,
        .sharedMemPerBlockOptin = (size_t)max_shared(capability),
        .sharedMemPerMultiprocessor = (size_t)max_shared(capability) + 1024,
        .regsPerBlock = 65536,
        .warpSize = STANDIN_WARP,
        .maxThreadsPerBlock = STANDIN_BLOCK_MAX,
        .maxThreadsPerMultiProcessor = 2048,
        .maxThreadsDim = {1024, 1024, 64},
        .maxGridSize = {0x7fffffff, 65535, 65535},
        .major = capability / 10,
        .minor = capability % 10,
        .multiProcessorCount = state.multiprocessors,
        .l2CacheSize = 1 << 20,
        .memoryBusWidth = 5120,
        .asyncEngineCount = 2,
        .unifiedAddressing = 1,
        .concurrentKernels = 1,
        .canMapHostMemory = 1,
        .pciBusID = 16 + device,
        .pciDeviceID = 0,
        .pciDomainID = 0,
    };
    const char *name = getenv("STANDIN_NAME");
    snprintf(out->name, sizeof out->name, "%.80s sm_%d", name && *name ? name : "stand-in",
             capability);
    out->uuid.bytes[0] = (char)device;
    return cudaSuccess;
}

static int attribute_of(enum cudaDeviceAttr a, int device, bool *known)
{
    *known = true;
    int capability = state.capability[device];
    switch (a) {
    case cudaDevAttrMaxThreadsPerBlock:
        return STANDIN_BLOCK_MAX;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return 49152;
    case cudaDevAttrMaxPitch:
        return (int)state.pitch;
    case cudaDevAttrWarpSize:
        return STANDIN_WARP;
    case cudaDevAttrMultiProcessorCount:
        return state.multiprocessors;
    case cudaDevAttrPciBusId:
        return 16 + device;
    case cudaDevAttrL2CacheSize:
        return 1 << 20;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrAsyncEngineCount:
        return 2;
    case cudaDevAttrUnifiedAddressing:
        return 1;
    case cudaDevAttrComputeCapabilityMajor:
        return capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return capability % 10;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return max_shared(capability) + 1024;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return max_shared(capability);
    case cudaDevAttrMemoryPoolsSupported:
        return 1;
    case cudaDevAttrClockRate:
        return 1000000;
    case cudaDevAttrMemoryClockRate:
        return 1000000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return 5120;
    case cudaDevAttrIntegrated:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        return 0;
    }
    *known = false;
    return 0;
}

cudaError_t cudaDeviceGetAttribute(int *out, enum cudaDeviceAttr attribute, int device)
{
    ENTER();
    if (!exists(device)) return standin_leave(cudaErrorInvalidDevice);
    bool known;
    int value = attribute_of(attribute, device, &known);
    if (known) *out = value;
    return standin_leave(known ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device)
{
    ENTER();
    if (!exists(device)) return standin_leave(cudaErrorInvalidDevice);
    if (bytes < 13) return standin_leave(cudaErrorInvalidValue);
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", (unsigned)(16 + device) & 0xff);
    return cudaSuccess;
}

/* Devices 2i and 2i+1 are linked, others are not. */
cudaError_t cudaDeviceGetP2PAttribute(int *out, enum cudaDeviceP2PAttr attribute, int from, int to)
{
    ENTER();
    if (!exists(from) || !exists(to) || from == to) return standin_leave(cudaErrorInvalidDevice);
    bool linked = from / 2 == to / 2;
    *out = attribute == cudaDevP2PAttrPerformanceRank ? (linked ? 0 : 1) : linked;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *out, int device, int peer)
{
    ENTER();
    if (!exists(device) || !exists(peer)) return standin_leave(cudaErrorInvalidDevice);
    *out = device != peer && device / 2 == peer / 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    ENTER();
    streams_wait(current);
    return standin_leave(standin_lost(current));
}
