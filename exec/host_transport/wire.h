/* exec/host_transport/wire.h - messages in order from one rank to another over one link.
 *
 * A channel is a wire, and so is every edge of a collective. The sender hands messages over, the
 * receiver posts room for them; both are told when theirs has ended: (start, left) at the sender,
 * (start, arrival) at the receiver, on the run's time axis.
 *
 * Real ranks: the message library moves the bytes; left is when the send ended, arrival when the
 * receive did. Emulated ranks: it moves the bytes as well, at once, but time is reserved on the
 * link's clock. The sender writes when the message is ready into memory that both see, the
 * *receiver*, who alone knows both that and when room was posted, reserves the link - no earlier
 * than the wall has come to the instant when all conditions hold, so that first come, first served
 * in the real order is the same in virtual time - and writes back when the message left. fair
 * sharing: in turns of an eighth of the message, 4 to 64 KiB. Everything here is called by the communication thread alone.
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
}; /* messages of one wire that may be known to both and not gone; more wait at the sender */

struct wire_entry {
    int64_t ready_ns, start_ns, left_ns;
};
struct wire_control {       /* shared by both ends */
    _Atomic int64_t handed; /* messages whose ready_ns stands, by the sender */
    _Atomic int64_t left;   /* messages whose start_ns and left_ns stand, by the receiver */
    struct wire_entry entry[WIRE_DEPTH];
};

struct wire_message {
    void *data;
    int64_t bytes, at_ns; /* handed over, posted */
    int64_t start_ns, left_ns;
    int64_t reserved_bytes; /* of a fair-shared link: turns so far */
    bool moved; /* the bytes are where they belong (receiver) or may be overwritten (sender) */
    int64_t moved_ns;
};

struct wire {                        /* one end */
    int32_t from, to;                /* ranks */
    const struct program_link *link; /* NULL: free */
    struct link_clock *clock;        /* NULL: real or free */
    struct wire_control *control;    /* NULL: real */
    struct wire_message *queue;           /* (capacity), message n at n mod capacity; a power of two */
    int64_t capacity;
    /* [first, next) in flight; [first, started) told to the other end or reserved */
    int64_t first, started, next;
    int64_t previous_left_ns; /* receiver: of the last reserved one */
    bool used;                /* this rank is one of the ends */
};

struct wires;
/* What the owner hears: message `number` of wire has ended at this end. */
typedef void wire_ended(void *owner, int32_t wire, int64_t number, int64_t start_ns, int64_t end_ns,
                        int64_t bytes, int64_t at_ns);

struct wires {
    struct arena *a;
    struct comm *comm;
    int64_t zero_ns; /* CLOCK_MONOTONIC at time 0 */
    int32_t rank, n, n_mine;
    struct wire
        *wire;     /* (n) channels first, then the edges of the groups, then those of collectives */
    int32_t *mine; /* (n_mine) this rank's ends */
    /* (n_groups): edge i → i+1 is group_first + i; CHAIN's i → i-1 behind those */
    int32_t *group_first;
    /* (n_groups) of collectives: (n_members²) the wire from member i to k, -1 none; NULL otherwise. One wire for every two
     * ranks and link, whichever collectives use it: both ends take those they share in one order. */
    int32_t **collective;
    wire_ended *ended;
    void *owner;
};
static inline int32_t wires_tensor(const struct wires *w, int32_t group, int32_t from, int32_t to,
                                    int32_t n)
{
    return w->collective[group][from * n + to];
}

/* Bytes of shared memory for the emulated wires and links of a program; 0 where it is real. */
int64_t wires_shared_bytes(const struct program *p);
/* shared: that memory, mapped and zeroed (NULL where real); rank 0 makes the clocks, before any
 * other use. */
void wires_init(struct wires *w, struct arena *a, const struct program *p, struct comm *c,
                void *shared, wire_ended *ended, void *owner);
void wire_hand(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t ready_ns);
void wire_post(struct wires *w, int32_t wire, void *data, int64_t bytes, int64_t posted_ns);
/* Moves what can move, tells the owner. *progress: something happened. */
MUST_CHECK enum status wires_progress(struct wires *w, bool *progress, struct error *err);
/* run time at which something can be reserved; INT64_MAX */
int64_t wires_next_ns(const struct wires *w);
bool wires_sending(const struct wires *w);               /* a message of ours has not left */
int32_t wires_peer(const struct wires *w, int32_t wire); /* the other end's rank */

#endif
