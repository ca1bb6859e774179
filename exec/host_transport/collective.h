/* exec/host_transport/collective.h - gradient all-reduces over the members of a group and collectives inside calls, one
 * step after the other.
 *
 * A lane's collectives run one at a time in the order they were handed over. One is a small machine
 * that waits for its messages: ring (reduce-scatter, then all-gather) or chain, word by word as
 * core/program/program.h says; a local sum of two chunks is over at once. Arithmetic is in a fixed order and takes no time on an emulated device. Where the wire is narrower than what is summed,
 * everything goes by staging, rounded in flight.
 * Called by the communication thread alone (or inline where there is one device).
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

struct tensor_operands { /* this rank's of a collective; buffers in staging */
    struct place in, out;
    struct region *from, *into; /* (n) of `in` what goes to member k; of `out` what comes from it */
    char *chunks, *outgoing, *incoming;
};

struct collective_end {    /* this rank's part in one group */
    int32_t group, member; /* member -1: none */
    char *incoming; /* staging: what comes in; behind it what is not contiguous and goes out */
    struct collective_end *also; /* LOCAL: the next chunk's; NULL at the end */
    int32_t n_pieces;
    /* (n_pieces) the sums, neighbours in memory joined; of SCATTER and GATHER the segments */
    struct piece *pieces;
    char **own;                 /* (n_pieces) this member's parts of them; NULL: in the segments */
    int32_t n_chain_pieces;     /* segments of separate microbatches; 0: the sum is in pieces */
    struct piece *chain_pieces; /* (n_chain_pieces) data: offset in a buffer of the buffer ring */
    /* first buffer; microbatch m of step s is buffer (s · microbatches + m) mod count */
    char *buffer_ring;
    int64_t buffer_ring_count, buffer_ring_stride, microbatches;
    struct tensor_operands *collective; /* NULL: a sum */
};

struct bounce;
struct collectives;
struct collective_order;
/* A ring step or a chain's leg of this rank has ended. */
typedef void collective_step_ended(void *owner, const struct collective_order *of, int32_t part,
                                   int64_t begin_ns, int64_t end_ns, int64_t bytes);
typedef void collective_ended(void *owner, const struct collective_order *of, int64_t end_ns);

struct collective_order {
    int32_t group, times; /* times: launches of this step before */
    int64_t number, step; /* number: launches before */
    int64_t ready_ns;
    int64_t seq; /* collective: of the call; and its phase, 'U' of gradient all-reduces */
    enum phase phase;
    int32_t after; /* a lane with discrete memory: event + 1 of the compute stream; 0: none */
};

struct collectives {
    struct arena *a;
    const struct program *p;
    struct wires *wires;   /* NULL: one device */
    struct bounce *bounce; /* a lane with discrete memory; else NULL */
    int32_t rank;
    struct collective_end *members; /* (n_groups) */
    struct collective_order *queue; /* (capacity) [first, next) handed over; the first one runs */
    int64_t capacity, first, next;
    bool running, begun;                     /* begun: what it works on is there */
    int32_t part;                            /* ring step, chain leg */
    int64_t begin_ns;                        /* of this part */
    int64_t previous_end_ns;                 /* of the collective before */
    bool sent, received;                     /* ends of this part that are over */
    bool part_moves;                         /* it has a message */
    int64_t left_ns, arrival_ns, part_bytes; /* bytes that this member sends */
    collective_step_ended *step_ended;
    collective_ended *ended;
    void *owner;
};

void collective_add(struct collectives *c, struct collective_order what); /* into the queue */
bool collective_progress(struct collectives *c); /* starts the next one where none runs */
/* A message of an edge has ended here. */
void collective_message(struct collectives *c, int32_t wire, int64_t end_ns);
/* The rank that the running collective waits for, its group in *group; -1 where none runs. */
int32_t collective_waits_for(const struct collectives *c, int32_t *group);

#endif
