/* exec/host_transport/comm_thread.h - the communication thread: moves messages and runs collectives concurrently with
 * compute.
 *
 * The compute thread gives orders (hand over, post, reduce) and waits for their completion. Between comm_thread_start
 * and comm_thread_stop the communication thread owns the wires, the collectives and every call of the message
 * library. It sleeps on its doorbell, which orders and other ranks of the host ring. Without bells (several hosts) it
 * polls every 50 µs while work is in flight. States: RUNNING → (comm_thread_pause, after this rank's messages have
 * left) PARKED → RUNNING → STOPPED. A run of one device has no thread unless its memory is discrete: orders are then
 * executed at once by the caller. A discrete device's lane gives orders before the device has produced the data;
 * `after` is the event to wait for.
 */
#ifndef EXEC_HOST_TRANSPORT_COMM_THREAD_H
#define EXEC_HOST_TRANSPORT_COMM_THREAD_H

#include "core/base/error.h"
#include "core/graph/phase.h"
#include "core/program/program.h"
#include "exec/comm/comm.h"
#include "exec/host_transport/collective.h"
#include "exec/host_transport/spans.h"
#include "exec/host_transport/wire.h"

struct straggler_watch;

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* AGREE: comm_max of `index` over all ranks, one at a time, in the order of `number` */
/* REPORT: of rank `index`, posted by rank 0, handed over by others */
enum comm_thread_order_kind { ORDER_HAND, ORDER_POST, ORDER_REDUCE, ORDER_AGREE, ORDER_REPORT };
struct comm_thread_order {
    enum comm_thread_order_kind kind;
    int32_t index;  /* channel, group or rank */
    int64_t number; /* REDUCE: earlier launches of the group */
    int64_t step;   /* REDUCE: of this run */
    int32_t times;  /* REDUCE: earlier launches in this step */
    int64_t
        seq; /* REDUCE of a collective inside calls: of the call; and its phase, U for gradient all-reduces */
    enum phase phase;
    void *data;
    int64_t bytes, at_ns;
    /* discrete device: event + 1 of the compute stream to wait for, from comm_thread_take_event; 0: no wait */
    int32_t after;
};

struct comm_thread_ended { /* messages of a channel at this end, or launches of a group */
    int64_t count;         /* numbers 0 … count-1 have ended */
    int64_t *at_ns;        /* (capacity) of number n at n mod capacity */
    int64_t capacity;
};

struct comm_thread {
    struct arena *a;           /* the communication thread's */
    struct arena *order_arena; /* of orders; protected by the mutex */
    const struct program *p;
    struct comm *comm;
    int32_t rank; /* = device number */
    bool threaded, started, emulated;
    bool ahead; /* calls of the program are in front of their step: messages are under way in a pause */
    struct wires wires;
    struct collectives collectives;
    struct span_list spans;
    enum phase *sent_by, *received_by; /* (n_channels) phases of the calls */
    struct bounce *bounce;             /* discrete device; else NULL */
    struct straggler_watch *stragglers; /* NULL: not watched */
    int64_t step;                      /* of the latest collective */
    int64_t begun;                     /* step of message 0 of the channels */

    pthread_t thread;
    pthread_mutex_t mutex; /* protects all fields below */
    pthread_cond_t changed;
    struct comm_thread_order *orders;
    size_t first, n_orders, capacity; /* [first, n_orders) to do */
    struct comm_thread_ended *channels, *groups, agreements; /* agreements: values in place of instants */
    int64_t *reported; /* (ranks) reports that have ended at this end */
    int32_t *free_events; /* (n_free) of free_capacity */
    size_t n_free, free_capacity;
    enum status failed; /* in a run of one rank: the failure that ended the thread */
    struct error failure;
    /* the peer, and the group, that the running collective waited for when the thread last had no work; peer -1: none */
    int32_t awaited_peer, awaited_group;
    bool agreeing; /* the thread's */
    bool flushes, want_pause, parked, want_stop, given_up, real_time, stopped;
    int abort_code;
    int64_t timeout_ns;
};

/* Initialises everything but the thread. shared: memory of wires_shared_bytes, NULL on real devices. a: must live as
 * long as the communication thread. */
void comm_thread_init(struct comm_thread *m, struct arena *a, const struct program *p,
                      struct comm *c, void *shared, bool keep_spans);
/* Before the start, for a discrete device: b carries its data. The thread then runs even in a run of one rank. */
void comm_thread_bounce(struct comm_thread *m, struct bounce *b);
/* A free event of the device. */
MUST_CHECK enum status comm_thread_take_event(struct comm_thread *m, int32_t *out,
                                              struct error *err);
/* Adds this rank's member of a group, before the start; once per member. */
void comm_thread_member(struct comm_thread *m, struct collective_end member, char *staging);
MUST_CHECK enum status comm_thread_start(struct comm_thread *m, struct error *err);
/* Joins the thread after all orders are done; if a dead peer prevents that, all ranks are ended instead. */
void comm_thread_stop(struct comm_thread *m);
/* Waits for the thread's end; false at the deadline. */
bool comm_thread_wait_stopped(struct comm_thread *m, int64_t deadline_ns);
void comm_thread_give_up(struct comm_thread *m); /* the next stop drops open orders */
/* Ends all ranks with this exit code; called by the compute thread. */
__attribute__((noreturn)) void comm_thread_abort(struct comm_thread *m, int code);

void comm_thread_order(struct comm_thread *m, struct comm_thread_order order);
/* Waits until message `number` of a channel has ended at this end (arrived, left), or launch `number` of a group;
 * *at_ns: when. After the time limit: ERR_RANK with the channel or group and the peer. */
MUST_CHECK enum status comm_thread_wait_channel(struct comm_thread *m, int32_t channel,
                                                int64_t number, int64_t *at_ns, struct error *err);
MUST_CHECK enum status comm_thread_wait_group(struct comm_thread *m, int32_t group, int64_t number,
                                              int64_t *at_ns, struct error *err);
/* Waits for the result of AGREE `number`. */
MUST_CHECK enum status comm_thread_wait_agreement(struct comm_thread *m, int64_t number, int64_t *value, struct error *err);
/* The next report of `rank`: rank 0 has its memory filled, that rank sends it; it has ended when comm_thread_reported counts it. */
void comm_thread_report(struct comm_thread *m, int32_t rank, void *data, int64_t bytes);
int64_t comm_thread_reported(struct comm_thread *m, int32_t rank);
/* Whether message `number` of a channel has ended at this end; *at_ns: when. Does not wait. */
bool comm_thread_has_ended(struct comm_thread *m, int32_t channel, int64_t number, int64_t *at_ns);
/* Waits until a message or a collective ends, at most until CLOCK_MONOTONIC is wall_ns; may return sooner. */
void comm_thread_wait_any(struct comm_thread *m, int64_t wall_ns);
/* After this rank's messages have left; of programs with calls ahead of their step once the library has them, because their receivers are in front of a
 * later step. Afterwards the caller owns the message library. */
MUST_CHECK enum status comm_thread_pause(struct comm_thread *m, struct error *err);
void comm_thread_resume(struct comm_thread *m,
                        int64_t zero_ns); /* zero_ns: the run's clock may have been set back during the pause */
/* In a pause, by all ranks between two barriers: messages of channels are numbered anew (wires_restart), those of step `begun` of the run first. */
void comm_thread_restart(struct comm_thread *m, int64_t begun, int64_t now_ns);
/* Before a pause behind which messages are numbered anew: it waits for all messages. */
void comm_thread_flush(struct comm_thread *m, bool flushes);

#endif
