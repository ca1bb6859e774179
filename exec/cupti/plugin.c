/* exec/cupti/plugin.c - exec/activity.h by CUPTI's activity records; the function that this plugin exports.
 *
 * CUPTI requests buffers on launching threads and returns full ones on a thread of its own or inside a flush,
 * possibly under internal locks. So spare buffers have a separate lock, held for some instructions and never around a
 * CUPTI call, and the records' lock is held only while a returned buffer is read.
 *
 * Instants are CLOCK_MONOTONIC, which CUPTI is configured to use for its fit of the device clock. They and CUDA
 * events' (exec/cuda/timeline.h) are two fits of the same clocks, some us apart, so records find their operators by
 * ids, never by instants. Ids are external correlation ids, which CUPTI records before API calls only; so runtime and
 * driver API records are enabled too (cuBLAS may launch by either) and discarded. Event queries, which are polled
 * often, are excluded if CUPTI supports the exclusion of single calls.
 *
 * Assumed without a test on a real GPU: enabling before the context exists is enough, and a forced flush on an idle
 * device returns every record. CUPTI's own device memory (buffers of some MiB) is not planned.
 */
#include "exec/activity.h"

#include "core/base/arena.h"
#include "exec/clock.h"
#include "exec/cupti/records.h"

#include <inttypes.h>
#include <pthread.h>

enum {
    BUFFER_BYTES = 1 << 20,
    BUFFERS_MAX = 256 /* held by CUPTI at a time; beyond them it drops records and counts them */
};

static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET,               CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,               CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

struct spare_buffer { /* at the beginning of a free buffer */
    struct spare_buffer *next;
};

static struct {
    pthread_mutex_t lock;
    bool open;
    struct records records;
    struct error trouble; /* first error of a callback; OK: none */
} session = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* They outlive sessions, because CUPTI may keep a buffer. */
static struct {
    pthread_mutex_t lock;
    struct arena *arena;
    struct spare_buffer *spare;
    int32_t n;
} buffers = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- failures -------------------------------------------------------------------------------- */

static const char *advice(CUptiResult r)
{
    switch (r) {
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
        return "; the driver lets only administrators profile: CAP_SYS_ADMIN, or its module's "
               "NVreg_RestrictProfilingToAdminUsers=0";
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
        return "; another profiler or sanitizer is attached to this process";
    default:
        return "";
    }
}

static enum status cupti_failed(CUptiResult r, const char *call, struct error *err)
{
    const char *name = NULL;
    if (r == CUPTI_SUCCESS) return OK;
    if (cuptiGetResultString(r, &name) != CUPTI_SUCCESS || !name) name = "an unknown error";
    return error_set(err, ERR_RESOURCE, "kernels cannot be traced: %s: %s (%d)%s", call, name,
                     (int)r, advice(r));
}

/* --- buffers --------------------------------------------------------------------------------- */

static uint64_t CUPTIAPI now(void) { return (uint64_t)clock_wall_ns(); }

static void CUPTIAPI buffer_requested(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
    *max_records = 0; /* as many as fit */
    pthread_mutex_lock(&buffers.lock);
    void *b = buffers.spare;
    if (b) {
        buffers.spare = buffers.spare->next;
    } else if (buffers.n < BUFFERS_MAX) {
        if (!buffers.arena) buffers.arena = arena_new();
        b = arena_alloc(buffers.arena, BUFFER_BYTES, 1);
        buffers.n++;
    }
    pthread_mutex_unlock(&buffers.lock);
    *buffer = b;
    *bytes = b ? BUFFER_BYTES : 0;
}

static void keep_buffer(void *b)
{
    struct spare_buffer *spare = b;
    pthread_mutex_lock(&buffers.lock);
    spare->next = buffers.spare;
    buffers.spare = spare;
    pthread_mutex_unlock(&buffers.lock);
}

static void trouble(CUptiResult r, const char *call)
{
    if (session.trouble.code == OK)
        session.trouble.code = cupti_failed(r, call, &session.trouble);
}

