/* tests/standin/nccl.c - NCCL's twin: the same calls, between processes or threads of one machine.
 *
 * What it keeps of the real library, because a caller can get it wrong:
 *   work is on the stream only once a call is through: on a communicator that does not block that takes two more looks at
 *   the asynchronous error, and asking anything else before is refused; calls of a group go together, one communicator's
 *   groups one after the other, whatever streams they are on; calls that do not match wait for ever; a peer that has ended
 *   shows as an asynchronous error and never as an end of the work; an abort ends the work with whatever it has; two ranks of
 *   one device are refused unless NCCL_HOSTID says that they are on different hosts.
 * STANDIN_NCCL_FAIL_AT=n[:result] makes the n-th call of the process return that (2, a system error), once; so can
 * standin_nccl_fail_at. standin_nccl_calls tells how many there were.
 * Never timed: it knows no speed.
 */
#include "tests/standin/nccl.h"

#include "tests/standin/nccl_work.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LOOKS_BEFORE = 2, WEIGHTS_MOST = 64 };

enum phase { JOINING, IDLE, ASKED, ENDING, ENDED };

struct ncclComm {
    struct wire *wire;
    int n, rank;
    bool blocking;
    enum phase phase;
    int looks;           /* that still say "in progress" */
    _Atomic int bad;     /* ncclResult_t of what has gone wrong since */
    _Atomic int stopped; /* aborted */
    _Atomic int refs;    /* the caller's, and one of each group on a stream */
    _Atomic int running; /* groups on streams */
    struct work *asked, **last;
    struct ncclComm *next; /* of the thread's group */
    bool in_group;
    cudaEvent_t after; /* the group before */
    cudaStream_t after_stream;
    bool has_after;
    double weight[WEIGHTS_MOST];
    bool weight_used[WEIGHTS_MOST];
    char said[128];
};

/* ---- failures on demand ----------------------------------------------------------------------- */

__attribute__((visibility("default"))) void standin_nccl_fail_at(long n, int result);
__attribute__((visibility("default"))) long standin_nccl_calls(void);

static _Atomic long calls, fail_at;
static _Atomic int fail_with = ncclSystemError;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    const char *text = getenv("STANDIN_NCCL_FAIL_AT");
    char *end;
    if (!text) return;
    fail_at = strtol(text, &end, 10);
    if (*end == ':') fail_with = (int)strtol(end + 1, NULL, 10);
}

void standin_nccl_fail_at(long n, int result)
{
    pthread_once(&once, read_environment);
    calls = 0;
    fail_at = n;
    fail_with = result;
}

long standin_nccl_calls(void) { return calls; }

static ncclResult_t count(void)
{
    pthread_once(&once, read_environment);
    return atomic_fetch_add(&calls, 1) + 1 == fail_at ? (ncclResult_t)fail_with : ncclSuccess;
}

#define COUNT()                                                                                    \
    do {                                                                                           \
        ncclResult_t made_ = count();                                                              \
        if (made_ != ncclSuccess) return made_;                                                    \
    } while (0)

static ncclResult_t refuse(struct ncclComm *c, ncclResult_t r, const char *why)
{
    if (c) snprintf(c->said, sizeof c->said, "%s", why);
    return r;
}

