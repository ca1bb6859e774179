/* tests/standin/cupti.c - CUPTI's twin: what streams do, told as activity records.
 *
 * Everything that the stand-in's streams run (kernels, copies, fills, products) is noted when it is asked for and told when it has
 * ended, as the real library does: a correlation id a call, a record of the call itself, in front of it one for what its thread has
 * pushed, and only where calls' records are asked for as well; instants from the clock that was registered, else CLOCK_REALTIME;
 * buffers asked for where a record needs one, given back full on a thread of their own, and whatever they hold at a flush. Records
 * that there is no buffer for are dropped and counted.
 * The environment, read at the first call:
 *   STANDIN_CUPTI_FAIL_AT=n[:r]  the n-th call fails with result r (999); it does nothing then, but what takes back does that
 *   STANDIN_CUPTI_BUFFER=bytes   of each buffer no more is used
 *   STANDIN_CUPTI_DROP=n         every n-th record of a kernel is dropped; STANDIN_CUPTI_UNTIMED=n: has no instants
 * What is asked of it is hidden from the thread sanitizer (books.c); the callbacks are not.
 */
#include "tests/standin/cupti.h"

#include "tests/standin/activity.h"
#include "tests/standin/internal.h"
#include "tests/standin/standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STACK = 8 };

struct buffer {
    uint8_t *at;
    size_t bytes, used, most, n;
};

