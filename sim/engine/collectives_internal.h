/* sim/engine/collectives_internal.h - state of the collectives of one simulation; for sim/engine/collectives*.c alone.
 *
 *   collectives.c       execution: streams, parts, messages
 *   collectives_new.c   members, hops and their links
 *   ahead.c             those that have their links to themselves
 */
#ifndef SIM_ENGINE_COLLECTIVES_INTERNAL_H
#define SIM_ENGINE_COLLECTIVES_INTERNAL_H

#include "sim/engine/engine.h"

struct member {
    int32_t group, index, lane; /* index in the collective */
    int32_t part, pending;      /* messages of this part that have not ended */
    bool repeats;               /* program_collective_repeats */
    bool active;                /* in the collective */
    bool waits;                 /* for the start of the execution (ahead.c) */
    bool sent, received;        /* in this part */
    int32_t launched, ended; /* launches of this collective, one a step for a gradient all-reduce */
    int32_t step, times; /* of the running one: its step, and the earlier launches of that step */
    int32_t next_step, next_times;             /* of the last one launched */
    int64_t begin_ns, part_end_ns, part_bytes; /* of the part */
    int64_t end_ns;                            /* of the last collective */
};

/* A hop of collectives inside calls is shared by all collectives of the two lanes over this link, because each lane is in one
 * collective at a time; `from` and `to` are then the members of the latest one. */
struct hop {
    int32_t from, to; /* members */
    int32_t resource, link, direction, from_lane, to_lane;
    bool from_here, to_here;
    uint64_t order; /* queues.c */
    int64_t ready_ns, bytes;
    /* a message is on the link; its ready events in the queue, those to be passed over, and the time of the last one */
    bool moves;
    int32_t queued, outdated;
    int64_t queued_ns;
};

struct handed {
    int32_t member, step, times;
    int64_t when_ns;
};

struct stream_state {
    bool busy;
    int64_t free_ns;
    int32_t *members, n_members; /* of this lane, by collective */
    size_t first, n, capacity;
    struct handed *queue; /* waiting: queue[first … first + n - 1] */
};

/* State of a collective that starts when all members have arrived: a priced one (sim/collective/price.h), or a ring that is one flow
 * (ring_flow.h). */
struct rendezvous {
    int64_t price_ns; /* -1: not priced */
    int32_t n_members, here;
    int32_t n_launches; /* of an execution: the collective's members */
    bool together;      /* its members only meet: it is priced or one flow */
    int64_t latest_ns;
    int32_t started; /* the current execution; their latest launch, and that of the last execution that all have started */
    int64_t launching_ns, launched_ns;
};

struct collective_streams {
    struct rendezvous *rendezvous;     /* (n_collectives) */
    int32_t *first_member, *first_hop; /* (n_groups) */
    int32_t **collective_hop_of; /* (n_groups) of collectives: (n, n), or (n) by ring; -1: none */
    int32_t n_members, n_hops;
    struct member *members;
    struct hop *hops;
    struct stream_state *streams; /* (n_devices) */
    struct ahead *ahead;          /* (n_collectives) of ahead.c; NULL: not used */
};

/* Messages of a member in one part. */
struct collectives_part {
    int32_t send, receive; /* into hops; -1: none */
    int32_t to;            /* the member of the collective that receives what it sends, or represents that one; -1: none */
    int64_t send_bytes, receive_bytes;
};

/* collectives.c */
struct collectives_part collectives_part(const struct engine *e, int32_t group, int32_t member, int32_t part);
/* The member has begun its part; messages of it that have not ended, and do not move, wait for their other end. */
void collectives_go_on(struct engine *e, struct member *m);
void collectives_end(struct engine *e, struct member *m, int64_t now_ns); /* it has left its collective */

/* ahead.c: true: the member waits for the start of the execution; false: it goes on by messages */
bool ahead_begins(struct engine *e, struct member *m, int64_t now_ns);

/* Members before folding: in a folded ring (sim/engine/fold) one represents all. */
static inline int32_t collectives_ranks(const struct collective *g)
{
    return g->stands_for ? g->stands_for : g->n_members;
}

static inline bool collectives_folded(const struct collective *g)
{
    return collectives_ranks(g) > g->n_members;
}

/* Steps of a ring of segments. */
static inline int32_t collectives_ring_steps(const struct collective *g)
{
    return (program_collective_divides(g) ? 1 : 2) * (collectives_ranks(g) - 1);
}

/* Simulated by collect.c. */
static inline bool collectives_elsewhere(const struct collective *g)
{
    return g->each_call && !collective_of_tensor(g);
}

#endif