/* ---- communicators ---------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version)
{
    COUNT();
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    COUNT();
    memset(id, 0, sizeof *id);
    return wire_make_id(id->internal, sizeof id->internal) ? ncclSuccess : ncclSystemError;
}

const char *ncclGetErrorString(ncclResult_t r)
{
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "in progress"};
    return (unsigned)r < sizeof words / sizeof *words ? words[r] : "unknown result";
}

const char *ncclGetLastError(ncclComm_t c) { return c ? c->said : ""; }

static uint64_t host_hash(void)
{
    const char *named = getenv("NCCL_HOSTID");
    char name[256] = "";
    uint64_t h = 1469598103934665603u;
    if (!named) gethostname(name, sizeof name - 1);
    for (const char *p = named ? named : name; *p; p++)
        h = (h ^ (unsigned char)*p) * 1099511628211u;
    return h;
}

static void drop(struct ncclComm *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1) return;
    cudaEventDestroy(c->after);
    wire_close(c->wire);
    free(c);
}

static void forget(struct ncclComm *c)
{
    while (c->asked) {
        struct work *next = c->asked->next;
        free(c->asked);
        c->asked = next;
    }
    c->last = &c->asked;
}

static void nap(void)
{
    const struct timespec t = {.tv_nsec = 200000};
    nanosleep(&t, NULL);
}

static ncclResult_t look(struct ncclComm *c);

/* Until it is through, where the communicator blocks. */
static ncclResult_t through(struct ncclComm *c)
{
    ncclResult_t r = ncclInProgress;
    while (c->blocking && (r = look(c)) == ncclInProgress) nap();
    return r;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int device = 0;
    *out = NULL;
    COUNT();
    if (n < 1 || n > WIRE_RANKS_MOST || rank < 0 || rank >= n || !config ||
        config->magic != NCCL_CONFIG_MAGIC)
        return ncclInvalidArgument;
    if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c) return ncclSystemError;
    c->n = n, c->rank = rank, c->looks = LOOKS_BEFORE;
    atomic_store(&c->refs, 1);
    c->blocking = config->blocking != 0;
    c->last = &c->asked;
    if (cudaEventCreateWithFlags(&c->after, cudaEventDisableTiming) != cudaSuccess) {
        free(c);
        return ncclUnhandledCudaError;
    }
    c->wire = wire_open(id.internal, n, rank, host_hash(), device);
    if (!c->wire) {
        cudaEventDestroy(c->after);
        free(c);
        return ncclSystemError;
    }
    *out = c;
    return through(c);
}

/* ---- onto the streams ------------------------------------------------------------------------- */

struct plan {
    struct ncclComm *c;
    struct work *list;
};

static void carry_out(void *p)
{
    struct plan *plan = p;
    struct ncclComm *c = plan->c;
    if (!atomic_load(&c->stopped)) work_run(c->wire, c->n, c->rank, plan->list, &c->stopped);
    while (plan->list) {
        struct work *next = plan->list->next;
        free(plan->list);
        plan->list = next;
    }
    free(plan);
    atomic_fetch_sub(&c->running, 1);
    drop(c);
}

/* The first stream waits for all the others, and they for it afterwards. */
static bool others_wait(struct work *list, cudaStream_t first, cudaEvent_t event, bool before)
{
    for (struct work *x = list; x; x = x->next) {
        bool seen = x->stream == first;
        for (struct work *y = list; y != x; y = y->next) seen |= y->stream == x->stream;
        if (seen) continue;
        cudaError_t e = before ? cudaEventRecord(event, x->stream) : cudaSuccess;
        if (e == cudaSuccess) e = cudaStreamWaitEvent(before ? first : x->stream, event, 0);
        if (e != cudaSuccess) return false;
    }
    return true;
}

static ncclResult_t launch(struct ncclComm *c)
{
    cudaStream_t first = c->asked->stream;
    bool fine = !c->has_after || c->after_stream == first ||
                cudaStreamWaitEvent(first, c->after, 0) == cudaSuccess;
    struct plan *plan = malloc(sizeof *plan);
    if (!plan) abort();
    *plan = (struct plan){c, c->asked};
    fine = fine && others_wait(c->asked, first, c->after, true);
    atomic_fetch_add(&c->refs, 1);
    atomic_fetch_add(&c->running, 1);
    struct work streams[64], *list = NULL; /* the plan is gone as soon as it has run */
    int n = 0;
    for (struct work *x = c->asked; x && n < 64; x = x->next) {
        streams[n] = (struct work){.stream = x->stream, .next = list};
        list = &streams[n++];
    }
    if (!fine || cudaLaunchHostFunc(first, carry_out, plan) != cudaSuccess) {
        free(plan);
        atomic_fetch_sub(&c->running, 1);
        drop(c);
        forget(c);
        return ncclUnhandledCudaError;
    }
    c->asked = NULL;
    c->last = &c->asked;
    c->has_after = cudaEventRecord(c->after, first) == cudaSuccess;
    c->after_stream = first;
    return c->has_after && others_wait(list, first, c->after, false) ? ncclSuccess
                                                                     : ncclUnhandledCudaError;
}

