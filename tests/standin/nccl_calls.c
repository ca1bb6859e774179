/* tests/standin/nccl_calls.c - NCCL's calls in groups: a call is recorded, and issued at the end of its group. */
#include "tests/standin/nccl_internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Thread_local struct {
    int depth;
    ncclResult_t failed;
    struct ncclComm *first, *aborted;
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
        nccl_forget(c);
        return group.failed;
    }
    c->phase = ASKED;
    c->looks = c->blocking ? 0 : LOOKS_BEFORE;
    return nccl_through(c);
}

static bool goes_aside(void)
{
    return nccl_switch("STANDIN_NCCL_ASIDE", "1") || nccl_switch("STANDIN_NCCL_ASIDE", "never");
}

bool nccl_free_with_group(struct ncclComm *c)
{
    if (!group.depth) return false;
    if (!goes_aside()) nccl_stop(c);
    c->next_aborted = group.aborted;
    group.aborted = c;
    return true;
}

static void free_all(struct ncclComm *first)
{
    for (struct ncclComm *c = first, *next; c; c = next) {
        next = c->next_aborted;
        nccl_free_aborted(c);
    }
}

static void *free_aside(void *first)
{
    const struct timespec later = {.tv_nsec = 50000000};
    do nanosleep(&later, NULL);
    while (nccl_switch("STANDIN_NCCL_ASIDE", "never"));
    for (struct ncclComm *c = first; c; c = c->next_aborted) nccl_stop(c);
    free_all(first);
    return NULL;
}

static ncclResult_t free_aborted(void)
{
    struct ncclComm *first = group.aborted;
    pthread_t thread;
    group.aborted = NULL;
    if (!first || !goes_aside()) {
        free_all(first);
        return ncclSuccess;
    }
    if (pthread_create(&thread, NULL, free_aside, first)) abort();
    pthread_detach(thread);
    return ncclInProgress;
}

static ncclResult_t end_group(void)
{
    ncclResult_t worst = group.failed;
    if (--group.depth) return worst;
    ncclResult_t aside = free_aborted();
    if (worst == ncclSuccess) worst = aside;
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
    ncclResult_t made = nccl_count();
    if (!group.depth) return ncclInvalidUsage;
    if (group.failed == ncclSuccess) group.failed = made;
    return end_group();
}

static const char *wrong_with(const struct ncclComm *c, const struct nccl_work *x)
{
    if (!work_type_bytes(x->type)) return "a type that this twin does not know";
    if (x->root < 0 || x->root >= c->n) return "no such rank";
    if (x->n && (x->kind == WORK_SEND ? !x->in : x->kind == WORK_RECV ? !x->out : false))
        return "no buffer";
    return NULL;
}

static ncclResult_t note(struct ncclComm *c, struct nccl_work x)
{
    if (!c) return ncclInvalidArgument;
    HERE(c);
    if (c->phase != IDLE)
        return nccl_refuse(c, ncclInvalidArgument, "used before the call before was through");
    if (atomic_load(&c->bad) != ncclSuccess)
        return nccl_refuse(c, ncclInvalidUsage, "has failed before");
    const char *why = wrong_with(c, &x);
    if (why) return nccl_refuse(c, ncclInvalidArgument, why);
    struct nccl_work *kept = malloc(sizeof *kept);
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
static ncclResult_t ask(struct ncclComm *c, struct nccl_work x)
{
    ncclResult_t made = nccl_count();
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
    return c && i >= 0 && i < WEIGHTS_MAX && c->weight_used[i] ? c->weight[i] : 1;
}

static bool knows(const struct ncclComm *c, ncclRedOp_t op)
{
    int i = (int)op - ncclNumOps;
    return op == ncclSum || (c && i >= 0 && i < WEIGHTS_MAX && c->weight_used[i]);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *out, void *scalar, ncclDataType_t t,
                                      ncclScalarResidence_t residence, ncclComm_t c)
{
    float single;
    HERE(c);
    COUNT();
    if (residence != ncclScalarHostImmediate || (t != ncclFloat32 && t != ncclFloat64))
        return ncclInvalidArgument;
    for (int i = 0; i < WEIGHTS_MAX; i++) {
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
    HERE(c);
    COUNT();
    if (!knows(c, op) || op == ncclSum) return ncclInvalidArgument;
    c->weight_used[(int)op - ncclNumOps] = false;
    return ncclSuccess;
}

#define NEED_OP()                                                                                  \
    do {                                                                                           \
        HERE(c);                                                                                   \
        if (!knows(c, op)) return ncclInvalidArgument;                                             \
    } while (0)

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s)
{
    NEED_OP();
    return ask(c, (struct nccl_work){.kind = WORK_ALL_REDUCE,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .weight = weight_of(c, op),
                                .weighs = op != ncclSum,
                                .stream = s});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root,
                           ncclComm_t c, cudaStream_t s)
{
    return ask(c, (struct nccl_work){.kind = WORK_BROADCAST,
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
    return ask(c, (struct nccl_work){.kind = WORK_REDUCE,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .root = root,
                                .weight = weight_of(c, op),
                                .weighs = op != ncclSum,
                                .stream = s});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s)
{
    return ask(c, (struct nccl_work){.kind = WORK_ALL_GATHER,
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
    return ask(c, (struct nccl_work){.kind = WORK_REDUCE_SCATTER,
                                .in = in,
                                .out = out,
                                .n = n,
                                .type = t,
                                .weight = weight_of(c, op),
                                .weighs = op != ncclSum,
                                .stream = s});
}

ncclResult_t ncclSend(const void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s)
{
    return ask(
        c,
        (struct nccl_work){
            .kind = WORK_SEND, .in = p, .n = n, .type = t, .root = peer, .weight = 1, .stream = s});
}

ncclResult_t ncclRecv(void *p, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s)
{
    return ask(c, (struct nccl_work){.kind = WORK_RECV,
                                .out = p,
                                .n = n,
                                .type = t,
                                .root = peer,
                                .weight = 1,
                                .stream = s});
}
