/* sim/engine/engine.h - the state of one simulation, shared by the files of this folder. No other module includes it.
 *
 *   sim.c          setup, the event loop, the result
 *   lane.c         a device's compute stream; runs ahead of the event queue until it must wait
 *   queues.c       which of the messages of one instant is first in the queue of a link
 *   messages.c     channels: messages handed over, receives posted, messages sent
 *   collectives.c  collectives on the collective streams (gradient all-reduce, ZeRO); collectives_new.c: their members and hops
 *   ahead.c        collectives that have their links to themselves, computed ahead
 *   served.c       parameter servers that handle pushes in the order of arrival
 *   collect.c      collectives inside calls of folded devices
 *   work.c         counted CPU time
 *   overlap.c      operators slowed down while messages are in flight
 *   report.c       spans of the trace, and the lanes blocked in a deadlock
 *
 * Lanes interact only through messages and collectives, so a lane may run ahead of the queue's time: its messages lie in its
 * own time, at or after the queue's. A message becomes one event, pushed when its last condition is known, at the time of the
 * latest condition. Links therefore receive requests in order of time, however far lanes have run ahead. Where several lanes send on
 * a FIFO link, requests of one instant come after all other events of it, in an order of the lanes (queues.c), so that links with
 * equal traffic serve it equally.
 * A channel that has its link direction to itself needs no ordering: its message times follow at once and no event is pushed. A
 * program with such channels only is evaluated as a recurrence, without a queue. All immediate consequences of an event
 * are processed before the next event.
 */
#ifndef SIM_ENGINE_ENGINE_H
#define SIM_ENGINE_ENGINE_H

#include "core/program/offload.h"
#include "core/program/period.h"
#include "sim/engine/code.h"
#include "sim/engine/sim.h"
#include "sim/event_queue.h"
#include "sim/memory.h"
#include "sim/network/network.h"

#include <stdbool.h>
#include <stdint.h>

/* Instants stay below a quarter of int64 (73 years), so that an instant plus a few durations cannot overflow. */
#define ENGINE_MAX_NS (INT64_MAX / 4)

enum engine_event {
    EVENT_READY,
    EVENT_FLOW,
    EVENT_COMPUTED,
    EVENT_WAKE,
    EVENT_MOVING,
    EVENT_COLLECTIVE,
    EVENT_ARRIVED,
    EVENT_AHEAD,
    EVENT_AHEAD_DUE,
    EVENT_AHEAD_OVER,
    EVENT_AHEAD_ENDED
}; /* READY: index is a channel, or n_channels + hop of a collective; COLLECTIVE:
    * a priced collective has ended; ARRIVED: a message of a push, index is its channel; AHEAD: what was computed ahead of a collective is over; AHEAD_DUE: its first message may be
    * ready; AHEAD_OVER: it has ended; AHEAD_ENDED: index is one of its members, which has ended */
enum engine_stop { STOP_NOT, STOP_LIMIT, STOP_STEADY, STOP_ORDER, STOP_ERROR };

/* Use of a lane's compute stream in one step. */
struct lane_use {
    int64_t busy_ns, carried_ns, wait_ns[SIM_WAIT_COUNT]; /* as in struct sim_device */
};

struct lane_state {
    const struct code_procedure **procedures; /* (chunks), each (procedures of the stage) */
    const struct code_procedure *procedure;   /* of the current call; NULL: done */
    const struct code *code;                  /* next instruction */
    struct cursor cursor;
    struct call call;
    int32_t stage, microbatches; /* of the current call */
    int32_t step;  /* pass over the order; -1: only calls of F "ahead" (core/program/program.h) */
    int32_t ahead; /* the current call is of step + ahead */
    int64_t seq;  /* of the current call; of updates, whose channels have a message a step, the step */
    bool runs_ahead; /* ahead_on_lane */
    bool unflushed;  /* engine.unflushed */
    bool dropped; /* the current call executes no operators */
    int64_t now_ns;
    int64_t update_ns;             /* end of this step's last update, -1 before */
    struct lane_use use;           /* of this step */
    struct lane_use ended[2];      /* of its last two completed steps, by parity */
    struct lane_use period[2];     /* of the current period, and of the last completed one */
    struct lane_use steady;        /* of engine.steady_step */
    int64_t forwards;              /* calls of F in a step */
    int64_t forwards_left;         /* of this step, the current call included */
    int64_t backwards;             /* calls of B and I of this step, the current one included */
    int64_t last_end_ns;           /* of the step before */
    int64_t worked_ns;             /* end of the first step's last call, updates excluded */
    int64_t collective, met_ns;       /* ordinal of the collective in which it waits, -1: none; since when */
    bool met;                      /* the current collective instruction has been handed over */
    int32_t n_touching, *touching; /* channels whose messages change this device's memory */
    struct offload_streams copies;
};

