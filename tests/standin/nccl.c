/* tests/standin/nccl.c - NCCL's twin: the same calls, between processes or threads of one machine.
 *
 * What it keeps of the real library, because a caller can get it wrong:
 *   work is on the stream only once a call is through: on a communicator that does not block that takes two more looks at
 *   the asynchronous error, and asking anything else before is refused; calls of a group go together, one communicator's
 *   groups one after the other, whatever streams they are on; calls that do not match wait for ever; a peer that has ended
 *   shows as an asynchronous error and never as an end of the work; an abort ends the work with whatever it has, and then
 *   frees memory, which waits until nothing runs on the device: aborts of several are one group, or wait for one another for
 *   ever; two ranks of one device are refused unless NCCL_HOSTID says that they are on different hosts.
 * STANDIN_NCCL_TELL=file: each communicator's configuration, a line.
 * STANDIN_NCCL_VERSION=number: what it says that it is.
 * STANDIN_NCCL_DEAF=1: a peer that has ended is never told of, as between GPUs of one machine, which read each other's memory.
 * STANDIN_NCCL_STUCK=1: an abort does not return where a peer has ended, as the real one may not within a machine; always: none does.
 * STANDIN_NCCL_ASIDE=1: a group of aborts says that it is in progress and goes on in a thread of its own, a while later, as groups of
 * communicators that do not block may; never: that thread does not come to it.
 * STANDIN_NCCL_LINGER=1: the end of the process waits for aborts that have not returned, as a GPU's driver may.
 * Whoever uses a communicator that was given up is ended by SIGABRT.
 * STANDIN_NCCL_FAIL_AT=n[:result] makes the n-th call of the process return that (2, a system error), once.
 * Never timed: it knows no speed.
 */
#include "tests/standin/nccl_internal.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

/* ---- failures on demand ----------------------------------------------------------------------- */

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

ncclResult_t nccl_count(void)
{
    pthread_once(&once, read_environment);
    return atomic_fetch_add(&calls, 1) + 1 == fail_at ? (ncclResult_t)fail_with : ncclSuccess;
}

ncclResult_t nccl_refuse(struct ncclComm *c, ncclResult_t r, const char *why)
{
    if (c) snprintf(c->said, sizeof c->said, "%s", why);
    return r;
}

/* ---- communicators ---------------------------------------------------------------------------- */

