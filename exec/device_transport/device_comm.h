/* exec/device_transport/device_comm.h - messages and collectives between devices of one backend, asked of its streams (NCCL on CUDA).
 *
 * A communicator is the ranks that talk together, over one route: one a pair of stages, one a group. What is asked of a communicator's
 * ranks must be asked in the same order by all. Nothing here waits for a peer: what takes place on a stream ends there, and
 * `check` tells what has gone wrong since. A communicator that was given up is closed by `close` like any other.
 * Errors: ERR_RANK where a peer is gone or does not answer within the communicator's time limit, ERR_RESOURCE else.
 */
#ifndef EXEC_DEVICE_TRANSPORT_DEVICE_COMM_H
#define EXEC_DEVICE_TRANSPORT_DEVICE_COMM_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct backend;

enum { DEVICE_COMM_ID_BYTES = 128 };

struct communicator_options {
    const unsigned char *id; /* (DEVICE_COMM_ID_BYTES), made by one of them */
    int32_t n, rank;
    int32_t max_ctas;     /* thread blocks that its kernels may take; 0: the library's choice */
    const char *net_name; /* which of the library's transports; NULL: its choice */
    int64_t limit_ns;     /* a peer that does not answer for so long is gone */
    const char *name;     /* for errors: what the communicator is for */
};

struct device_comm {
    const char *name; /* "nccl" */
    int32_t version;  /* as the library counts, 22809 */
    enum status (*make_id)(unsigned char *out, struct error *err);
    /* May return before all have joined; joined says so (ERR_RANK past the limit). */
    enum status (*open)(struct backend *b, const struct communicator_options *o, void **out,
                        struct error *err);
    enum status (*joined)(struct backend *b, void *communicator, bool *out, struct error *err);
    void (*close)(struct backend *b, void *communicator);
    /* (n) of one device at once, all that have something in flight there: to give up one, a library may wait until nothing
     * runs on the device. Peers learn of it by their own check. Takes some seconds at most: a library that has not ended by then is
     * left to itself, and close of the backend takes nothing back. */
    void (*give_up)(struct backend *b, void *const *communicators, int32_t n);
    enum status (*check)(struct backend *b, void *communicator, struct error *err);
    /* What is asked between them starts as one, in no order. */
    enum status (*group_begin)(struct backend *b, struct error *err);
    enum status (*group_end)(struct backend *b, struct error *err);
    enum status (*send)(struct backend *b, void *communicator, int32_t stream, const void *p,
                        int64_t n, enum dtype t, int32_t peer, struct error *err);
    enum status (*receive)(struct backend *b, void *communicator, int32_t stream, void *p,
                           int64_t n, enum dtype t, int32_t peer, struct error *err);
    /* n elements of each rank. weight: each rank's own, of its summand (ncclRedOpCreatePreMulSum); 0 on all of them: a plain
     * sum, which is another operator than weights of 1. in == out is in place. */
    enum status (*all_reduce)(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, double weight, struct error *err);
    enum status (*broadcast)(struct backend *b, void *communicator, int32_t stream, const void *in,
                             void *out, int64_t n, enum dtype t, int32_t root, struct error *err);
    enum status (*reduce)(struct backend *b, void *communicator, int32_t stream, const void *in,
                          void *out, int64_t n, enum dtype t, double weight, int32_t root,
                          struct error *err);
    /* n elements a rank, equal: the padded form of uneven shards. */
    enum status (*all_gather)(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, struct error *err);
    enum status (*reduce_scatter)(struct backend *b, void *communicator, int32_t stream,
                                  const void *in, void *out, int64_t n, enum dtype t, double weight,
                                  struct error *err);
};

#endif
