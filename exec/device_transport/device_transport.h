/* exec/device_transport/device_transport.h - a program's messages, gradient all-reduces and collectives between devices themselves, on their streams.
 *
 * Where both ends of a channel, or all members of a group, are devices of one backend whose library talks between them
 * (exec/device_transport/device_comm.h), nothing goes through the host: it asks, events order, devices move. A *communicator* is made before time 0
 * for every list of members that meets in groups, and for every ordered channel group of channels, one direction of a pair of stages, whose
 * messages go in one order at both ends whatever either does; each ordered channel group has a stream of its own at either end, so that
 * receives are asked for ahead of time and hold up nothing. Sums and collectives share one collective stream, in the order that
 * all devices launch them in.
 *
 * Nothing here waits for a peer but open, close and check's caller: what was asked is ordered by events against
 * STREAM_COMPUTE, and a peer that is gone is seen by check, with the names of the communicator and of the peer. All calls are the
 * compute thread's.
 *
 * Uneven parts go in three forms (core/collective/collective.h says what they are for). The plan's way decides: ring is the library's
 * all-gather or reduce-scatter over parts padded to the largest; hierarchical is grouped sends and receives tier by tier.
 * pairs is grouped sends and receives, but for a gathering or a sum whose parts differ by at most DEVICE_FORM_SPREAD, which
 * goes as grouped broadcasts or reductions: the library starts those as one only within that spread of sizes.
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
    struct backend *backend; /* open; its comm is not NULL where this rank has a part in anything */
    struct comm *comm;
    const struct program *p;
    int32_t rank;
    const unsigned char *channel,
        *group; /* (n_channels), (n_groups) enum transport, alike on all ranks */
    /* (n_stages) this rank's memory of a stage, NULL another's; staging is the device's */
    const struct lane_memory *const *memory;
    /* (n_groups) what this rank's summands of a sum are multiplied by (not of a chain, nor of a collective); 0 on all ranks, or NULL:
     * a plain sum */
    const double *weight;
    int64_t steps;    /* of this run */
    bool timed;       /* spans are kept */
    int64_t limit_ns; /* a silent peer is gone after that */
};

/* All ranks together, those without a part as well; communicators are joined and have exchanged a first word when it returns. */
MUST_CHECK enum status device_transport_open(struct arena *a,
                                             const struct device_transport_options *o,
                                             struct device_transport **out, struct error *err);
/* Before the backend's close. What was not given up must have ended (drain). Takes limit_ns at most, whoever is gone. NULL is fine. */
void device_transport_close(struct device_transport *t);

/* Message seq of a channel has room once what the compute stream was asked so far has ended (seq < receive_ahead: from the
 * start). In the order of numbers. */
MUST_CHECK enum status device_transport_post(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq is in its slot. */
MUST_CHECK enum status device_transport_receive(struct device_transport *t, int32_t channel,
                                                int64_t seq, struct error *err);
/* Message seq leaves once what the compute stream was asked so far has ended. In the order of numbers. */
MUST_CHECK enum status device_transport_send(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);
/* The compute stream waits until message seq has left. */
MUST_CHECK enum status device_transport_room(struct device_transport *t, int32_t channel,
                                             int64_t seq, struct error *err);

/* Launch `number` of a group, the times-th of `step` of this run; seq: of the call, and its phase, 'U' of gradient all-reduces. On the
 * collective stream once what the compute stream was asked so far has ended. */
MUST_CHECK enum status device_transport_reduce(struct device_transport *t, int32_t group,
                                               int64_t number, int64_t step, int32_t times,
                                               int64_t seq, enum phase phase, struct error *err);
/* The compute stream waits until launch `number` of the group has ended here. */
MUST_CHECK enum status device_transport_await(struct device_transport *t, int32_t group,
                                              int64_t number, struct error *err);

/* For whoever waits for the device: ERR_RANK, with the names of communicator and peer, where one is gone, or where nothing that was
 * asked here has ended for limit_ns. Costs O(what has ended since). Everything is given up then. */
MUST_CHECK enum status device_transport_check(struct device_transport *t, struct error *err);
/* Until all that was asked has ended, looking: what check says. Costs a look every 50 us. */
MUST_CHECK enum status device_transport_drain(struct device_transport *t, struct error *err);
/* At once: what is in flight ends, with whatever it has. */
void device_transport_give_up(struct device_transport *t);

/* Spans of all that was asked of steps <= step, which has ended (the compute stream's end of the step was waited for, and
 * check called since); their events are used again. As exec/host_transport/comm_thread.c fills them. */
MUST_CHECK enum status device_transport_spans(struct device_transport *t, int64_t step,
                                              int64_t zero_ns, struct span_list *out,
                                              struct error *err);

#endif