ncclResult_t ncclGetVersion(int *version)
{
    COUNT();
    const char *other = getenv("STANDIN_NCCL_VERSION");
    *version = other ? (int)strtol(other, NULL, 10) : NCCL_VERSION_CODE;
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

const char *ncclGetLastError(ncclComm_t c)
{
    HERE(c);
    return c ? c->said : "";
}

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

void nccl_forget(struct ncclComm *c)
{
    while (c->asked) {
        struct nccl_work *next = c->asked->next;
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

bool nccl_switch(const char *name, const char *value)
{
    const char *text = getenv(name);
    return text && !strcmp(text, value);
}

static ncclResult_t look(struct ncclComm *c);

ncclResult_t nccl_through(struct ncclComm *c)
{
    ncclResult_t r = ncclInProgress;
    while (c->blocking && (r = look(c)) == ncclInProgress) nap();
    return r;
}

/* The networks that the library has without plugins; it takes their names in any case. */
static bool knows_net(const char *name)
{
    return !name || !strcasecmp(name, "IB") || !strcasecmp(name, "Socket");
}

/* "rank of n: maxCTAs 4, netName Socket", for tests. */
static void tell_config(int n, int rank, const ncclConfig_t *config)
{
    const char *path = getenv("STANDIN_NCCL_TELL");
    FILE *f = path ? fopen(path, "ae") : NULL;
    if (!f) return;
    fprintf(f, "%d of %d: maxCTAs %d, netName %s\n", rank, n,
            config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs,
            config->netName ? config->netName : "-");
    fclose(f);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int n, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    int device = 0;
    *out = NULL;
    COUNT();
    if (n < 1 || n > WIRE_RANKS_MAX || rank < 0 || rank >= n || !config ||
        config->magic != NCCL_CONFIG_MAGIC)
        return ncclInvalidArgument;
    if (config->maxCTAs != NCCL_CONFIG_UNDEF_INT && config->maxCTAs < 1) return ncclInvalidArgument;
    if (!knows_net(config->netName)) return ncclInvalidUsage;
    tell_config(n, rank, config);
    if (cudaGetDevice(&device) != cudaSuccess) return ncclUnhandledCudaError;
    struct ncclComm *c = calloc(1, sizeof *c);
    if (!c) return ncclSystemError;
    c->n = n, c->rank = rank, c->device = device, c->looks = LOOKS_BEFORE;
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
    nccl_made(c);
    *out = c;
    return nccl_through(c);
}

/* ---- onto the streams ------------------------------------------------------------------------- */

struct plan {
    struct ncclComm *c;
    struct nccl_work *list;
};

static void carry_out(void *p)
{
    struct plan *plan = p;
    struct ncclComm *c = plan->c;
    if (!atomic_load(&c->stopped)) work_run(c->wire, c->n, c->rank, plan->list, &c->stopped);
    while (plan->list) {
        struct nccl_work *next = plan->list->next;
        free(plan->list);
        plan->list = next;
    }
    free(plan);
    atomic_fetch_sub(&c->running, 1);
    drop(c);
}

/* The first stream waits for all the others, and they for it afterwards. */
static bool others_wait(struct nccl_work *list, cudaStream_t first, cudaEvent_t event, bool before)
{
    for (struct nccl_work *x = list; x; x = x->next) {
        bool seen = x->stream == first;
        for (struct nccl_work *y = list; y != x; y = y->next) seen |= y->stream == x->stream;
        if (seen) continue;
        cudaError_t e = before ? cudaEventRecord(event, x->stream) : cudaSuccess;
        if (e == cudaSuccess) e = cudaStreamWaitEvent(before ? first : x->stream, event, 0);
        if (e != cudaSuccess) return false;
    }
    return true;
}

static ncclResult_t launch_here(struct ncclComm *c)
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
    struct nccl_work streams[64], *list = NULL; /* the plan is gone as soon as it has run */
    int n = 0;
    for (struct nccl_work *x = c->asked; x && n < 64; x = x->next) {
        streams[n] = (struct nccl_work){.stream = x->stream, .next = list};
        list = &streams[n++];
    }
    if (!fine || cudaLaunchHostFunc(first, carry_out, plan) != cudaSuccess) {
        free(plan);
        atomic_fetch_sub(&c->running, 1);
        drop(c);
        nccl_forget(c);
        return ncclUnhandledCudaError;
    }
    c->asked = NULL;
    c->last = &c->asked;
    c->has_after = cudaEventRecord(c->after, first) == cudaSuccess;
    c->after_stream = first;
    return c->has_after && others_wait(list, first, c->after, false) ? ncclSuccess
                                                                     : ncclUnhandledCudaError;
}

/* The caller may be busy with another device. */
static ncclResult_t launch(struct ncclComm *c)
{
    int before = 0;
    if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(c->device) != cudaSuccess) {
        nccl_forget(c);
        return ncclUnhandledCudaError;
    }
    ncclResult_t r = launch_here(c);
    return cudaSetDevice(before) == cudaSuccess ? r : ncclUnhandledCudaError;
}

/* ---- states ----------------------------------------------------------------------------------- */

static bool hears_of_an_end(const struct ncclComm *c)
{
    return !nccl_switch("STANDIN_NCCL_DEAF", "1") && wire_dead(c->wire) >= 0;
}

static ncclResult_t look_joining(struct ncclComm *c)
{
    if (!wire_joined(c->wire))
        return wire_dead(c->wire) >= 0 ? nccl_refuse(c, ncclRemoteError, "a rank has ended")
                                       : ncclInProgress;
    if (wire_shares_device(c->wire))
        return nccl_refuse(c, ncclInvalidUsage, "two ranks use one device of one host");
    if (c->looks-- > 0) return ncclInProgress;
    c->phase = IDLE;
    return ncclSuccess;
}

static ncclResult_t look_requested(struct ncclComm *c)
{
    if (c->looks-- > 0) return ncclInProgress;
    c->phase = IDLE;
    return launch(c);
}

static ncclResult_t look_ending(struct ncclComm *c)
{
    if (c->running) return hears_of_an_end(c) ? ncclRemoteError : ncclInProgress;
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
        r = look_requested(c);
    else if (c->phase == ENDING)
        r = look_ending(c);
    else if (c->running && hears_of_an_end(c))
        r = nccl_refuse(c, ncclRemoteError, "a rank has ended");
    if (r != ncclInProgress) atomic_store(&c->bad, r);
    return r;
}

/* Not counted: how often it is asked depends on time. */
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
    HERE(c);
    *out = look(c);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
    HERE(c);
    COUNT();
    if (c->phase != IDLE) return nccl_refuse(c, ncclInvalidArgument, "not idle");
    c->phase = ENDING;
    return nccl_through(c);
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    HERE(c);
    ncclResult_t r = nccl_count(); /* what is to be freed is freed all the same */
    while (c->running && !c->stopped) nap();
    wire_leave(c->wire, true);
    nccl_forget(c);
    nccl_gone(c);
    drop(c);
    return r;
}

/* As cudaFree does. */
static void wait_for_device(int device)
{
    int before = 0;
    if (cudaGetDevice(&before) != cudaSuccess || cudaSetDevice(device) != cudaSuccess) return;
    cudaDeviceSynchronize();
    cudaSetDevice(before);
}

/* In flight: what the end of the process may wait for. */
static _Atomic int aborts;

__attribute__((destructor)) static void linger(void)
{
    while (nccl_switch("STANDIN_NCCL_LINGER", "1") && atomic_load(&aborts)) nap();
}

static bool is_stuck(const struct ncclComm *c)
{
    return nccl_switch("STANDIN_NCCL_STUCK", "always") ||
           (nccl_switch("STANDIN_NCCL_STUCK", "1") && wire_dead(c->wire) >= 0);
}

void nccl_stop(struct ncclComm *c)
{
    atomic_store(&c->stopped, 1);
    wire_leave(c->wire, false);
    wire_ring(c->wire, c->rank);
    nccl_forget(c);
}

void nccl_free_aborted(struct ncclComm *c)
{
    while (is_stuck(c)) nap();
    wait_for_device(c->device);
    drop(c);
    atomic_fetch_sub(&aborts, 1);
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
    HERE(c);
    ncclResult_t r = nccl_count();
    nccl_gone(c);
    atomic_fetch_add(&aborts, 1);
    if (nccl_free_with_group(c)) return r;
    nccl_stop(c);
    nccl_free_aborted(c);
    return r;
}