/* ---- states ----------------------------------------------------------------------------------- */

static ncclResult_t look_joining(struct ncclComm *c)
{
    if (!wire_joined(c->wire))
        return wire_dead(c->wire) >= 0 ? refuse(c, ncclRemoteError, "a rank has ended")
                                       : ncclInProgress;
    if (wire_shares_device(c->wire))
        return refuse(c, ncclInvalidUsage, "two ranks use one device of one host");
    if (c->looks-- > 0) return ncclInProgress;
    c->phase = IDLE;
    return ncclSuccess;
}

static ncclResult_t look_asked(struct ncclComm *c)
{
    if (c->looks-- > 0) return ncclInProgress;
    c->phase = IDLE;
    return launch(c);
}

static ncclResult_t look_ending(struct ncclComm *c)
{
    if (c->running) return wire_dead(c->wire) >= 0 ? ncclRemoteError : ncclInProgress;
    wire_leave(c->wire, true);
    c->phase = ENDED;
    return ncclSuccess;
}

static ncclResult_t look(struct ncclComm *c)
{
    ncclResult_t r = (ncclResult_t)atomic_load(&c->bad);
    if (r != ncclSuccess) return r;
    if (c->phase == JOINING)
        r = look_joining(c);
    else if (c->phase == ASKED)
        r = look_asked(c);
    else if (c->phase == ENDING)
        r = look_ending(c);
    else if (c->running && wire_dead(c->wire) >= 0)
        r = refuse(c, ncclRemoteError, "a rank has ended");
    if (r != ncclInProgress) atomic_store(&c->bad, r);
    return r;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
    COUNT();
    *out = look(c);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    COUNT();
    if (c->phase != IDLE) return refuse(c, ncclInvalidArgument, "not idle");
    c->phase = ENDING;
    return through(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    ncclResult_t r = count(); /* what is to be freed is freed all the same */
    while (c->running && !c->stopped) nap();
    wire_leave(c->wire, true);
    forget(c);
    drop(c);
    return r;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    ncclResult_t r = count();
    atomic_store(&c->stopped, 1);
    wire_leave(c->wire, false);
    wire_ring(c->wire, c->rank);
    forget(c);
    drop(c);
    return r;
}

/* ---- calls ------------------------------------------------------------------------------------ */

static _Thread_local struct {
    int depth;
    ncclResult_t failed;
    struct ncclComm *first;
} group;

ncclResult_t ncclGroupStart(void)
{
    COUNT();
    group.depth++;
    return ncclSuccess;
}

static ncclResult_t end_of_one(struct ncclComm *c)
{
    c->in_group = false;
    if (group.failed != ncclSuccess) {
        forget(c);
        return group.failed;
    }
    c->phase = ASKED;
    c->looks = c->blocking ? 0 : LOOKS_BEFORE;
    return through(c);
}

static ncclResult_t end_group(void)
{
    ncclResult_t worst = group.failed;
    if (--group.depth) return worst;
    for (struct ncclComm *c = group.first, *next; c; c = next) {
        next = c->next;
        ncclResult_t r = end_of_one(c);
        if (worst == ncclSuccess || worst == ncclInProgress) worst = r == ncclSuccess ? worst : r;
    }
    group.first = NULL;
    group.failed = ncclSuccess;
    return worst;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t made = count();
    if (!group.depth) return ncclInvalidUsage;
    if (group.failed == ncclSuccess) group.failed = made;
    return end_group();
}

static const char *wrong_with(const struct ncclComm *c, const struct work *x)
{
    if (!work_type_bytes(x->type)) return "a type that this twin does not know";
    if (x->root < 0 || x->root >= c->n) return "no such rank";
    if (x->n && (x->kind == WORK_SEND ? !x->in : x->kind == WORK_RECV ? !x->out : false))
        return "no buffer";
    return NULL;
}

static ncclResult_t note(struct ncclComm *c, struct work x)
{
    if (!c) return ncclInvalidArgument;
    if (c->phase != IDLE)
        return refuse(c, ncclInvalidArgument, "used before the call before was through");
    if (atomic_load(&c->bad) != ncclSuccess)
        return refuse(c, ncclInvalidUsage, "has failed before");
    const char *why = wrong_with(c, &x);
    if (why) return refuse(c, ncclInvalidArgument, why);
    struct work *kept = malloc(sizeof *kept);
    if (!kept) abort();
    *kept = x;
    *c->last = kept;
    c->last = &kept->next;
    if (c->in_group) return ncclSuccess;
    c->in_group = true;
    c->next = group.first;
    group.first = c;
    return ncclSuccess;
}

/* A call alone is a group of one. */
static ncclResult_t ask(struct ncclComm *c, struct work x)
{
    ncclResult_t made = count();
    group.depth++;
    ncclResult_t r = made != ncclSuccess ? made : note(c, x);
    if (r != ncclSuccess && group.failed == ncclSuccess) group.failed = r;
    if (group.depth == 1) return end_group();
    group.depth--;
    return r;
}

static double weight_of(const struct ncclComm *c, ncclRedOp_t op)
{
    int i = (int)op - ncclNumOps;
    return c && i >= 0 && i < WEIGHTS_MOST && c->weight_used[i] ? c->weight[i] : 1;
}

static bool knows(const struct ncclComm *c, ncclRedOp_t op)
{
    int i = (int)op - ncclNumOps;
    return op == ncclSum || (c && i >= 0 && i < WEIGHTS_MOST && c->weight_used[i]);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *out, void *scalar, ncclDataType_t t,
                                      ncclScalarResidence_t residence, ncclComm_t c)
{
    float single;
    COUNT();
    if (residence != ncclScalarHostImmediate || (t != ncclFloat32 && t != ncclFloat64))
        return ncclInvalidArgument;
    for (int i = 0; i < WEIGHTS_MOST; i++) {
        if (c->weight_used[i]) continue;
        memcpy(&single, scalar, sizeof single);
        if (t == ncclFloat64)
            memcpy(&c->weight[i], scalar, sizeof c->weight[i]);
        else
            c->weight[i] = (double)single;
        c->weight_used[i] = true;
        *out = (ncclRedOp_t)(ncclNumOps + i);
        return ncclSuccess;
    }
    return ncclSystemError;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t c)
{
    COUNT();
    if (!knows(c, op) || op == ncclSum) return ncclInvalidArgument;
    c->weight_used[(int)op - ncclNumOps] = false;
    return ncclSuccess;
}

#define NEED_OP()                                                                                  \
    do {                                                                                           \
        if (!knows(c, op)) return ncclInvalidArgument;                                             \
    } while (0)

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s)
{
    NEED_OP();
    return ask(c, (struct work){.kind = WORK_ALL_REDUCE,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .weight = weight_of(c, op),
                                .stream = s});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s)
{
    return ask(c, (struct work){.kind = WORK_BROADCAST,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .root = root,
                                .weight = 1,
                                .stream = s});
}

ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op,
                        int root, ncclComm_t c, cudaStream_t s)
{
    NEED_OP();
    return ask(c, (struct work){.kind = WORK_REDUCE,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .root = root,
                                .weight = weight_of(c, op),
                                .stream = s});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s)
{
    return ask(c, (struct work){.kind = WORK_ALL_GATHER,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .weight = 1,
                                .stream = s});
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t,
                               ncclRedOp_t op, ncclComm_t c, cudaStream_t s)
{
    NEED_OP();
    return ask(c, (struct work){.kind = WORK_REDUCE_SCATTER,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .weight = weight_of(c, op),
                                .stream = s});
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return ask(
        c,
        (struct work){
            .kind = WORK_SEND, .in = p, .n = n, .type = t, .root = peer, .weight = 1, .stream = s});
}

ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
    return ask(c, (struct work){.kind = WORK_RECV,
                                .out = p,
                                .n = n,
                                .type = t,
                                .root = peer,
                                .weight = 1,
                                .stream = s});
}
