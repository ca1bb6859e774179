/* planner/coarse/line.h - one pipeline of a team: its stages on consecutive GPUs, and the layers of each. */
#ifndef PLANNER_COARSE_LINE_H
#define PLANNER_COARSE_LINE_H

#include "planner/coarse/internal.h"

/* A sequence of stages of one team; without layers until it is balanced. */
struct coarse_line {
    const struct coarse *q;
    const struct space *s;
    int32_t replicas, zero, n;
    bool alone;    /* on GPUs of every class, so that no other team holds its parameters */
    bool split;    /* weight gradients apart, whatever recomputation that takes */
    bool eager;    /* eager 1F1B with the backward undivided, likewise */
    bool by_stage; /* placement of the replicas, as in struct coarse_template */
    /* Of presets. textbook: 1F1B with W in B, or by `in_flight`. */
    bool textbook;
    int32_t in_flight; /* microbatches of every stage, all forwards before all backwards; 0: those of 1F1B */
    int32_t chunks;    /* of every stage, interleaved; 0: one */
    int32_t shards;    /* replicas of all teams, over which ZeRO divides; 0: those of this team */
    enum recompute recompute; /* of every stage */
    int64_t gathered_bytes;   /* of a GPU, for buckets of ZeRO 2 and 3 */
    struct coarse_stage stage[COARSE_LINE];
    int32_t device[COARSE_LINE]; /* first GPU of each in replica 0 */
    const struct device_route *route[COARSE_LINE]; /* to the next stage */
    int64_t most_ns; /* slowest stage allowed: templates that do worse are of no use */
    int64_t laid;    /* stages whose layers were sought within a pace: the work of balancing */
};

/* What a microbatch takes of a stage, for the pace of the pipeline. */
struct coarse_passage {
    int64_t chain_ns; /* forward, recomputation and what the gradient for the stage before waits for */
    int64_t after_ns, back_ns; /* messages to and from the next stage */
};


/* How stage i is made, and its cost with these layers. */
const struct coarse_degree *coarse_line_degree(const struct coarse_line *l, int32_t i);
const struct stage_cost *coarse_line_cost(const struct coarse_line *l, int32_t i, int32_t first,
                                          int32_t last);
/* Gradients in the precision in which they are sent. */
int64_t coarse_line_wire_bytes(const struct coarse_line *l, const struct stage_cost *c);
/* Sets the gradient all-reduce of a stage over very many replicas, by a ring that passes each node once. The rings of stages of a replica
 * share links between nodes (rings.c). */
void coarse_line_set_rings(struct coarse_line *l, int32_t i);
/* Sets the routes by the devices. The first stage without a route to the next one; -1: none. */
int32_t coarse_line_routes(struct coarse_line *l);
/* A message of the cut behind stage i to the next stage, or back. Its GPUs divide it; over links that leave the node it passes
 * together with those of the other replicas below a link. */
int64_t coarse_line_transfer_ns(const struct coarse_line *l, int32_t i, int32_t cut, bool back);
/* The time for which a link carries messages of boundary i and, in the other direction of the pipeline, of the boundary before. Two that leave
 * their nodes may have a link in common; others meet at the port of a GPU, which has one direction for all that it receives and one for all
 * that it sends. */
int64_t coarse_line_links_ns(const struct coarse_line *l, int32_t i, const struct coarse_passage *before,
                             const struct coarse_passage *x);
/* A message of boundary i beside those of the boundaries before and behind that leave the same nodes: activations of one and gradients of
 * the other share a link. Once a microbatch they meet, because the link that delays a cycle of the pipeline sets its phase, and they share
 * it until the shorter one ends; messages of one stage begin apart by its work between them. */
int64_t coarse_line_meeting_ns(const struct coarse_line *l, int32_t i, bool back, int64_t alone_ns);
/* Time for which the messages of a cut behind stage i keep both its neighbours' GPUs from computing. */
int64_t coarse_line_busy_ns(const struct coarse_line *l, int32_t i, int32_t cut);
/* The first layer of the longest stage i that ends before `end` within the pace; end: there is none. */
int32_t coarse_line_longest(const struct coarse_line *l, int32_t i, int32_t end, int64_t pace_ns);
/* Layers by bisection of the slowest stage's time; false: they do not fit. */
bool coarse_line_balance(struct coarse_line *l);
/* Parameters, gradients and optimizer state of a GPU of stage i, divided over the replicas by ZeRO. */
int64_t coarse_line_state_bytes(const struct coarse_line *l, int32_t i, int32_t first, int32_t last);
/* Bytes missing on a GPU of stage i of a balanced line with the most recomputation; 0: it fits with that which the stage receives. */
int64_t coarse_line_missing(struct coarse_line *l, int32_t i);
/* Times of a balanced line; its stages are the line's own. */
void coarse_line_measure(struct coarse_line *l, struct coarse_template *out);

#endif
