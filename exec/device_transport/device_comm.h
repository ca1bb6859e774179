/* exec/device_transport/device_comm.h - interface of a communication library (NCCL on CUDA): messages and collectives
 * on a backend's streams.
 *
 * A communicator is a set of ranks on one transport of the library: one per pair of stages, one per group of members.
 * All its ranks must issue its calls in the same order. No call waits for a peer: operations complete on their
 * streams, and `check` reports asynchronous errors. `close` also closes an aborted communicator. Errors: ERR_RANK if
 * a peer is dead or does not answer within the time limit, else ERR_RESOURCE.
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
    const unsigned char *id; /* (DEVICE_COMM_ID_BYTES), created by one member */
    int32_t n, rank;
    int32_t max_ctas;     /* thread blocks (CTAs) of its kernels; 0: the library's choice */
    const char *net_name; /* network transport (netName of ncclConfig_t); NULL: the library's choice */
    int64_t limit_ns;     /* a peer that does not answer for this long is dead */
    const char *name;     /* for errors: the communicator's use */
};

struct device_comm {
    const char *name; /* "nccl" */
    int32_t version;  /* in the library's encoding, 22809 */
    enum status (*make_id)(unsigned char *out, struct error *err);
    /* May return before all members have joined; `joined` reports that (ERR_RANK after the limit). */
    enum status (*open)(struct backend *b, const struct communicator_options *o, void **out,
                        struct error *err);
    enum status (*joined)(struct backend *b, void *communicator, bool *out, struct error *err);
    void (*close)(struct backend *b, void *communicator);
    /* Aborts n communicators, which must be all of one device with work in flight, because the library may wait until
     * the device is idle. Peers notice by their own check. Takes some seconds at most; a library that does not return
     * by then is abandoned, and close of the backend frees nothing. */
    void (*give_up)(struct backend *b, void *const *communicators, int32_t n);
    enum status (*check)(struct backend *b, void *communicator, struct error *err);
    /* Calls in between start together, in no order (ncclGroupStart/End). */
    enum status (*group_begin)(struct backend *b, struct error *err);
    enum status (*group_end)(struct backend *b, struct error *err);
    enum status (*send)(struct backend *b, void *communicator, int32_t stream, const void *p,
                        int64_t n, enum dtype t, int32_t peer, struct error *err);
    enum status (*receive)(struct backend *b, void *communicator, int32_t stream, void *p,
                           int64_t n, enum dtype t, int32_t peer, struct error *err);
    /* n elements per rank. weight: factor of this rank's summand (ncclRedOpCreatePreMulSum); 0 on all ranks: a plain
     * sum, which is another operator than weights of 1. in == out: in place. */
    enum status (*all_reduce)(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, double weight, struct error *err);
    enum status (*broadcast)(struct backend *b, void *communicator, int32_t stream, const void *in,
                             void *out, int64_t n, enum dtype t, int32_t root, struct error *err);
    enum status (*reduce)(struct backend *b, void *communicator, int32_t stream, const void *in,
                          void *out, int64_t n, enum dtype t, double weight, int32_t root,
                          struct error *err);
    /* n elements per rank, equal: uneven shards are padded. */
    enum status (*all_gather)(struct backend *b, void *communicator, int32_t stream, const void *in,
                              void *out, int64_t n, enum dtype t, struct error *err);
    enum status (*reduce_scatter)(struct backend *b, void *communicator, int32_t stream,
                                  const void *in, void *out, int64_t n, enum dtype t, double weight,
                                  struct error *err);
};

#endif
