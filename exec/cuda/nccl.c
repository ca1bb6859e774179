/* exec/cuda/nccl.c - struct device_comm (exec/device_transport/device_comm.h) by NCCL.
 *
 * The library is opened on first use, not linked: a single GPU needs none, and a host with a driver but no NCCL can
 * train on one. MUSHER_NCCL names another file than libnccl.so.2.
 *
 * Every communicator is non-blocking. A call may return "in progress"; until it completes, no other call may be made
 * on the communicator and the stream has no work yet: an event recorded then would precede the work. So each call, or
 * the end of each group, is settled: asynchronous errors are polled until the call completes. That is soon, because
 * connections exist (exec/device_transport/communicators.c sends a first message in each communicator); otherwise a
 * peer is dead, and the call fails at the communicator's time limit.
 *
 * Communicators are aborted together. Before it frees one, NCCL waits until the device is idle, and work of another
 * communicator ends only with its own abort: aborts one after the other would deadlock. From 2.22 on aborts run in
 * one group; before, each has a thread, because each marks its communicator as aborted before it waits. An abort may
 * itself wait for a dead peer, above all within a host, so the wait is limited to GIVE_UP_NS. Then running work
 * continues until the process ends, which is soon, and the device is abandoned: nothing is waited for or freed. A
 * group may also finish asynchronously, with no way to query what it frees; then the device is polled until it is
 * idle.
 *
 * Group membership is per thread, like NCCL's groups. A weight is NCCL's PreMulSum operator, created once per weight
 * and type of a communicator. Rejected: blocking communicators with a watchdog thread, because NCCL hardly supports
 * an abort from another thread while the first one is inside the library.
 */
#include "exec/cuda/nccl.h"

#include "core/base/arena.h"
#include "exec/backend.h"
#include "exec/clock.h"
#include "exec/cuda/context.h"
#include "exec/cuda/watchdog_call.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LIBRARY "libnccl.so.2"
#define VERSION_MIN 21400  /* the first with non-blocking communicators */
#define VERSION_ABORTS 22200 /* the first whose groups can abort */
#define NS_PER_S 1e9
#define LOOKS_AT_ONCE 200 /* polls before sleeping between them … */
#define SLEEP_NS 20000    /* … for this long */
#define GIVE_UP_NS INT64_C(2000000000) /* less than LOCAL_PATIENCE_S, which the launcher waits for ranks */

/* ---- the library ------------------------------------------------------------------------------ */

/* clang-format off */
#define CALLS(X)                                                                                   \
    X(ncclGetVersion) X(ncclGetUniqueId) X(ncclGetErrorString) X(ncclGetLastError)                 \
    X(ncclCommInitRankConfig) X(ncclCommFinalize) X(ncclCommDestroy) X(ncclCommAbort)              \
    X(ncclCommGetAsyncError) X(ncclRedOpCreatePreMulSum) X(ncclRedOpDestroy)                       \
    X(ncclAllReduce) X(ncclBroadcast) X(ncclReduce) X(ncclAllGather) X(ncclReduceScatter)          \
    X(ncclSend) X(ncclRecv) X(ncclGroupStart) X(ncclGroupEnd)
/* clang-format on */

static struct {
#define X(name) __typeof__(name) *name;
    CALLS(X)
#undef X
} lib;

static const char *file_name(void)
{
    const char *named = getenv("MUSHER_NCCL");
    return named && *named ? named : LIBRARY;
}

