/* sim/engine/engine.h - the state of one simulation, shared by the files that make it up. No other room includes it.
 *
 *   sim.c         setting up, the event loop, the result
 *   lane.c        a device's compute stream: runs ahead of the event queue until it must wait
 *   messages.c    channels: who handed over, who posted, who has left
 *   collective.c  rings and chains on the collective streams
 *   collect.c     collectives inside calls
 *   overlap.c     operators slowed while messages move
 *   report.c      spans, and who is blocked
 *
 * Lanes meet only in messages and collectives, so a lane may run ahead of the queue's time: what it hands over lies in
 * its own time, at or after the queue's. A message is pushed as one event, at the latest of its conditions, when
 * the last of them is known; therefore links see requests in order of (time, push) however far lanes have run.
 * Where a channel has its link's direction to itself nothing needs to be put in order: its passages are known at once, no
 * event is pushed, and a program of such channels alone is evaluated as a recurrence, without any queue. Everything that
 * follows at once is followed up before the next event is taken.
 */
#ifndef SIM_ENGINE_ENGINE_H
#define SIM_ENGINE_ENGINE_H

#include "sim/engine/code.h"
#include "sim/engine/sim.h"
#include "sim/event_queue.h"
#include "sim/memory.h"
#include "sim/network/network.h"

#include <stdbool.h>
#include <stdint.h>

/* Instants stay below a quarter of int64 (73 years), so that the sum of one and a few durations cannot overflow. */
#define ENGINE_MAX_NS (INT64_MAX / 4)

enum engine_event {
    EVENT_READY,
    EVENT_FLOW,
    EVENT_COMPUTED,
    EVENT_WAKE,
    EVENT_MOVING,
    EVENT_COLLECTIVE
}; /* READY: index is a channel, or n_channels + hop of a collective; COLLECTIVE: one with a price is over */
enum engine_stop { STOP_NOT, STOP_LIMIT, STOP_STEADY, STOP_ERROR };

struct lane_state {
    const struct code_procedure **procedures; /* (chunks) of each of its stages */
    const struct code_procedure *procedure;   /* of the current call; NULL: done */
    const struct code *code;                  /* next instruction */
    struct cursor cursor;
    struct call call;
    int32_t stage, microbatches; /* of the current call */
    int32_t step;
    int64_t seq; /* of the current call; -1 for updates */
    int64_t now_ns;
    int64_t update_ns;             /* end of this step's last update, -1 before */
    int64_t busy_ns;               /* compute of this step */
    int64_t last_end_ns;           /* of the step before */
    int64_t ended_busy_ns[2];      /* of the last two steps that it has ended, by parity */
    int64_t worked_ns;             /* end of the first step's last call but updates */
    int64_t steady_busy_ns;        /* of engine.steady_step */
    int64_t collective, met_ns;       /* number of the collective it waits in, -1: none, and since when */
    bool met;                      /* CODE_MEET at hand: handed over */
    int32_t n_touching, *touching; /* channels whose messages change this device's memory */
};

/* What is known of message seq; -1: not yet. */
struct message {
    int64_t handed_ns, left_ns, arrival_ns, consumed_ns;
};
struct channel_state {
    int32_t from_lane, to_lane, resource, ahead;
    bool alone; /* network_alone */
    bool fluid; /* its messages move beside one another, too */
    int64_t occupancy_ns;
    int64_t low;                 /* sequence number of the first message that has not left */
    int64_t started_ns, left_ns; /* when the last one did */
    bool pushed;                 /* the head of the queue has become ready */
    int64_t keep;                /* messages before low that somebody may still ask for */
    int64_t capacity;            /* power of two */
    /* (capacity), message seq at seq mod capacity; [low - keep, low - keep + capacity) */
    struct message *window;
    /* (capacity): handed over and not left, in that order, i-th at i mod capacity */
    int64_t *queue;
    int64_t head, next, tail; /* next: of those, the first that has not started */
    int64_t born_bytes,
        dead_bytes; /* at the receiver when it starts, at the sender when it has left */
    enum phase sent_by, received_by; /* letters of the calls */
};

struct collectives;
struct overlap;
struct gathering;

