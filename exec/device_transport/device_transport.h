/* exec/device_transport/device_transport.h - messages, gradient all-reduces and collectives directly between devices,
 * on their streams.
 *
 * Used if both ends of a channel, or all members of a group, are devices of one backend with a communication library
 * (exec/device_transport/device_comm.h). The host issues the calls, events order them, devices move the data. A
 * *communicator* is created before time 0 for every list of members of a group, and for every ordered channel group:
 * the channels of one direction of a pair of stages, whose messages have one order at both ends. Each ordered channel
 * group has its own stream at either end, so receives are posted ahead and block nothing. Gradient all-reduces and
 * collectives share one collective stream, in the same launch order on all devices.
 *
 * No call waits for a peer except open, close and the caller of check. Calls are ordered against STREAM_COMPUTE by
 * events; check reports a dead peer with the names of communicator and peer. All calls are the compute thread's.
 *
 * Uneven shards (core/collective/collective.h) have three forms, chosen by the plan's algorithm. ring: the library's
 * all-gather or reduce-scatter over shards padded to the largest. hierarchical: grouped sends and receives, tier by
 * tier. pairs: grouped sends and receives; but an all-gather or reduce-scatter whose shards differ by at most
 * DEVICE_FORM_SPREAD uses grouped broadcasts or reductions, because the library fuses those only within that spread
 * of sizes.
 */
#ifndef EXEC_DEVICE_TRANSPORT_DEVICE_TRANSPORT_H
#define EXEC_DEVICE_TRANSPORT_DEVICE_TRANSPORT_H

#include "core/graph/phase.h"
#include "core/program/program.h"
#include "exec/backend.h"
#include "exec/comm/comm.h"
#include "exec/host_transport/memory.h"
#include "exec/host_transport/spans.h"

#include <stdbool.h>
#include <stdint.h>

enum transport { TRANSPORT_LOCAL, TRANSPORT_HOST, TRANSPORT_DEVICE };

struct device_transport;
struct device_transport_options {
    struct backend *backend; /* open; its comm is not NULL if this rank is a member of anything */
    struct comm *comm;
    const struct program *p;
    int32_t rank;
    const unsigned char *channel,
        *group; /* (n_channels), (n_groups) enum transport, equal on all ranks */
    /* (n_stages) this rank's memory of a stage, NULL on other ranks; staging is on the device */
    const struct lane_memory *const *memory;
    /* (n_groups) weight of this rank's summands (not for chain, nor for collectives inside calls); NULL, or 0 on all
     * ranks: a plain sum */
    const double *weight;
    int64_t steps;    /* of this run */
    bool timed;       /* spans are kept */
    int64_t limit_ns; /* an unresponsive peer is dead after this */
};

/* All ranks together, including ranks without a communicator; on return all communicators are joined and have
 * exchanged a first message. */
MUST_CHECK enum status device_transport_open(struct arena *a,
                                             const struct device_transport_options *o,
                                             struct device_transport **out, struct error *err);
/* Before the backend is closed. Work in flight must have ended (drain) or been aborted. Takes limit_ns at most, even
 * with dead ranks. NULL is allowed. */
void device_transport_close(struct device_transport *t);

/* Posts the receive of message seq after the work issued to the compute stream so far (seq < receive_ahead: at the
 * start). In the order of numbers. */
MUST_CHECK enum status device_transport_post(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq is in its slot. */
MUST_CHECK enum status device_transport_receive(struct device_transport *t, int32_t channel,
                                                int64_t seq, struct error *err);
/* Sends message seq after the work issued to the compute stream so far. In the order of numbers. */
MUST_CHECK enum status device_transport_send(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq has left. */
MUST_CHECK enum status device_transport_room(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);

/* Launch `number` of a group, which is launch `times` of `step` of this run; seq: of the call; phase: of the call, U
 * for gradient all-reduces. Runs on the collective stream after the work issued to the compute stream so far. */
MUST_CHECK enum status device_transport_reduce(struct device_transport *t, int32_t group,
                                               int64_t number, int64_t step, int32_t times,
                                               int64_t seq, enum phase phase, struct error *err);
/* The compute stream waits until launch `number` of the group has ended on this rank. */
MUST_CHECK enum status device_transport_await(struct device_transport *t, int32_t group,
                                              int64_t number, struct error *err);

/* Called while waiting for the device: ERR_RANK with the names of communicator and peer if a peer is dead, or if
 * nothing issued here has ended for limit_ns. All communicators are aborted then. O(operations ended since the last
 * call). */
MUST_CHECK enum status device_transport_check(struct device_transport *t, struct error *err);
/* Waits until all issued work has ended; errors as for check. Polls every 50 us. */
MUST_CHECK enum status device_transport_drain(struct device_transport *t, struct error *err);
/* Between two steps, after drain: messages are numbered anew, those of step `begun` of the run first. timed: spans are kept from now on. */
void device_transport_restart(struct device_transport *t, int64_t begun, bool timed);
/* Aborts at once: operations in flight end with undefined results. */
void device_transport_give_up(struct device_transport *t);

/* Spans of all operations of steps <= step, which must have ended (the end of the step was waited for, and check
 * called since); their events are reused. Format as in exec/host_transport/comm_thread.c. */
MUST_CHECK enum status device_transport_spans(struct device_transport *t, int64_t step,
                                              int64_t zero_ns, struct span_list *out,
                                              struct error *err);

#endif