/* Known instants of message seq; -1: not known yet. */
struct message {
    int64_t handed_ns, left_ns, arrival_ns, consumed_ns;
};
struct channel_state {
    int32_t from_lane, to_lane, resource, ahead;
    bool alone; /* network_alone */
    bool fluid; /* its messages may be in flight concurrently (fair sharing) */
    uint64_t order; /* queues.c */
    int64_t occupancy_ns;
    int64_t low;                 /* sequence number of the first message that has not left */
    int64_t started_ns, left_ns; /* of the last message */
    bool pushed;                 /* the head of the queue has become ready */
    int64_t keep;                /* messages before low that are still looked up */
    int64_t capacity;            /* power of two */
    /* (capacity), message seq at seq mod capacity; [low - keep, low - keep + capacity) */
    struct message *window;
    /* (capacity): handed over and not sent, in that order, i-th at i mod capacity */
    int64_t *queue;
    int64_t head, next, tail; /* next: the first of the queue that has not started */
    int64_t born_bytes,
        dead_bytes; /* at the receiver when the message starts, at the sender when it has left */
    enum phase sent_by, received_by; /* phases of the calls */
};

struct collective_streams;
struct overlap;
struct gathering;
struct served;
struct server_turn;

struct engine {
    struct arena *arena;
    const struct program *program;
    struct event_queue *queue;
    struct network *network;
    struct memory *memory;
    struct collective_streams *collectives;
    struct gathering *gatherings;  /* (n_groups) collectives inside calls of folded devices */
    int64_t *folded_ns;         /* (n_groups) duration of each */
    struct served **served;      /* (n_devices) NULL: not a server; NULL without servers that choose among arrivals */
    int64_t *ends_ns;            /* (n_workers, steps) with these: ends of each worker's steps */
    struct overlap *overlap;     /* NULL: no link has compute_slowdown, so lanes run ahead */
    struct trace *trace;         /* NULL: not kept */
    const bool *trace_replicas;  /* replicas whose spans are kept; NULL: all */
    int32_t trace_step;          /* the only step whose spans are kept; -1: all */
    const struct jitter *jitter; /* NULL: none */
    struct lane_state *lanes;    /* (n_devices) */
    bool *awake;                 /* (n_devices): in the wake list */
    int32_t *wake, n_wake, first_wake; /* (n_devices) a circular list: lanes that may continue */
    bool watches_order;                /* stop at the first message out of order (network_overtaken) */
    uint64_t order;                    /* of the ready event that is processed */
    struct channel_state *channels;    /* (n_channels) */
    int32_t *lane_of_stage;            /* (n_stages) */
    struct offload_state *offloads;    /* (n_stages) */
    int32_t steps;
    bool unflushed; /* some lane runs ahead, so pipelines fill in front of the first step only */
    int64_t now_ns, limit_ns, events, event_ns, most_work_ns, operators;
    enum engine_stop stop;
    enum status status; /* STOP_ERROR */
    struct error error;
    struct period period; /* of procedures with a period, as simulated; n 0: the program has none */
    /* (steps): lanes that have ended the step, its end, and the common shift of all lanes' ends since the previous step (-1:
     * shifts differ). After a common shift all following steps repeat this one. step_last: the lane that ended last, the
     * lowest index among equals */
    int32_t *step_lanes, *step_last;
    int64_t *step_end_ns, *step_shift_ns;
    int32_t steady_step; /* the first such step that another follows; 0: none found */
    /* End of that following step. Without a trace the run stops there and not earlier, because the next step's first messages
     * allocate memory while the last lanes are still in this one. INT64_MAX: none found. */
    int64_t until_ns;
};

