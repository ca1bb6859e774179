/* exec/host_transport/collective.h - gradient all-reduces and collectives inside calls over host memory, as state
 * machines.
 *
 * A lane's collectives run one at a time, in the order they were handed over. Each advances when its messages
 * complete: ring (reduce-scatter, then all-gather), chain or rounds, in the exact order of core/program/program.h; a local
 * reduction of two chunks completes at once. Arithmetic has a fixed order and takes no time on an emulated device. If
 * the wire dtype is narrower than the sum's, data goes through staging and is rounded there. Thread: the
 * communication thread (or inline in a run of one device).
 */
#ifndef EXEC_HOST_TRANSPORT_COLLECTIVE_H
#define EXEC_HOST_TRANSPORT_COLLECTIVE_H

#include "core/graph/phase.h"
#include "core/program/program.h"
#include "exec/host_transport/memory.h"
#include "exec/host_transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct piece { /* a segment in memory */
    char *data;
    int64_t elements;
};

struct tensor_operands { /* this rank's operands of a collective inside calls; the buffers are staging */
    struct place in, out;
    struct region *from, *into; /* (n) from: what of `in` goes to member k; into: what of `out` comes from it */
    char *chunks, *outgoing, *incoming;
};

struct collective_end {    /* this rank's member of one group */
    int32_t group, member; /* -1: not a member */
    char *incoming; /* staging: incoming data, then outgoing data that is not contiguous */
    struct collective_end *also; /* LOCAL: the next chunk's end; NULL at the end */
    int32_t n_pieces;
    /* (n_pieces) the sums, with adjacent ones joined; for SCATTER and GATHER the segments */
    struct piece *pieces;
    char **own;                 /* (n_pieces) this member's shards; NULL: within the segments */
    int32_t n_chain_pieces;     /* segments of separate microbatches; 0: the sum is in pieces */
    struct piece *chain_pieces; /* (n_chain_pieces) data: offset in a buffer of the ring */
    /* first buffer; microbatch m of step s is buffer (s · microbatches + m) mod count */
    char *buffer_ring;
    int64_t buffer_ring_count, buffer_ring_stride, microbatches;
    struct tensor_operands *collective; /* NULL: a gradient all-reduce */
};

struct bounce;
struct collectives;
struct collective_order;
/* A step of a ring or a chain has ended on this rank. */
typedef void collective_step_ended(void *owner, const struct collective_order *of, int32_t part,
                                   int64_t begin_ns, int64_t end_ns, int64_t bytes);
typedef void collective_ended(void *owner, const struct collective_order *of, int64_t end_ns);

struct collective_order {
    int32_t group, times; /* times: earlier launches in this step */
    int64_t number, step; /* number: earlier launches in all */
    int64_t ready_ns;
    int64_t seq; /* of the call; and its phase, U for gradient all-reduces */
    enum phase phase;
    int32_t after; /* discrete device: event + 1 of the compute stream; 0: none */
};

struct collectives {
    struct arena *a;
    const struct program *p;
    struct wires *wires;   /* NULL: one device */
    struct bounce *bounce; /* discrete device; else NULL */
    int32_t rank;
    struct collective_end *members; /* (n_groups) */
    struct collective_order *queue; /* (capacity) [first, next) handed over; the first one is running */
    int64_t capacity, first, next;
    bool running, begun;                     /* begun: its inputs are available */
    int32_t part;                            /* step of the ring or chain */
    int64_t begin_ns;                        /* of this step */
    int64_t previous_end_ns;                 /* of the previous collective */
    bool sent, received;                     /* completed ends of this step */
    bool part_moves;                         /* this step has a message */
    int64_t left_ns, arrival_ns, part_bytes; /* part_bytes: sent by this member */
    collective_step_ended *step_ended;
    collective_ended *ended;
    void *owner;
};

void collective_add(struct collectives *c, struct collective_order what); /* enqueues */
bool collective_progress(struct collectives *c); /* starts the next one if none is running */
/* A message of an edge has ended on this rank. */
void collective_message(struct collectives *c, int32_t wire, int64_t end_ns);
/* The rank that the running collective waits for, and its group in *group; -1 if none is running. */
int32_t collective_waits_for(const struct collectives *c, int32_t *group);

#endif