struct engine {
    struct arena *arena;
    const struct program *program;
    struct event_queue *queue;
    struct network *network;
    struct memory *memory;
    struct collectives *collectives;
    struct gathering *gatherings;  /* (n_groups) of equal GPUs: each_call groups without a collective */
    int64_t *folded_ns;         /* (n_groups) how long each takes */
    struct overlap *overlap;     /* NULL where no link slows computing down: lanes run ahead */
    struct trace *trace;         /* NULL: not kept */
    const bool *trace_replicas;  /* whose spans are kept; NULL: all */
    int32_t trace_step;          /* whose spans alone are kept; -1: of all */
    const struct jitter *jitter; /* NULL: none */
    struct lane_state *lanes;    /* (n_devices) */
    bool *awake;                 /* (n_devices): in the list */
    int32_t *wake, n_wake, first_wake; /* (n_devices) a ring: lanes that may go on */
    struct channel_state *channels;    /* (n_channels) */
    int32_t *lane_of_stage;            /* (n_stages) */
    int32_t steps;
    int64_t now_ns, limit_ns, events, operators;
    enum engine_stop stop;
    enum status status; /* STOP_ERROR */
    struct error error;
    /* (steps): lanes that have ended it, its end, and by how much every lane's end moved since the step before (-1:
     * they differ). Where all lanes moved alike, the steps that follow repeat this one. */
    /* step_last: the lane that ended it last, the first one among equals */
    int32_t *step_lanes, *step_last;
    int64_t *step_end_ns, *step_shift_ns;
    int32_t steady_step; /* the first such step that another follows; 0: none seen */
    /* Then its end: the run stops there, where no trace is kept. Not before, for what the next step's first messages take of
     * memory while the last lanes are still in this one. INT64_MAX: none seen. */
    int64_t until_ns;
};

void engine_fail(struct engine *e, enum status status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* lane.c */
void lane_start(struct engine *e, int32_t lane);
void lane_run(struct engine *e,
              int32_t lane); /* from where it is until it waits; harmless where it still has to */
void engine_wake(struct engine *e, int32_t lane); /* lane_run before the next event */

/* messages.c */
MUST_CHECK enum status messages_new(struct engine *e, struct cost *k, struct error *err);
void messages_start(struct engine *e); /* after network_start */
int64_t messages_settled(const struct engine *e,
                         int32_t lane); /* before it no message changes the lane's memory */
int64_t messages_occupancy(const struct engine *e, int32_t channel); /* of the queue's head */
void messages_hand_over(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns);
void messages_consumed(struct engine *e, int32_t channel, int64_t seq, int64_t now_ns);
int64_t messages_arrival(const struct engine *e, int32_t channel,
                         int64_t seq); /* -1: not known yet */
int64_t messages_left(const struct engine *e, int32_t channel,
                      int64_t seq); /* -1: not known yet; 0 for seq < 0 */
void messages_started(struct engine *e, int32_t channel, int64_t start_ns);
void messages_follow(struct engine *e, int32_t channel); /* one has started: may the next? */
void messages_left_link(struct engine *e, int32_t channel, const struct passage *passage);

/* collective.c */
MUST_CHECK enum status collective_new(struct engine *e, struct cost *k, struct error *err);
void collective_hand_over(struct engine *e, int32_t group, int32_t lane, int64_t now_ns);
int64_t collective_end(const struct engine *e, int32_t group, int32_t lane,
                       int32_t step); /* -1: not known yet */
int32_t collective_resource(const struct engine *e, int32_t hop, int64_t *occupancy_ns);
void collective_started(struct engine *e, int32_t hop, int64_t start_ns);
void collective_moved(struct engine *e, int32_t hop, const struct passage *passage);
int32_t
collective_parts(const struct collective *g); /* spans of one launch by one member, at most */
void collective_over(struct engine *e, int32_t group, int64_t now_ns); /* one with a price */
int32_t collective_unfinished(const struct engine *e, int32_t lane);   /* group it is in; -1 */

/* collect.c */
MUST_CHECK enum status collect_new(struct engine *e, struct cost *k, struct error *err);
int64_t collect_end(struct engine *e, int32_t lane,
                    const struct code *c); /* the lane has come to c; -1: not known yet */

/* overlap.c; without a slowdown anywhere e->overlap stays NULL and only overlap_new is called */
void overlap_new(struct engine *e);
/* true: the operator has ended now. false: it runs, and is to be asked again when the lane is woken. */
bool overlap_compute(struct engine *e, int32_t lane, int64_t work_ns, int64_t *begin_ns);
bool overlap_wait(struct engine *e, int32_t lane, int64_t when_ns); /* true: it is time */
void overlap_begins(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t start_ns);
void overlap_ends(struct engine *e, int32_t link, int32_t from, int32_t to, int64_t left_ns);
void overlap_event(struct engine *e, const struct event *x);

/* report.c */
/* Room for all spans that the program will have; ERR_RESOURCE where they, and what explains them, take more than o allows. */
MUST_CHECK enum status report_reserve(struct engine *e, const struct sim_options *o,
                                      struct error *err);
void report_operator(struct engine *e, int32_t lane, const struct code *c, int64_t begin_ns,
                     int64_t end_ns);
void report_message(struct engine *e, int32_t channel, int64_t seq, const struct passage *passage);
/* index: of the member in the group; times: launches of that step before this one */
void report_collective(struct engine *e, int32_t lane, int32_t group, int32_t index, int32_t part,
                       int32_t step, int32_t times, int64_t begin_ns, int64_t end_ns,
                       int64_t bytes);
void report_same_device_collective(struct engine *e, int32_t lane, int32_t group, int64_t begin_ns,
                    int64_t end_ns);
void report_steps(struct engine *e, const struct sim_result *r, const struct cost *k);
enum status report_blocked(const struct engine *e, struct error *err);

#endif
