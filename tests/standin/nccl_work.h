/* tests/standin/nccl_work.h - one group of calls of one communicator, carried out on a stream's thread. */
#ifndef TESTS_STANDIN_NCCL_WORK_H
#define TESTS_STANDIN_NCCL_WORK_H

#include "tests/standin/nccl.h"
#include "tests/standin/nccl_wire.h"

#include <stdatomic.h>
#include <stdbool.h>

enum work_kind {
    WORK_SEND,
    WORK_RECV,
    WORK_ALL_REDUCE,
    WORK_BROADCAST,
    WORK_REDUCE,
    WORK_ALL_GATHER,
    WORK_REDUCE_SCATTER
};

struct nccl_work { /* one call */
    enum work_kind kind;
    const void *in;
    void *out;
    size_t n;
    ncclDataType_t type;
    int root; /* peer of SEND and RECV; 0 where a kind has none */
    double weight;
    bool weighs; /* its operator is one that multiplies first, which all ranks' must be then: other kernels add */
    cudaStream_t stream;
    struct nccl_work *next;

    unsigned char *mine;  /* while it is carried out: a copy of what this rank gives, weighted */
    unsigned char *terms; /* (n_ranks) what it gets of each, to be summed */
};

size_t work_type_bytes(ncclDataType_t t); /* 0: unknown here */
/* All of the list at once; returns when all are done, or *stopped is set. A call that does not match what its peer calls
 * never ends, nor does one whose peer is gone. */
void work_run(struct wire *w, int n, int rank, struct nccl_work *list, const _Atomic int *stopped);

#endif
