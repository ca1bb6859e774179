/* exec/host_transport/wire.h - ordered messages from one rank to another over one link.
 *
 * A channel is a wire, and so is every edge of a collective, and each rank's reports to rank 0. The sender hands messages over, the receiver posts
 * buffers for them. Each end is notified of completion: (start, left) at the sender, (start, arrival) at the
 * receiver, on the run's time axis.
 *
 * Real ranks: the message library moves the bytes; left is the end of the send, arrival the end of the receive.
 * Emulated ranks: the library moves the bytes at once as well, but time is reserved on the link's clock. The sender
 * writes the ready time into shared memory. The *receiver*, which alone has both the ready and the posted time,
 * reserves the link, no earlier than wall time reaches the instant at which all conditions hold, so that the real and
 * the virtual order of first come, first served agree. It then writes back when the message left. Fair sharing: in
 * turns of an eighth of the message, 4 to 64 KiB. Thread: the communication thread only.
 */
#ifndef EXEC_HOST_TRANSPORT_WIRE_H
#define EXEC_HOST_TRANSPORT_WIRE_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/clock.h"
#include "exec/comm/comm.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    WIRE_DEPTH = 16
}; /* messages in flight per wire and known to both ends; more wait at the sender */

struct wire_entry {
    int64_t ready_ns, start_ns, left_ns;
};
struct wire_control {       /* shared by both ends */
    _Atomic int64_t handed; /* messages whose ready_ns is written, by the sender */
    _Atomic int64_t left;   /* messages whose start_ns and left_ns are written, by the receiver */
    struct wire_entry entry[WIRE_DEPTH];
};

struct wire_message {
    void *data;
    int64_t bytes, at_ns; /* at_ns: handed over, or posted */
    int64_t start_ns, left_ns;
    int64_t reserved_bytes; /* on a fair-shared link: reserved so far */
    bool moved; /* receiver: the bytes have arrived; sender: the buffer may be overwritten */
    int64_t moved_ns;
};

struct wire {                        /* one end */
    int32_t from, to;                /* ranks */
    const struct program_link *link; /* NULL: no link, free */
    struct link_clock *clock;        /* NULL: real, or free */
    const _Atomic double *slower;    /* factor of the link's occupancy (wires_slow); NULL: no link */
    struct wire_control *control;    /* NULL: real */
    struct wire_message *queue;           /* (capacity), message n at n mod capacity; a power of two */
    int64_t capacity;
    /* [first, next) in flight; [first, started) announced to the other end, or reserved */
    int64_t first, started, next;
    int64_t previous_left_ns; /* receiver: of the last reserved one */
    bool used;                /* this rank is one of the ends */
};

struct wires;
/* Called when message `number` of a wire has ended at this end. */
typedef void wire_ended(void *owner, int32_t wire, int64_t number, int64_t start_ns, int64_t end_ns,
                        int64_t bytes, int64_t at_ns);

struct wires {
    struct arena *a;
    struct comm *comm;
    int64_t zero_ns; /* CLOCK_MONOTONIC at time 0 */
    int32_t rank, n, n_mine;
    struct wire
        *wire;     /* (n) channels, then edges of groups, then those of collectives */
    int32_t *mine; /* (n_mine) this rank's ends */
    /* (n_groups): edge i → i+1 is group_first + i; then CHAIN's i → i-1 */
    int32_t *group_first;
    /* (n_groups) of collectives: (n_members²) the wire from member i to k, -1 none; NULL otherwise. Collectives share
     * one wire per pair of ranks and link: both ends use it in the same order. */
    int32_t **collective;
    int32_t reports; /* the wire of rank r's reports to rank 0 is reports + r, r above 0: no link, the last ones */
    _Atomic double *slower; /* (n_links) */
    wire_ended *ended;
    void *owner;
};
static inline int32_t wires_tensor(const struct wires *w, int32_t group, int32_t from, int32_t to,
                                    int32_t n)
{
    return w->collective[group][from * n + to];
}

/* Bytes of shared memory for a program's emulated wires and links; 0 for real devices. */
int64_t wires_shared_bytes(const struct program *p);
/* shared: that memory, mapped and zeroed (NULL for real devices); rank 0 creates the clocks before any other use. */
void wires_init(struct wires *w, struct arena *a, const struct program *p, struct comm *c,
                void *shared, wire_ended *ended, void *owner);
/* From now on messages occupy the program's link `factor` times as long, at this rank's ends that receive them; any thread. */
void wires_slow(struct wires *w, int32_t link, double factor);
/* Any thread: occupies the wire's emulated link for other bytes than messages, if it is idle now. *until_ns: when they have left; if false, when
 * the link is free. */
bool wires_fill(struct wires *w, int32_t wire, int64_t bytes, int64_t *until_ns);
void wire_hand(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t ready_ns);
void wire_post(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t posted_ns);
/* Of the first n wires, on which nothing is under way: messages are numbered from 0 on. All wires and links are free at now_ns, to which the
 * run's clock may have been set back. By all ranks, between two barriers. */
void wires_restart(struct wires *w, int32_t n, int64_t now_ns);
/* Advances all messages and calls `ended` for completed ones. *progress: something advanced. */
MUST_CHECK enum status wires_progress(struct wires *w, bool *progress, struct error *err);
/* Run time of the next possible reservation; INT64_MAX: none. */
int64_t wires_next_ns(const struct wires *w);
bool wires_sending(const struct wires *w);               /* a message of this rank, other than a report, has not left */
int32_t wires_peer(const struct wires *w, int32_t wire); /* rank of the other end */

#endif
