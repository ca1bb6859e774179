/* exec/worker/async_issue.h - asynchronous issue: the operators that the compute thread has launched and not yet seen
 * complete.
 *
 * The compute thread launches work and the device executes it later. Results that exist only after an operator has
 * ended are read later: spans from timed events, losses and routing imbalance from pinned memory. Step k is settled
 * after step k + 1 has been issued completely, so the device never waits for the host between two steps. Memory for
 * work in flight is bounded; when it is full, the thread waits for the oldest entry. Without a trace no event is
 * timed.
 *
 * Pacing. A CUDA stream queues about a thousand launches; one more blocks in the driver. If the stream waits for a
 * dead peer, that call never returns and nothing checks the peer. Therefore a lane whose device communicates directly
 * keeps at most (ASYNC_ISSUE_PACES + 1) · ASYNC_ISSUE_PACE unfinished operators on its compute stream and checks
 * peers while it waits. A collective inside a call, which blocks compute, counts as its number of members. Gradient
 * all-reduces do not block compute; they are paced on their own stream (exec/device_transport/paced_stream.h).
 *
 * Emulated devices (a real GPU with virtual time). The thread settles at the points at which a host lane would have
 * ended an operator: before a message is handed over, before a wait, at the end of a call. An operator then lasts
 * slowdown × its time by events. Ranks that share a GPU take turns on it, so that no rank's time includes another's
 * work. Thread: the compute thread only.
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
struct straggler_watch;
struct link_clock;
struct noise_log;
struct program;
struct progress;
struct rank;
struct routing;
struct scale_log;
struct span_list;
struct step_log;
struct step_loss;
struct transports;

enum {
    ASYNC_ISSUE_EVENTS_MAX = 16384, /* timed events in flight; two operators use at most three */
    ASYNC_ISSUE_GATES = 4,          /* gating calls whose gates are being copied */
    ASYNC_ISSUE_PACE = 16,          /* operators per pace */
    ASYNC_ISSUE_PACES = 4 /* paces in flight if devices communicate directly */
};

struct async_issue_span {
    struct span span;
    int64_t begin, end, ready; /* numbers of timed events; ready: gates copied; else = end */
    int32_t gates;             /* pinned buffer + 1; 0: none */
    const struct op_call *gating;
};

struct async_issue_step { /* one of the two steps that may be in flight */
    bool asked;
    int64_t step;
    int32_t updated, ended; /* events: the last update issued so far; end of the step */
    int32_t n_losses;
    struct step_loss *losses; /* (max_losses) */
    char *values;             /* (max_losses) pinned, 8 bytes each */
    float *scale;             /* pinned: loss-scale numbers after the step; NULL: none */
    char *squares;            /* pinned, of noise_log_copy; NULL: none */
};

/* References to other modules; not owned. */
struct async_issue_uses {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    const struct transports *t;
    struct device_clock *clock;
    struct span_list *spans; /* of completed operators, messages and collectives */
    struct straggler_watch *const *stragglers; /* exec/straggler.h; *NULL: not watched */
    struct kernel_spans *kernels;
    struct routing *routing;
    struct step_log *log;
    struct scale_log *scales;
    struct noise_log *noise;
};

/* All fields belong to async_issue.c. */
struct async_issue {
    struct async_issue_uses u;
    bool timed;      /* spans are kept, stragglers are looked for, or the device is emulated */
    int32_t *events; /* (n_events) timed; number n is n mod n_events */
    int64_t n_events, next_event;
    int64_t
        last_event; /* number of the event right after the last operator; -1: the stream got other work since */
    int64_t seen_ns; /* end of the last operator seen */
    struct async_issue_span
        *spans; /* (n_events): [first_span, next_span), number n at n mod n_events */
    int64_t first_span, next_span;
    struct async_issue_step steps[2];
    int32_t max_losses;
    char *gates; /* (ASYNC_ISSUE_GATES, gates_bytes) pinned */
    int64_t gates_bytes, next_gates;
    struct link_clock *gpu; /* emulated: whose turn it is on a shared GPU; NULL: not shared */
    bool our_turn;
    bool paced;
    int32_t pace[ASYNC_ISSUE_PACES]; /* events; pace n: n mod ASYNC_ISSUE_PACES */
    int64_t in_pace, next_pace;      /* operators in the current pace; number of that pace */
};

/* Bytes of pinned memory of a device's lane for asynchronous issue. */
int64_t async_issue_pinned_bytes(const struct program *p, bool keep_trace, int32_t device);
/* Also called on a synchronous lane; break and settle have no effect there. */
void async_issue_init(struct async_issue *x, const struct async_issue_uses *u);
/* Emulated ranks on one device take turns by this shared clock. */
void async_issue_share(struct async_issue *x, struct link_clock *turns);
/* Whether spans are recorded. */
bool async_issue_timed(const struct async_issue *x);
/* pinned: async_issue_pinned_bytes, zeroed. */
MUST_CHECK enum status async_issue_open(struct async_issue *x, char *pinned, struct error *err);
/* Around an operator on the compute stream; span is NULL if none is kept. */
MUST_CHECK enum status async_issue_begin(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_end(struct async_issue *x, const struct span *span,
                                       const struct op_call *call, struct error *err);
/* Announces `operators` launches, or calls of similar cost. */
MUST_CHECK enum status async_issue_keep_pace(struct async_issue *x, int32_t operators,
                                             struct error *err);
/* The compute stream gets a wait or a copy. */
void async_issue_break(struct async_issue *x);
MUST_CHECK enum status async_issue_wait(struct async_issue *x, int32_t event, struct error *err);
/* step: the current one, or the following one of a call that is executed ahead. */
MUST_CHECK enum status async_issue_loss(struct async_issue *x, int64_t step, const struct step_loss *what,
                                        const void *from, struct error *err);
/* Emulated: waits until all issued work has ended and advances the clock. */
MUST_CHECK enum status async_issue_settle(struct async_issue *x, struct error *err);
/* updated: the last update so far has been issued. step_issued: the step is complete. drain: waits until all steps
 * are settled; receives posted for the next one may still be open. finish: end of the run; nothing is in flight. */
MUST_CHECK enum status async_issue_updated(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_step_issued(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_drain(struct async_issue *x, struct error *err);
MUST_CHECK enum status async_issue_finish(struct async_issue *x, struct error *err);
/* The host waits for a device event and checks peers meanwhile. */
MUST_CHECK enum status async_issue_see(struct async_issue *x, int32_t event, struct error *err);

#endif
