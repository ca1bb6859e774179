/* tests/standin/nccl_work.h - one group of calls of one communicator, executed on a stream's thread. */
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
    int root; /* peer of SEND and RECV; 0 for kinds without one */
    double weight;
    bool weighs; /* PreMulSum operator, which all ranks must then use, because it has other kernels */
    cudaStream_t stream;
    struct nccl_work *next;

    unsigned char *mine;  /* during execution: a copy of this rank's weighted input */
    unsigned char *terms; /* (n_ranks) inputs from each rank, to be summed */
};

size_t work_type_bytes(ncclDataType_t t); /* 0: unknown here */
/* Runs all calls of the list together; returns when all are done, or *stopped is set. A call that does not match its
 * peer's, or whose peer is gone, never ends. */
void work_run(struct wire *w, int n, int rank, struct nccl_work *list, const _Atomic int *stopped);

#endif