/* An incomplete record, possible after a forced flush, ends its buffer. */
static void read_records(uint8_t *buffer, size_t bytes)
{
    CUpti_Activity *record = NULL;
    CUptiResult r;
    while ((r = cuptiActivityGetNextRecord(buffer, bytes, &record)) == CUPTI_SUCCESS)
        records_note(&session.records, record);
    if (r == CUPTI_ERROR_INVALID_KIND)
        session.records.lost++;
    else if (r != CUPTI_ERROR_MAX_LIMIT_REACHED)
        trouble(r, "cuptiActivityGetNextRecord");
}

static void CUPTIAPI buffer_completed(CUcontext context, uint32_t stream, uint8_t *buffer,
                                      size_t bytes, size_t valid)
{
    size_t dropped = 0;
    (void)context, (void)stream, (void)bytes;
    CUptiResult r = cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped);
    pthread_mutex_lock(&session.lock);
    if (session.open) {
        if (valid) read_records(buffer, valid);
        session.records.lost += (int64_t)dropped;
        if (r != CUPTI_SUCCESS) trouble(r, "cuptiActivityGetNumDroppedRecords");
    }
    pthread_mutex_unlock(&session.lock);
    if (buffer) keep_buffer(buffer);
}

/* --- a session ------------------------------------------------------------------------------- */

static void begin(void)
{
    pthread_mutex_lock(&session.lock);
    if (session.open) BUG("a CUPTI session is open already");
    session.records = (struct records){.arena = arena_new()};
    session.trouble = (struct error){.code = OK};
    session.open = true;
    pthread_mutex_unlock(&session.lock);
}

static void end(void)
{
    pthread_mutex_lock(&session.lock);
    session.open = false;
    struct arena *a = session.records.arena;
    session.records = (struct records){0};
    pthread_mutex_unlock(&session.lock);
    arena_free(a);
}

/* Disabled first, so that the flush returns all records; errors of either are ignored. */
static void stop(int enabled)
{
    while (enabled > 0) (void)cuptiActivityDisable(kinds[--enabled]);
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    end();
}

/* Only reduces the number of records, so errors are ignored. */
static void leave_out_queries(void)
{
#if CUPTI_API_VERSION >= 130000
    (void)cuptiActivityEnableRuntimeApi(CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020, 0);
    (void)cuptiActivityEnableDriverApi(CUPTI_DRIVER_TRACE_CBID_cuEventQuery, 0);
#endif
}

static enum status cupti_open(struct error *err)
{
    int enabled = 0;
    begin();
    enum status st =
        cupti_failed(cuptiActivityRegisterTimestampCallback(now),
                     "cuptiActivityRegisterTimestampCallback", err);
    if (st == OK)
        st = cupti_failed(cuptiActivityRegisterCallbacks(buffer_requested, buffer_completed),
                          "cuptiActivityRegisterCallbacks", err);
    while (st == OK && enabled < KINDS) {
        st = cupti_failed(cuptiActivityEnable(kinds[enabled]), "cuptiActivityEnable", err);
        enabled += st == OK;
    }
    if (st == OK)
        leave_out_queries();
    else
        stop(enabled);
    return st;
}

static enum status cupti_enter(uint64_t id, struct error *err)
{
    return cupti_failed(
        cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, id),
        "cuptiActivityPushExternalCorrelationId", err);
}

static enum status cupti_leave(struct error *err)
{
    uint64_t id;
    return cupti_failed(
        cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &id),
        "cuptiActivityPopExternalCorrelationId", err);
}

static enum status cupti_collect(struct activity_log *out, struct error *err)
{
    TRY(cupti_failed(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                     "cuptiActivityFlushAll", err));
    pthread_mutex_lock(&session.lock);
    enum status st = session.trouble.code;
    if (st == OK)
        records_join(&session.records, out);
    else
        error_set(err, st, "%s", session.trouble.text);
    pthread_mutex_unlock(&session.lock);
    return st;
}

static void cupti_close(void)
{
    pthread_mutex_lock(&session.lock);
    bool open = session.open;
    pthread_mutex_unlock(&session.lock);
    if (open) stop(KINDS);
}

__attribute__((visibility("default"))) activity_entry musher_activity;

const struct activity *musher_activity(void)
{
    static const struct activity table = {ACTIVITY_NUMBERS,        .open = cupti_open,
                                          .enter = cupti_enter,    .leave = cupti_leave,
                                          .collect = cupti_collect, .close = cupti_close};
    return &table;
}
