/* tests/standin/nccl_internal.h - a communicator of the stand-in's NCCL; for nccl.c and nccl_calls.c only. */
#ifndef TESTS_STANDIN_NCCL_INTERNAL_H
#define TESTS_STANDIN_NCCL_INTERNAL_H

#include "tests/standin/nccl.h"
#include "tests/standin/nccl_work.h"

#include <stdbool.h>

enum { LOOKS_BEFORE = 2, WEIGHTS_MAX = 64 };

enum nccl_phase { JOINING, IDLE, ASKED, ENDING, ENDED };

struct ncclComm {
    struct wire *wire;
    int n, rank, device;
    bool blocking;
    enum nccl_phase phase;
    int looks;           /* polls that still return "in progress" */
    _Atomic int bad;     /* ncclResult_t of the first asynchronous error */
    _Atomic int stopped; /* aborted */
    _Atomic int refs;    /* the caller's, and one per group on a stream */
    _Atomic int running; /* groups on streams */
    struct nccl_work *asked, **last;
    struct ncclComm *next; /* of the thread's group */
    bool in_group;
    struct ncclComm *next_aborted; /* of the thread's group */
    cudaEvent_t after; /* the group before */
    cudaStream_t after_stream;
    bool has_after;
    double weight[WEIGHTS_MAX];
    bool weight_used[WEIGHTS_MAX];
    char said[128];
};

/* Begin of every call: success, or the failure requested for it. */
ncclResult_t nccl_count(void);
#define COUNT()                                                                                    \
    do {                                                                                           \
        ncclResult_t made_ = nccl_count();                                                         \
        if (made_ != ncclSuccess) return made_;                                                    \
    } while (0)
ncclResult_t nccl_refuse(struct ncclComm *c, ncclResult_t r, const char *why);
void nccl_forget(struct ncclComm *c); /* drops calls that are not on a stream */
bool nccl_switch(const char *name, const char *value); /* of the environment */
/* Ends an aborted communicator's work on streams, and notifies its peers. */
void nccl_stop(struct ncclComm *c);
/* Waits for the device and frees an aborted communicator. */
void nccl_free_aborted(struct ncclComm *c);
/* Defers nccl_free_aborted, or nccl_stop as well, to the end of the thread's group; false: no group is open. */
bool nccl_free_with_group(struct ncclComm *c);
/* nccl_given_up.c: which communicators may be used; SIGABRT for one that may not. */
void nccl_made(struct ncclComm *c);
void nccl_gone(struct ncclComm *c);
void nccl_need(struct ncclComm *c, const char *call);
#define HERE(c) nccl_need(c, __func__)
/* Waits for completion on a blocking communicator. */
ncclResult_t nccl_through(struct ncclComm *c);

#endif
