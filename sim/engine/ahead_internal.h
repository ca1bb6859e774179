/* sim/engine/ahead_internal.h - state of the collectives that are computed ahead; for sim/engine/ahead*.c alone.
 *
 *   ahead.c        which collectives, claims and their end
 *   ahead_known.c  an execution like the one before it
 *   ahead_walk.c   what follows from a state of a collective
 *   ahead_queues.c the same where members share FIFO links
 */
#ifndef SIM_ENGINE_AHEAD_INTERNAL_H
#define SIM_ENGINE_AHEAD_INTERNAL_H

#include "sim/engine/collectives_internal.h"

enum {
    /* Parts of a ring that are computed before a period is looked for. A ring whose members begin apart takes about as many parts
     * as it has hops of different durations (8 GPUs a node) to become periodic; each part more is computed in vain when the claim is
     * broken. 2,048 GPUs with ZeRO-3, folded: 0.32 s with 12, 0.36 s with 24, 0.51 s with 64. */
    AHEAD_PARTS = 16
};

struct ahead_member {
    int64_t began_ns, ends_ns; /* of its part; ends: of the message that has ended, else began */
    int64_t seen_ns;           /* when the engine would have processed the last end */
    uint64_t order;            /* of that event (queues.c) */
    int32_t part;
    bool sent, received; /* in its part */
    bool gone;           /* its end has been processed */
};

struct ahead_message { /* that a member sends in its part */
    int32_t part;      /* for which the fields below hold; -1: for none */
    int32_t to, hop;   /* the receiver, into ahead.member; into hops */
    int64_t bytes;
    bool moves;
    int64_t since_ns;
    double left_bytes; /* at since_ns */
};

struct ahead_end { /* of one member's execution; as ahead_member */
    int64_t end_ns, seen_ns;
    uint64_t order;
};

struct ahead_known { /* of one member, relative to the first one's begin */
    int64_t begin_ns;
    struct ahead_end end;
};

/* A simulation has hundreds of these, and each event of one reads its numbers: they are together in the first cache lines. */
struct ahead {
    bool able, claims;
    /* Members that have begun the next execution and wait: how many, the two earliest begins, the instant of the event at
     * which the execution starts, and which event that is. by_messages: it has started without those that are not here. */
    bool by_messages;
    bool known; /* the last execution that was computed from its start to its end, see known_members */
    bool repeats; /* the present one is like it from repeats_ns on: `members` and `ahead` are not written */
    bool looked_up; /* messages[].part may not be -1, as it is where an execution begins */
    int32_t n;  /* members that are simulated */
    int32_t here, parts, n_links, n_queues;
    int64_t first_ns, second_ns, due_ns, gathering;

    /* With a claim. running: members whose end has not been processed; stamp: outdated events carry an older one; ahead: the
     * state after what is computed ahead. */
    int32_t running, reach; /* reach: parts that are computed beyond the furthest member's */
    int64_t stamp;
    int32_t *member; /* (n) in the collective */
    int32_t *place;  /* (n_members) of each of those in `member` */
    int32_t *links;  /* (n_links) of the network, of all its messages */
    /* (n_queues) FIFO resources of all its messages, if several lanes or a pipeline share one of them; free_ns: when each is free
     * of what is computed ahead */
    int32_t *queues;
    int64_t *free_ns;
    struct ahead_member *members, *ahead;
    struct ahead_message *messages, *ahead_messages; /* (n) */
    /* steady_ns > 0: from the state `steady` on, which the engine would have processed by steady_seen_ns, every part takes all
     * members so long */
    int64_t steady_ns, steady_seen_ns;
    struct ahead_member *steady;

    struct ahead_known *known_members; /* (n) */
    int64_t repeats_ns, repeats_seen_ns;    /* the first member's begin; when the engine processed it */
    int64_t *known_free_ns, *known_left_ns; /* (n_queues) before and after it; 0 before: free in time */
};

/* From the members' and messages' states: no member goes beyond part `target`, messages that end after until_ns are left
 * moving. last_ns: when the engine would have processed the last message that has ended. */
struct ahead_walk {
    struct engine *e;
    int32_t group, target;
    int64_t until_ns, last_ns;
};

static inline struct ahead *ahead_of(const struct engine *e, int32_t group)
{
    return &e->collectives->ahead[group];
}
static inline struct member *ahead_member(const struct engine *e, int32_t group, int32_t i)
{
    return &e->collectives
                ->members[e->collectives->first_member[group] + ahead_of(e, group)->member[i]];
}

/* ahead_known.c: whether all members begin as in the known execution, so that the present one repeats it; after an execution from its start: it
 * is known if it was computed to its end; the state of one that repeats is written, for one whose claim is broken or whose members end apart */
bool ahead_known_repeats(const struct engine *e, int32_t group);
void ahead_known_keep(struct ahead *r);
void ahead_known_write(struct ahead *r);

static inline struct ahead_end ahead_end_of(const struct ahead *r, int32_t i)
{
    const struct ahead_member *x = &r->ahead[i];
    if (!r->repeats) return (struct ahead_end){x->began_ns, x->seen_ns, x->order};
    struct ahead_end y = r->known_members[i].end;
    return (struct ahead_end){r->repeats_ns + y.end_ns, r->repeats_ns + y.seen_ns, y.order};
}

/* ahead_walk.c: the collective's state by then, into `ahead`; as far as is worth it, or to its end: returns the part that is reached,
 * and the instant, not before now, until which no member has passed it */
struct ahead_walk ahead_walk(struct engine *e, int32_t group, int32_t target, int64_t until_ns);
int32_t ahead_run(struct engine *e, int32_t group, int64_t *first_ns);

/* ahead_queues.c */
void ahead_queues_add(int32_t *queues, int32_t *n, int32_t resource); /* once */
/* of: FIFO resources, kept as the collective's queues; false: it is not computed ahead there */
bool ahead_queues_new(struct engine *e, int32_t group, const int32_t *of, int32_t n);
bool ahead_queues_claimable(const struct engine *e, const struct ahead *r);
void ahead_queues_claim(struct engine *e, const struct ahead *r, int32_t group);
void ahead_queues_release(struct engine *e, const struct ahead *r);
/* Before an execution, whose members have begun: whether the queues are free as before the known one; as known_free_ns */
bool ahead_queues_known(const struct engine *e, int32_t group);
void ahead_queues_remember(struct engine *e, int32_t group);
void ahead_queues_walk(struct ahead_walk *w);
void ahead_look_up(const struct engine *e, int32_t group, int32_t i, int32_t part,
                   struct ahead_message *out);

#endif