static enum status find_calls(void *handle, struct error *err)
{
    void *at;
#define X(name)                                                                                    \
    at = dlsym(handle, #name);                                                                     \
    if (!at) return error_set(err, ERR_RESOURCE, "%s has no %s", file_name(), #name);              \
    memcpy(&lib.name, &at, sizeof at);
    CALLS(X)
#undef X
    return OK;
}

static enum status load(int32_t *version, struct error *err)
{
    int number = 0;
    void *handle = dlopen(file_name(), RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return error_set(err, ERR_RESOURCE,
                         "devices cannot communicate directly without NCCL: %s (install it, or "
                         "set MUSHER_NCCL to its file)",
                         dlerror());
    enum status status = find_calls(handle, err);
    if (status == OK && lib.ncclGetVersion(&number) != ncclSuccess)
        status = error_set(err, ERR_RESOURCE, "%s does not report its version", file_name());
    if (status == OK && number < VERSION_MIN)
        status = error_set(err, ERR_RESOURCE, "%s is NCCL version %d; at least %d is needed",
                           file_name(), number, VERSION_MIN);
    if (status != OK) dlclose(handle); /* else it stays open until the process ends */
    *version = number;
    return status;
}

/* ---- errors ----------------------------------------------------------------------------------- */

struct weight { /* PreMulSum operator: Σ weight · x */
    double weight;
    ncclDataType_t type;
    ncclRedOp_t op;
};

struct communicator {
    struct arena *a;
    ncclComm_t comm; /* NULL: aborted */
    const char *name;
    int32_t n, rank;
    int64_t limit_ns, since_ns; /* since: start of joining */
    bool joined;
    struct weight *weights;
    size_t n_weights, weights_capacity;
    struct communicator *next_in_group;
    bool in_group;
};

static struct error *own_error(struct error *err, struct error *own) { return err ? err : own; }

/* The library's last error may exceed a line and be stale, so it is read after a failure only. */
static enum status say(const struct communicator *x, ncclResult_t r, const char *call, struct error *err)
{
    const char *more = x && x->comm ? lib.ncclGetLastError(x->comm) : NULL;
    int length = more ? (int)strcspn(more, "\n") : 0;
    /* After joining, socket errors are caused by the peer. */
    bool peer = r == ncclRemoteError || (r == ncclSystemError && x && x->joined);
    return error_set(err, peer ? ERR_RANK : ERR_RESOURCE, "%s%s%s%s%s failed: %s (%d)%s%.*s",
                     x ? "communicator " : "", x ? x->name : "", peer ? ": a peer is gone" : "",
                     x || peer ? ": " : "", call, lib.ncclGetErrorString(r), (int)r,
                     length ? ": " : "", length > 160 ? 160 : length, more ? more : "");
}

static enum status of_call(const struct communicator *x, ncclResult_t r, const char *call,
                           struct error *err)
{
    return r == ncclSuccess || r == ncclInProgress ? OK : say(x, r, call, err);
}

/* ---- giving up -------------------------------------------------------------------------------- */

struct parting { /* communicators aborted together */
    struct arena *a;
    bool in_a_group; /* else one thread each */
    int32_t n;
    ncclComm_t *comm; /* (n) */
    bool is_through;  /* all aborts are complete; none continues asynchronously */
};

static void *abort_here(void *comm)
{
    lib.ncclCommAbort(comm);
    return NULL;
}

/* If no thread can be created, nothing waits for the rest: the process is about to end. */
static void abort_separately(const struct parting *p)
{
    pthread_t *thread = ARENA_ARRAY(p->a, pthread_t, (size_t)p->n);
    int32_t made = 0;
    for (int32_t i = 0; i < p->n; i++)
        made += pthread_create(&thread[made], NULL, abort_here, p->comm[i]) == 0;
    for (int32_t i = 0; i < made; i++) pthread_join(thread[i], NULL);
}

static void part(void *owner)
{
    struct parting *p = owner;
    if (!p->in_a_group || lib.ncclGroupStart() != ncclSuccess) {
        abort_separately(p);
        p->is_through = true;
        return;
    }
    for (int32_t i = 0; i < p->n; i++) lib.ncclCommAbort(p->comm[i]);
    /* For non-blocking communicators the group may continue in a thread of its own, which cannot be queried. */
    p->is_through = lib.ncclGroupEnd() != ncclInProgress;
}

static void give_up(struct backend *b, void *const *communicators, int32_t n)
{
    struct arena *a = arena_new();
    struct parting *p = ARENA_ARRAY(a, struct parting, 1);
    *p = (struct parting){.a = a,
                          .in_a_group = b->comm->version >= VERSION_ABORTS,
                          .comm = ARENA_ARRAY(a, ncclComm_t, (size_t)n + 1)};
    for (int32_t i = 0; i < n; i++) {
        struct communicator *x = communicators[i];
        if (x->comm) p->comm[p->n++] = x->comm;
        x->comm = NULL;
    }
    /* The wait happens once per device. */
    bool asks = p->n && !cuda_is_abandoned(b);
    int64_t until_ns = clock_wall_ns() + GIVE_UP_NS;
    bool ended = !asks || watchdog_call(part, p, GIVE_UP_NS);
    if (!ended)
        cuda_abandon(b);
    else if (asks && !p->is_through)
        cuda_await_rest(b, until_ns);
    if (ended) arena_free(a); /* else the thread keeps it */
}

static enum status given_up(const struct communicator *x, struct error *err)
{
    return error_set(err, ERR_RANK, "communicator %s was aborted", x->name);
}

/* ---- completion of a call --------------------------------------------------------------------- */

static void rest(int look)
{
    const struct timespec t = {.tv_nsec = SLEEP_NS};
    if (look >= LOOKS_AT_ONCE) nanosleep(&t, NULL);
}

static enum status settle(struct communicator *x, const char *call, struct error *err)
{
    ncclResult_t now = ncclSuccess;
    int64_t until = clock_wall_ns() + x->limit_ns;
    for (int look = 0;; look++) {
        ncclResult_t r = lib.ncclCommGetAsyncError(x->comm, &now);
        if (r != ncclSuccess) return say(x, r, "ncclCommGetAsyncError", err);
        if (now != ncclInProgress) return of_call(x, now, call, err);
        if (clock_wall_ns() > until) break;
        rest(look);
    }
    return error_set(err, ERR_RANK,
                     "communicator %s: %s did not complete within %.0f s: a peer is gone", x->name,
                     call, (double)x->limit_ns / NS_PER_S);
}

/* ---- groups ----------------------------------------------------------------------------------- */

static _Thread_local struct {
    bool open;
    struct communicator *first;
} group;

static enum status group_begin(struct backend *b, struct error *err)
{
    TRY(cuda_enter(b, err));
    TRY(of_call(NULL, lib.ncclGroupStart(), "ncclGroupStart", err));
    group.open = true;
    group.first = NULL;
    return OK;
}

static enum status group_end(struct backend *b, struct error *err)
{
    (void)b;
    enum status status = of_call(group.first, lib.ncclGroupEnd(), "ncclGroupEnd", err);
    group.open = false;
    for (struct communicator *x = group.first, *next; x; x = next) {
        next = x->next_in_group;
        x->in_group = false;
        if (status == OK && x->comm) status = settle(x, "a group of calls", err);
    }
    group.first = NULL;
    return status;
}

/* After a call: settles it now, or at the end of the group. */
static enum status asked(struct communicator *x, ncclResult_t r, const char *call, struct error *err)
{
    TRY(of_call(x, r, call, err));
    if (!group.open) return settle(x, call, err);
    if (!x->in_group) {
        x->in_group = true;
        x->next_in_group = group.first;
        group.first = x;
    }
    return OK;
}

/* ---- communicators ---------------------------------------------------------------------------------- */

static enum status make_id(unsigned char *out, struct error *err)
{
    ncclUniqueId id;
    _Static_assert(sizeof id == DEVICE_COMM_ID_BYTES, "device_comm.h has room for an id");
    TRY(of_call(NULL, lib.ncclGetUniqueId(&id), "ncclGetUniqueId", err));
    memcpy(out, &id, sizeof id);
    return OK;
}

static enum status open_communicator(struct backend *b, const struct communicator_options *o, void **out,
                               struct error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    TRY(cuda_enter(b, err));
    memcpy(&id, o->id, sizeof id);
    config.blocking = 0;
    if (o->max_ctas > 0) config.minCTAs = 1, config.maxCTAs = o->max_ctas;
    if (o->net_name) config.netName = o->net_name;
    struct arena *a = arena_new();
    struct communicator *x = ARENA_ARRAY(a, struct communicator, 1);
    *x = (struct communicator){.a = a,
                         .name = arena_strdup(a, o->name),
                         .n = o->n,
                         .rank = o->rank,
                         .limit_ns = o->limit_ns,
                         .since_ns = clock_wall_ns()};
    ncclResult_t r = lib.ncclCommInitRankConfig(&x->comm, o->n, id, o->rank, &config);
    enum status status = of_call(x, r, "ncclCommInitRankConfig", err);
    if (status == OK) {
        *out = x;
        return OK;
    }
    give_up(b, (void *[]){x}, 1);
    arena_free(a);
    return status;
}

static enum status joined(struct backend *b, void *communicator, bool *out, struct error *err)
{
    struct communicator *x = communicator;
    ncclResult_t now = ncclSuccess;
    (void)b;
    *out = x->joined;
    if (!x->comm) return given_up(x, err);
    if (x->joined) return OK;
    TRY(of_call(x, lib.ncclCommGetAsyncError(x->comm, &now), "ncclCommGetAsyncError", err));
    TRY(of_call(x, now, "ncclCommInitRankConfig", err));
    *out = x->joined = now == ncclSuccess;
    if (x->joined || clock_wall_ns() - x->since_ns <= x->limit_ns) return OK;
    return error_set(err, ERR_RANK, "communicator %s: its %" PRId32 " ranks did not all join within %.0f s",
                     x->name, x->n, (double)x->limit_ns / NS_PER_S);
}

/* Peers may be dead by now: a communicator that cannot close in order is aborted. */
static void close_communicator(struct backend *b, void *communicator)
{
    struct communicator *x = communicator;
    struct error own;
    if (!x) return;
    for (size_t i = 0; x->comm && i < x->n_weights; i++)
        lib.ncclRedOpDestroy(x->weights[i].op, x->comm);
    if (x->comm && x->joined &&
        of_call(x, lib.ncclCommFinalize(x->comm), "ncclCommFinalize", &own) == OK &&
        settle(x, "ncclCommFinalize", &own) == OK) {
        lib.ncclCommDestroy(x->comm);
        x->comm = NULL;
    }
    give_up(b, &communicator, 1);
    arena_free(x->a);
}

static enum status check(struct backend *b, void *communicator, struct error *err)
{
    struct communicator *x = communicator;
    ncclResult_t now = ncclSuccess;
    (void)b;
    if (!x->comm) return given_up(x, err);
    TRY(of_call(x, lib.ncclCommGetAsyncError(x->comm, &now), "ncclCommGetAsyncError", err));
    return of_call(x, now, "work in flight", err);
}

/* ---- calls ------------------------------------------------------------------------------------ */

static ncclDataType_t type_of(enum dtype t)
{
    static const ncclDataType_t types[] = {[DTYPE_fp32] = ncclFloat32,
                                           [DTYPE_fp64] = ncclFloat64,
                                           [DTYPE_bf16] = ncclBfloat16,
                                           [DTYPE_fp16] = ncclFloat16,
                                           [DTYPE_int32] = ncclInt32};
    return types[t];
}

static enum status make_weight(struct communicator *x, double weight, enum dtype t, ncclRedOp_t *out,
                               struct error *err)
{
    ncclDataType_t type = type_of(t);
    float single = (float)weight;
    for (size_t i = 0; i < x->n_weights; i++)
        if (x->weights[i].weight == weight && x->weights[i].type == type) {
            *out = x->weights[i].op;
            return OK;
        }
    if (t != DTYPE_fp32 && t != DTYPE_fp64)
        return error_set(err, ERR_INPUT, "communicator %s: a weighted sum is of fp32 or fp64, not of %s",
                         x->name, dtype_name(t));
    void *scalar = t == DTYPE_fp64 ? (void *)&weight : (void *)&single;
    ncclRedOp_t op;
    TRY(of_call(x,
                lib.ncclRedOpCreatePreMulSum(&op, scalar, type, ncclScalarHostImmediate, x->comm),
                "ncclRedOpCreatePreMulSum", err));
    x->weights =
        arena_grow(x->a, x->weights, x->n_weights, &x->weights_capacity, sizeof *x->weights);
    x->weights[x->n_weights++] = (struct weight){weight, type, op};
    *out = op;
    return OK;
}

/* Selects the reduction operator; the communicator must be open. */
static enum status ready(struct backend *b, struct communicator *x, double weight, enum dtype t,
                         ncclRedOp_t *op, struct error *err)
{
    if (!x->comm) return given_up(x, err);
    *op = ncclSum;
    TRY(cuda_enter(b, err));
    return weight == 0 ? OK : make_weight(x, weight, t, op, err);
}

#define CALL(name, weight_, ...)                                                                   \
    do {                                                                                           \
        struct communicator *x = communicator;                                                                 \
        struct error own_;                                                                         \
        ncclRedOp_t op;                                                                            \
        err = own_error(err, &own_);                                                               \
        TRY(ready(b, x, weight_, t, &op, err));                                                    \
        (void)op;                                                                                  \
        cudaStream_t s = cuda_context_of(b, stream)->stream;                                       \
        return asked(x, lib.name(__VA_ARGS__, x->comm, s), #name, err);                            \
    } while (0)

static enum status send(struct backend *b, void *communicator, int32_t stream, const void *p, int64_t n,
                        enum dtype t, int32_t peer, struct error *err)
{
    CALL(ncclSend, 0, p, (size_t)n, type_of(t), peer);
}

static enum status receive(struct backend *b, void *communicator, int32_t stream, void *p, int64_t n,
                           enum dtype t, int32_t peer, struct error *err)
{
    CALL(ncclRecv, 0, p, (size_t)n, type_of(t), peer);
}

static enum status all_reduce(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, double weight, struct error *err)
{
    CALL(ncclAllReduce, weight, in, out, (size_t)n, type_of(t), op);
}

static enum status broadcast(struct backend *b, void *communicator, int32_t stream, const void *in,
                             void *out, int64_t n, enum dtype t, int32_t root, struct error *err)
{
    CALL(ncclBroadcast, 0, in, out, (size_t)n, type_of(t), root);
}

static enum status reduce(struct backend *b, void *communicator, int32_t stream, const void *in,
                          void *out, int64_t n, enum dtype t, double weight, int32_t root,
                          struct error *err)
{
    CALL(ncclReduce, weight, in, out, (size_t)n, type_of(t), op, root);
}

static enum status all_gather(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, struct error *err)
{
    CALL(ncclAllGather, 0, in, out, (size_t)n, type_of(t));
}

static enum status reduce_scatter(struct backend *b, void *communicator, int32_t stream, const void *in,
                                  void *out, int64_t n, enum dtype t, double weight,
                                  struct error *err)
{
    CALL(ncclReduceScatter, weight, in, out, (size_t)n, type_of(t), op);
}

/* ---- the table -------------------------------------------------------------------------------- */

static struct device_comm table = {.name = "nccl",
                                   .make_id = make_id,
                                   .open = open_communicator,
                                   .joined = joined,
                                   .close = close_communicator,
                                   .give_up = give_up,
                                   .check = check,
                                   .group_begin = group_begin,
                                   .group_end = group_end,
                                   .send = send,
                                   .receive = receive,
                                   .all_reduce = all_reduce,
                                   .broadcast = broadcast,
                                   .reduce = reduce,
                                   .all_gather = all_gather,
                                   .reduce_scatter = reduce_scatter};

const struct device_comm *cuda_device_comm(struct error *err)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static bool tried;
    static enum status status;
    static struct error why;
    pthread_mutex_lock(&mutex);
    if (!tried) status = load(&table.version, &why);
    tried = true;
    pthread_mutex_unlock(&mutex);
    if (status == OK) return &table;
    error_set(err, why.code, "%s", why.text);
    return NULL;
}
