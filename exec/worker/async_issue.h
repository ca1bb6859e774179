/* exec/worker/async_issue.h - what a lane that runs ahead of its device has asked for and not seen yet.
 *
 * The compute thread asks and goes on; the device follows. What only the end of an operator can tell is read later: spans
 * from timed events, a step's losses and how unevenly rows were routed from pinned memory. A step is settled when the next
 * one has been asked for whole, so the device never waits for the host between two steps; memory for what is in flight is
 * bounded, and where it is full the thread waits for the oldest. Without a trace no event is timed.
 * A stream takes about a thousand launches; who asks for one more stands in the driver until it has room. Where the stream waits for a
 * peer that is gone, that would be for ever, and nobody would look for the peer. So lanes whose devices talk among themselves ask
 * their compute stream for no more than (ASYNC_ISSUE_PACES + 1) · ASYNC_ISSUE_PACE operators of which none has been seen to end, and look at their
 * peers while they wait. A collective inside calls, behind which compute stands, counts as many as it has members. Gradient
 * all-reduces, behind which it does not, have a pace of their own (exec/device_transport/paced_stream.h).
 * On an emulated device (the GPU is real, its speed is not) the thread settles where a host lane would have ended an
 * operator anyway: before a message is handed over, before it waits, at the end of a call. An operator then takes slowdown
 * times what the events say; ranks on one GPU take turns, stretch by stretch, so that nobody's time is in another's.
 * For the compute thread alone.
 */
#ifndef EXEC_WORKER_ASYNC_ISSUE_H
#define EXEC_WORKER_ASYNC_ISSUE_H

#include "exec/backend.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct chunks;
struct device_clock;
struct kernel_spans;
struct link_clock;
struct program;
struct progress;
struct rank;
struct scale_log;
struct span_list;
struct step_log;
struct step_loss;
struct transports;

enum {
    ASYNC_ISSUE_EVENTS_MAX = 16384, /* timed events in flight; two operators take three at most */
    ASYNC_ISSUE_GATES = 4,          /* calls of gating whose gates are in flight */
    ASYNC_ISSUE_PACE = 16,          /* operators to a pace, … */
    ASYNC_ISSUE_PACES = 4 /* … and paces in flight where devices talk among themselves */
};

struct async_issue_span {
    struct span span;
    int64_t begin, end, ready; /* numbers of timed events; ready: its gates are down, or end */
    int32_t gates;             /* pinned buffer + 1; 0: none */
    const struct op_call *gating;
};

struct async_issue_step { /* one of the two that may be in flight */
    bool asked;
    int64_t step;
    int32_t updated, ended; /* events: its last update so far; all of it */
    int32_t n_losses;
    struct step_loss *losses; /* (max_losses) */
    char *values;             /* (max_losses) pinned, 8 bytes each */
    float *scale;             /* pinned: the loss scale's numbers behind it; NULL: none */
};

/* What it works on; none of it belongs to it. */
struct async_issue_uses {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    const struct transports *t;
    struct device_clock *clock;
    struct span_list *spans; /* of operators, messages and collectives that were seen */
    struct kernel_spans *kernels;
    struct step_log *log;
    struct scale_log *scales;
};

/* All fields belong to async_issue.c. */
struct async_issue {
    struct async_issue_uses u;
    bool timed;      /* spans are kept, or the device is emulated */
    int32_t *events; /* (n_events) timed; number n is n mod n_events */
    int64_t n_events, next_event;
    int64_t
        last_event; /* number of the one right behind the last operator; -1: something else came since */
    int64_t seen_ns; /* when the last operator that was seen ended */
    struct async_issue_span
        *spans; /* (n_events): [first_span, next_span), number n at n mod n_events */
    int64_t first_span, next_span;
    struct async_issue_step steps[2];
    int32_t max_losses;
    char *gates; /* (ASYNC_ISSUE_GATES, gates_bytes) pinned */
    int64_t gates_bytes, next_gates;
    struct link_clock *gpu; /* emulated: whose turn it is on the GPU; NULL: nobody else is there */
    bool our_turn;
    bool paced;
    int32_t pace[ASYNC_ISSUE_PACES]; /* events; pace n: n mod ASYNC_ISSUE_PACES */
    int64_t in_pace, next_pace;      /* operators asked for in the one at hand, which this is */
};

/* Bytes of pinned memory that a device's lane needs for it. */
int64_t async_issue_pinned_bytes(const struct program *p, bool keep_trace, int32_t device);
/* On a lane that does not run ahead, too: break and settle do nothing there. */
void async_issue_init(struct async_issue *x, const struct async_issue_uses *u);
/* Emulated ranks on one device take turns by this clock, which they share. */
void async_issue_share(struct async_issue *x, struct link_clock *turns);
/* Whether spans are seen. */
bool async_issue_timed(const struct async_issue *x);
/* pinned: so many bytes, zeroed. */
MUST_CHECK enum status async_issue_open(struct async_issue *x, char *pinned, struct error *err);
/* Around an operator on the compute stream; span NULL where none is kept. */
MUST_CHECK enum status async_issue_begin(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_end(struct async_issue *x, const struct span *span,
                                       const struct op_call *call, struct error *err);
/* So many more operators, or what takes as long to ask for, are about to be asked of the device. */
MUST_CHECK enum status async_issue_keep_pace(struct async_issue *x, int32_t operators,
                                             struct error *err);
/* The compute stream waits for something, or copies. */
void async_issue_break(struct async_issue *x);
MUST_CHECK enum status async_issue_wait(struct async_issue *x, int32_t event, struct error *err);
MUST_CHECK enum status async_issue_loss(struct async_issue *x, const struct step_loss *what,
                                        const void *from, struct error *err);
/* Emulated: everything that was asked of the device has ended, and the clock knows. */
MUST_CHECK enum status async_issue_settle(struct async_issue *x, struct error *err);
/* The last update so far has been asked for; the step is asked for whole; all steps have been seen, though receives posted for
 * the next one may wait for their messages; the run is over and nothing is in flight. */
MUST_CHECK enum status async_issue_updated(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_step_issued(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_drain(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_finish(struct async_issue *x, struct error *err);
/* The host waits for an event of the device; peers are looked after meanwhile. */
MUST_CHECK enum status async_issue_see(struct async_issue *x, int32_t event, struct error *err);

#endif