void engine_fail(struct engine *e, enum status status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* lane.c */
void lane_start(struct engine *e, int32_t lane);
/* Of a step of local SGD, the mean over a period. */
struct lane_use lane_period_use(const struct engine *e, int32_t lane);
void lane_run(struct engine *e,
              int32_t lane); /* runs until it waits; no effect on a lane that still waits */
void engine_wake(struct engine *e, int32_t lane); /* queues lane_run before the next event */

/* queues.c: orders of channels and hops; after messages_new and collective_new */
void queues_new(struct engine *e);

/* messages.c */
MUST_CHECK enum status messages_new(struct engine *e, struct cost *k, struct error *err);
void messages_start(struct engine *e); /* after network_start */
int64_t messages_settled(const struct engine *e,
                         int32_t lane); /* no earlier message can still change the lane's memory */
int64_t messages_occupancy(const struct engine *e, int32_t channel); /* of the queue's head, ns */
void messages_hand_over(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns);
void messages_consumed(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns);
int64_t messages_arrival(const struct engine *e, int32_t channel,
                         int64_t seq); /* -1: not known yet */
int64_t messages_handed(const struct engine *e, int32_t channel,
                        int64_t seq); /* -1: not handed over yet */
int64_t messages_left(const struct engine *e, int32_t channel,
                      int64_t seq); /* -1: not known yet; 0 for seq < 0 */
void messages_started(struct engine *e, int32_t channel, int64_t start_ns);
void messages_follow(struct engine *e, int32_t channel); /* after a start: starts the next one if it may */
void messages_left_link(struct engine *e, int32_t channel, const struct passage *passage);

/* collectives.c */
MUST_CHECK enum status collective_new(struct engine *e, struct cost *k, struct error *err);
/* Instructions of collectives that are simulated here name the lane's member, or -1 - collective if it has none. */
int32_t collective_named(const struct engine *e, int32_t name); /* the collective */
void collective_hand_over(struct engine *e, int32_t name, int32_t lane, int64_t now_ns);
int64_t collective_end(const struct engine *e, int32_t name, int32_t step); /* -1: not known yet */
/* When the last member launched the execution that the last one to start is in; that of the collective's latest launch, if a member
 * has just waited for it. */
int64_t collective_launched(const struct engine *e, int32_t name);
int32_t collective_resource(const struct engine *e, int32_t hop, int64_t *occupancy_ns);
bool collective_due(struct engine *e, int32_t hop); /* a ready event; false: it is outdated, or the collective goes on without it */
void collective_started(struct engine *e, int32_t hop, int64_t start_ns);
void collective_moved(struct engine *e, int32_t hop, const struct passage *passage);
int32_t
collective_parts(const struct collective *g); /* most spans of one launch by one member */
void collective_over(struct engine *e, int32_t group, int64_t now_ns); /* a priced collective has ended */
int32_t collective_unfinished(const struct engine *e, int32_t lane);   /* collective it is in; -1 */

/* served.c; without such servers e->served stays NULL and served_new is the only call */
void served_new(struct engine *e); /* after messages_new */
void served_message(struct engine *e, int32_t channel, int64_t arrival_ns); /* a message by_step has left */
void served_event(struct engine *e, int32_t channel);
/* The server's next call, now the lane's; false: it waits for an arrival, or is done. */
bool served_next(struct engine *e, int32_t lane, struct server_turn *out);
struct lane_use served_use(const struct engine *e, int32_t lane, int64_t iteration_ns);
int64_t served_iteration_ns(struct engine *e); /* server_order_iteration_ns */
double served_applied(const struct engine *e);  /* of sim_result */
struct server_counts served_counts(const struct engine *e);

/* ahead.c */
void ahead_new(struct engine *e); /* after network_start */
void ahead_event(struct engine *e, const struct event *x);
/* The hop's message is ready now. true: the collective goes on without events. */
bool ahead_claim(struct engine *e, int32_t hop);

/* collect.c */
MUST_CHECK enum status collect_new(struct engine *e, struct cost *k, struct error *err);
int64_t collect_end(struct engine *e, int32_t lane,
                    const struct code *c); /* the lane has arrived at c; -1: end not known yet */

/* overlap.c; without any compute_slowdown e->overlap stays NULL and overlap_new is the only call */
void overlap_new(struct engine *e);
/* true: the operator has ended. false: it is running; call again when the lane is woken. */
bool overlap_compute(struct engine *e, int32_t lane, int64_t work_ns, int64_t *begin_ns);
bool overlap_wait(struct engine *e, int32_t lane, int64_t when_ns); /* true: when_ns is reached */
void overlap_begins(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t start_ns);
void overlap_ends(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t left_ns);
void overlap_event(struct engine *e, const struct event *x);

/* report.c */
/* Reserves memory for all spans of the run; ERR_RESOURCE if they and o->beside_trace exceed the limit in o. */
MUST_CHECK enum status report_reserve(struct engine *e, const struct sim_options *o,
                                      struct error *err);
void report_operator(struct engine *e, int32_t lane, const struct code *c, int64_t begin_ns,
                     int64_t end_ns);
void report_message(struct engine *e, int32_t channel, int64_t seq, const struct passage *passage);
/* Of the current call's stage. */
void report_copy(struct engine *e, int32_t lane, enum span_kind kind, const struct offload_copy *copy);
/* index: of the member; part: step of the collective; times: earlier launches in the same step */
void report_collective(struct engine *e, int32_t lane, int32_t group, int32_t index, int32_t part,
                       int32_t step, int32_t times, int64_t begin_ns, int64_t end_ns,
                       int64_t bytes);
void report_same_device_collective(struct engine *e, int32_t lane, int32_t group, int64_t begin_ns,
                    int64_t end_ns);
void report_steps(struct engine *e, const struct sim_result *r, const struct cost *k);
enum status report_blocked(const struct engine *e, struct error *err);

#endif
