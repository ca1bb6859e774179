/* exec/host_transport/comm_thread.h - the communication thread: moves messages and runs collectives beside the
 * compute thread.
 *
 * The compute thread gives orders (hand over, post, reduce) and waits for what has come of them;
 * the communication thread owns the wires, the collectives and every call of the message library between
 * comm_thread_start and comm_thread_stop. It sleeps on its doorbell; orders and other ranks of the host ring
 * it. Without a bell (several hosts) it looks every 50 µs while something is in flight. States:
 * RUNNING → (comm_thread_pause, when all of this rank's messages have left) PARKED → RUNNING → STOPPED.
 * With one device there is no thread, except where it has discrete memory: orders are carried out at once by whoever gives
 * them. A lane with discrete memory hands its orders over while its device is still on the way to them; `after` is the event to wait for.
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

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum comm_thread_order_kind { ORDER_HAND, ORDER_POST, ORDER_REDUCE };
struct comm_thread_order {
    enum comm_thread_order_kind kind;
    int32_t index;  /* channel or group */
    int64_t number; /* REDUCE: launches of the group before */
    int64_t step;   /* REDUCE: of this run */
    int32_t times;  /* REDUCE: launches of this step before */
    int64_t
        seq; /* REDUCE of a collective: of the call; and its phase, 'U' of gradient all-reduces */
    enum phase phase;
    void *data;
    int64_t bytes, at_ns;
    /* a lane with discrete memory: event + 1 of the compute stream behind which it holds, from comm_thread_take_event; 0: at once */
    int32_t after;
};

struct comm_thread_ended { /* messages of a channel at this end, or a group's steps */
    int64_t count;         /* numbers 0 … count-1 have ended */
    int64_t *at_ns;        /* (capacity) of number n at n mod capacity */
    int64_t capacity;
};

struct comm_thread {
    struct arena *a;           /* the communication thread's */
    struct arena *order_arena; /* orders; under the mutex */
    const struct program *p;
    struct comm *comm;
    int32_t rank; /* the device's number as well */
    bool threaded, started, emulated;
    struct wires wires;
    struct collectives collectives;
    struct span_list spans;
    enum phase *sent_by, *received_by; /* (n_channels) phases of the calls */
    struct bounce *bounce;             /* a lane with discrete memory; else NULL */

    pthread_t thread;
    pthread_mutex_t mutex; /* all below */
    pthread_cond_t changed;
    struct comm_thread_order *orders;
    size_t first, n_orders, capacity; /* [first, n_orders) to do */
    struct comm_thread_ended *channels, *groups;
    int32_t *free_events; /* (n_free) of free_capacity */
    size_t n_free, free_capacity;
    enum status failed; /* with one rank: why the thread ended */
    struct error failure;
    /* whose message the collective at hand waited for when the thread last had nothing to do, and its group; peer -1: none */
    int32_t awaited_peer, awaited_group;
    bool want_pause, parked, want_stop, given_up, real_time, stopped;
    int abort_code;
    int64_t timeout_ns;
};

/* Everything but the thread. shared: memory of wires_shared_bytes, NULL where real. a: lives as
 * long as the communication thread. */
void comm_thread_init(struct comm_thread *m, struct arena *a, const struct program *p,
                      struct comm *c, void *shared, bool keep_spans);
/* Before the start: this lane has discrete memory, b carries what moves. The thread runs even where the rank is alone. */
void comm_thread_bounce(struct comm_thread *m, struct bounce *b);
/* An event of the device that nobody waits for. */
MUST_CHECK enum status comm_thread_take_event(struct comm_thread *m, int32_t *out,
                                              struct error *err);
/* This rank's part in a group, before the start; once for each of its members. */
void comm_thread_member(struct comm_thread *m, struct collective_end member, char *staging);
MUST_CHECK enum status comm_thread_start(struct comm_thread *m, struct error *err);
/* Joins, when what was ordered has been done; where a silent peer keeps that from ending, all ranks are ended instead. */
void comm_thread_stop(struct comm_thread *m);
/* Until the thread has ended; false where it has not by then. */
bool comm_thread_wait_stopped(struct comm_thread *m, int64_t deadline_ns);
void comm_thread_give_up(struct comm_thread *m); /* the next stop leaves undone what is not done */
/* Ends all ranks with this exit code, from the compute thread. */
__attribute__((noreturn)) void comm_thread_abort(struct comm_thread *m, int code);

void comm_thread_order(struct comm_thread *m, struct comm_thread_order order);
/* Until message `number` of a channel has ended at this end (arrived, left), or step `number` of a
 * group; *at_ns when. Out of patience: ERR_RANK that names channel or group and peer. */
MUST_CHECK enum status comm_thread_wait_channel(struct comm_thread *m, int32_t channel,
                                                int64_t number, int64_t *at_ns, struct error *err);
MUST_CHECK enum status comm_thread_wait_group(struct comm_thread *m, int32_t group, int64_t number,
                                              int64_t *at_ns, struct error *err);
/* Afterwards the message library belongs to the caller. */
MUST_CHECK enum status comm_thread_pause(struct comm_thread *m, struct error *err);
void comm_thread_resume(struct comm_thread *m,
                        int64_t zero_ns); /* the run's clock may have been set back by the pause */

#endif