static struct {
    pthread_mutex_t lock; /* never taken by what callbacks call */
    CUpti_BuffersCallbackRequestFunc requested;
    CUpti_BuffersCallbackCompleteFunc completed;
    struct buffer now;
    pthread_t worker;
    bool working;
    struct buffer full; /* the worker's */
    uint32_t next_correlation;
    int64_t kernels, drop_every, untimed_every;
    size_t buffer_max;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Read and written as atomics. */
static uint64_t enabled; /* bit a kind */
static CUpti_TimestampCallbackFunc timestamp;
static int64_t dropped, calls, fail_at;
static int64_t handed; /* buffers: released by who asked for one, acquired by who gives one back */
static int fail_with;
static const char *failed_call;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static __thread uint64_t pushed[STACK];
static __thread int n_pushed;

static int64_t variable(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoll(text, NULL, 10) : 0;
}

static void start(void)
{
    const char *fault = getenv("STANDIN_CUPTI_FAIL_AT"), *colon = fault ? strchr(fault, ':') : NULL;
    if (fault)
        standin_cupti_fail_at(strtoll(fault, NULL, 10),
                              colon ? (int)strtol(colon + 1, NULL, 10) : CUPTI_ERROR_UNKNOWN);
    state.buffer_max = (size_t)variable("STANDIN_CUPTI_BUFFER");
    state.drop_every = variable("STANDIN_CUPTI_DROP");
    state.untimed_every = variable("STANDIN_CUPTI_UNTIMED");
}

/* --- calls --- */

void standin_cupti_fail_at(int64_t n, int result)
{
    __atomic_store_n(&calls, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&fail_at, n, __ATOMIC_RELAXED);
    __atomic_store_n(&fail_with, result, __ATOMIC_RELAXED);
    __atomic_store_n(&failed_call, NULL, __ATOMIC_RELAXED);
}

int64_t standin_cupti_calls(void) { return __atomic_load_n(&calls, __ATOMIC_RELAXED); }

const char *standin_cupti_failed_call(void)
{
    return __atomic_load_n(&failed_call, __ATOMIC_RELAXED);
}

static CUptiResult enter(const char *call)
{
    pthread_once(&once, start);
    int64_t n = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    if (n != __atomic_load_n(&fail_at, __ATOMIC_RELAXED)) return CUPTI_SUCCESS;
    __atomic_store_n(&failed_call, call, __ATOMIC_RELAXED);
    return (CUptiResult)__atomic_load_n(&fail_with, __ATOMIC_RELAXED);
}
#define ENTER_CUPTI()                                                                              \
    do {                                                                                           \
        CUptiResult entered_ = enter(__func__);                                                    \
        if (entered_ != CUPTI_SUCCESS) return entered_;                                            \
    } while (0)

static void lock_up(void)
{
    hidden_begin();
    pthread_mutex_lock(&state.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&state.lock);
    hidden_end();
}

static bool is_on(CUpti_ActivityKind kind)
{
    return __atomic_load_n(&enabled, __ATOMIC_RELAXED) >> kind & 1;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **out)
{
    switch (result) {
#define X(name, number)                                                                            \
    case name:                                                                                     \
        *out = #name;                                                                              \
        return CUPTI_SUCCESS;
        STANDIN_CUPTI_RESULTS(X)
#undef X
    }
    return CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f)
{
    ENTER_CUPTI();
    if (!f) return CUPTI_ERROR_INVALID_PARAMETER;
    __atomic_store_n(&timestamp, f, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                           CUpti_BuffersCallbackCompleteFunc completed)
{
    ENTER_CUPTI();
    if (!requested || !completed) return CUPTI_ERROR_INVALID_PARAMETER;
    lock_up();
    state.requested = requested;
    state.completed = completed;
    unlock();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    ENTER_CUPTI();
    if (kind <= CUPTI_ACTIVITY_KIND_INVALID || kind >= CUPTI_ACTIVITY_KIND_COUNT)
        return CUPTI_ERROR_INVALID_KIND;
    if (!is_on(kind)) standin_keep(KEPT_ACTIVITY, 1);
    __atomic_or_fetch(&enabled, UINT64_C(1) << kind, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

/* What fails takes back nevertheless, as in runtime.c. */
CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    CUptiResult r = enter(__func__);
    if (is_on(kind)) standin_keep(KEPT_ACTIVITY, -1);
    __atomic_and_fetch(&enabled, ~(UINT64_C(1) << kind), __ATOMIC_RELAXED);
    return r;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable)
{
    ENTER_CUPTI();
    return cbid && enable <= 1 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable)
{
    ENTER_CUPTI();
    return cbid && enable <= 1 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id)
{
    ENTER_CUPTI();
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || n_pushed == STACK)
        return CUPTI_ERROR_INVALID_PARAMETER;
    pushed[n_pushed++] = id;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *out)
{
    CUptiResult r = enter(__func__);
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0) return CUPTI_ERROR_INVALID_PARAMETER;
    if (!n_pushed) return CUPTI_ERROR_QUEUE_EMPTY;
    *out = pushed[--n_pushed];
    return r;
}

/* --- buffers --- */

static void give_back(const struct buffer *b)
{
    hidden_end();
    (void)__atomic_load_n(&handed, __ATOMIC_ACQUIRE);
    state.completed(NULL, 0, b->at, b->bytes, b->used);
    hidden_begin();
}

static void *work_on_full(void *p)
{
    struct buffer *b = p;
    (void)__atomic_load_n(&handed, __ATOMIC_ACQUIRE);
    state.completed(NULL, 0, b->at, b->bytes, b->used);
    return NULL;
}

static void end_worker(void)
{
    if (state.working) pthread_join(state.worker, NULL);
    state.working = false;
}

/* The lock is held; the plugin's own may be taken inside. */
static void hand_over_full(void)
{
    end_worker();
    state.full = state.now;
    state.now = (struct buffer){0};
    if (pthread_create(&state.worker, NULL, work_on_full, &state.full)) abort();
    state.working = true;
}

static bool fits(const struct buffer *b, size_t bytes)
{
    return b->at && b->used + bytes <= b->bytes && (!b->most || b->n < b->most);
}

/* A place for a record; NULL where the client gives no buffer. */
static void *place(size_t bytes)
{
    struct buffer *b = &state.now;
    if (!fits(b, bytes) && b->at) hand_over_full();
    if (!b->at) {
        struct buffer asked = {0}; /* the thread's own: what the client writes is not hidden */
        hidden_end();
        state.requested(&asked.at, &asked.bytes, &asked.most);
        __atomic_add_fetch(&handed, 1, __ATOMIC_RELEASE);
        hidden_begin();
        *b = asked;
        if ((uintptr_t)b->at % 8) abort();
        if (b->at && state.buffer_max && state.buffer_max < b->bytes)
            b->bytes = state.buffer_max;
    }
    if (!fits(b, bytes)) return NULL;
    void *at = b->at + b->used;
    b->used += bytes;
    b->n++;
    return at;
}

static void put(const void *record, size_t bytes)
{
    lock_up();
    void *at = state.requested ? place(bytes) : NULL;
    if (at)
        memcpy(at, record, bytes);
    else
        __atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
    unlock();
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    ENTER_CUPTI();
    if (flag > CUPTI_ACTIVITY_FLAG_FLUSH_FORCED) return CUPTI_ERROR_INVALID_PARAMETER;
    lock_up();
    bool registered = state.completed != NULL;
    end_worker();
    struct buffer b = state.now;
    state.now = (struct buffer){0};
    if (registered && b.at) give_back(&b);
    unlock();
    return registered ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

static size_t bytes_of(CUpti_ActivityKind kind)
{
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME:
        return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION:
        return sizeof(CUpti_ActivityExternalCorrelation);
    default:
        return 0;
    }
}

/* Counted once a buffer, so that the number of calls of a session does not grow with its records. */
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record)
{
    CUptiResult r = *record ? CUPTI_SUCCESS : enter(__func__);
    if (r != CUPTI_SUCCESS) return r;
    if (!buffer) return CUPTI_ERROR_INVALID_PARAMETER;
    uint8_t *at = buffer;
    if (*record) {
        memcpy(&at, record, sizeof at);
        at += bytes_of((*record)->kind);
    }
    if (at >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    memcpy(record, &at, sizeof at);
    return bytes_of((*record)->kind) ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_KIND;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *out)
{
    ENTER_CUPTI();
    if (context || stream || !out) return CUPTI_ERROR_INVALID_PARAMETER;
    *out = (size_t)__atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
    return CUPTI_SUCCESS;
}

/* --- what streams do --- */

struct wanted_activity {
    enum activity_kind_requested kind;
    const char *name;
    size_t bytes;
    uint8_t copy_kind;
    int device;
    uint32_t correlation;
};

static CUpti_ActivityKind kind_of(enum activity_kind_requested kind)
{
    static const CUpti_ActivityKind kinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               CUPTI_ACTIVITY_KIND_MEMSET};
    return kinds[kind];
}

/* The call's own record, and what its thread had pushed in front of it. */
static void tell_call(uint32_t correlation)
{
    const CUpti_ActivityAPI call = {.kind = CUPTI_ACTIVITY_KIND_RUNTIME,
                                    .cbid = 211,
                                    .correlationId = correlation};
    if (!is_on(CUPTI_ACTIVITY_KIND_RUNTIME)) return;
    if (n_pushed && is_on(CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION)) {
        const CUpti_ActivityExternalCorrelation cause = {
            .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
            .externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0,
            .externalId = pushed[n_pushed - 1],
            .correlationId = correlation};
        put(&cause, sizeof cause);
    }
    put(&call, sizeof call);
}

struct wanted_activity *activity_requested(enum activity_kind_requested kind, const char *name, size_t bytes,
                                      int copy_kind, int device)
{
    if (!__atomic_load_n(&enabled, __ATOMIC_RELAXED)) return NULL;
    struct wanted_activity *x = calloc(1, sizeof *x);
    if (!x) abort();
    *x = (struct wanted_activity){kind, name, bytes, (uint8_t)copy_kind, device, 0};
    lock_up();
    x->correlation = ++state.next_correlation;
    unlock();
    tell_call(x->correlation);
    return x;
}

uint64_t activity_now(void)
{
    CUpti_TimestampCallbackFunc f = __atomic_load_n(&timestamp, __ATOMIC_RELAXED);
    struct timespec t;
    if (f) return f();
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether this kernel is the n-th, 2n-th, … */
static bool every(int64_t n, int64_t number) { return n > 0 && number % n == 0; }

static void tell_kernel(const struct wanted_activity *x, uint64_t begin, uint64_t end)
{
    lock_up();
    int64_t number = ++state.kernels, drop = state.drop_every, untimed = state.untimed_every;
    unlock();
    if (every(drop, number)) {
        __atomic_add_fetch(&dropped, 1, __ATOMIC_RELAXED);
        return;
    }
    bool timed = !every(untimed, number);
    const CUpti_ActivityKernel10 k = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                      .start = timed ? begin : 0,
                                      .end = timed ? end : 0,
                                      .deviceId = (uint32_t)x->device,
                                      .correlationId = x->correlation,
                                      .name = x->name};
    put(&k, sizeof k);
}

static void tell(const struct wanted_activity *x, uint64_t begin, uint64_t end)
{
    const CUpti_ActivityMemcpy6 copy = {.kind = CUPTI_ACTIVITY_KIND_MEMCPY,
                                        .copyKind = x->copy_kind,
                                        .bytes = x->bytes,
                                        .start = begin,
                                        .end = end,
                                        .deviceId = (uint32_t)x->device,
                                        .correlationId = x->correlation};
    const CUpti_ActivityMemset4 fill = {.kind = CUPTI_ACTIVITY_KIND_MEMSET,
                                        .bytes = x->bytes,
                                        .start = begin,
                                        .end = end,
                                        .deviceId = (uint32_t)x->device,
                                        .correlationId = x->correlation};
    if (x->kind == ACTIVITY_REQUESTED_KERNEL)
        tell_kernel(x, begin, end);
    else if (x->kind == ACTIVITY_REQUESTED_COPY)
        put(&copy, sizeof copy);
    else
        put(&fill, sizeof fill);
}

void activity_ended(struct wanted_activity *x, uint64_t begin, bool ran)
{
    if (ran && is_on(kind_of(x->kind))) tell(x, begin, activity_now());
    free(x);
}
