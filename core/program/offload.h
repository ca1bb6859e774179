/* core/program/offload.h - activations that wait in page-locked host memory for their backward: the copies and their order.
 *
 * Without offloading a stage has one buffer of activations for each microbatch in flight. With it (plan key `offload: activations`) it has
 * `count` buffers in host memory, one for each microbatch in flight, and on the device two rings of few buffers: F writes a buffer of
 * ring `out`, and the backward reads one of ring `in` (vDNN, Rhu et al. 2016; SwapAdvisor, Huang et al. 2020; Transformer Engine's CPU
 * offloading). A device has two copy streams, one for each direction; each executes its copies one after the other, concurrently with
 * computation, at the bandwidth of the host link.
 * The activations of a microbatch are copied in parts: one, or one for each transformer block of the stage. One part: a ring has `count`
 * buffers, of which microbatch seq uses number seq mod count. Several: a ring has one buffer with two halves, of which part k of every
 * microbatch uses half k mod 2.
 *   OFFLOAD k (of F): part k is copied to the host when all earlier work of the compute stream has ended; the compute stream continues when
 *             the half of part k + 1 has been copied. A call of F with OFFLOAD first waits until the buffer of its part 0 has been copied.
 *   FETCH k   (of B; with one part of both I and W): the compute stream waits until part k is in `in`. Parts come in descending order, and
 *             parts above k are not read any more.
 * One part: the copy back of seq is enqueued at the end of the call that comes last, F of seq or B (W) of seq − count of `in`, whose buffer
 * it takes. Several: parts are copied back in the order in which the backward reads them, P − 1 … 0 of each microbatch; the next one is
 * enqueued when its OFFLOAD has been executed and the part before it in its half is not read any more: behind an OFFLOAD, a FETCH or the
 * end of a backward. A copy back begins when the copy to the host has ended. All copies of a device are therefore enqueued by its own lane,
 * in an order that the program determines; none waits for another device. Buffers of both rings are part of the stage's memory at all times.
 * The simulator, the executor and the deadlock check share these functions. Each O(1), offload_start O(count · parts).
 */
#ifndef CORE_PROGRAM_OFFLOAD_H
#define CORE_PROGRAM_OFFLOAD_H

#include "core/program/program.h"

enum { OFFLOAD_HALVES = 2 };

struct offload_streams { /* of a device: ends of the last copies */
    int64_t out_ns, in_ns;
};
struct offload_state { /* of a stage */
    int32_t count, parts, out_count, in_count;
    /* (count, parts) by part in host memory: the last message; -1: none */
    int64_t *offloaded, *fetching, *consumed;
    int64_t *out_ns, *in_ns; /* likewise: ends of its copies */
    /* several parts: place in host memory of the last copy from each half, -1; the halves that the backward may not read any more; the next
     * copy back */
    int64_t last[OFFLOAD_HALVES];
    bool free[OFFLOAD_HALVES];
    int64_t next_seq;
    int32_t next_part;
};
struct offload_copy {
    int64_t seq;
    int32_t part;
    int64_t begin_ns, end_ns;
};
struct offload_copies { /* back */
    int32_t n;
    struct offload_copy at[OFFLOAD_HALVES];
};

/* For a stage with an offload. restart: of a state that has no copies in flight; messages are numbered anew. */
void offload_start(struct arena *a, const struct program_stage *s, struct offload_state *out);
void offload_restart(const struct program_stage *s, struct offload_state *x);
/* The part of a message in host memory. */
int64_t offload_place(const struct offload_state *x, int64_t seq, int32_t part);
/* The place whose copy to the host must have ended before F of seq may write part `part`; -1: none. */
int64_t offload_before(const struct offload_state *x, int64_t seq, int32_t part);
/* When that is. */
int64_t offload_room(const struct offload_state *x, int64_t seq, int32_t part);
/* OFFLOAD at now_ns; ns: of one copy. Returns the copy to the host; *back: the copies back that it starts. */
struct offload_copy offload_out(struct offload_state *x, struct offload_streams *s, int64_t seq, int32_t part, int64_t now_ns, int64_t ns,
                                struct offload_copies *back);
/* FETCH: when the part is on the device; -1: its copy back was not enqueued, or its place holds another message. */
int64_t offload_arrival(const struct offload_state *x, int64_t seq, int32_t part);
/* FETCH has ended at now_ns. Returns the copies back that this starts. */
struct offload_copies offload_fetched(struct offload_state *x, struct offload_streams *s, int64_t seq, int32_t part, int64_t now_ns,
                                      int64_t ns);
/* The last call that reads seq (offload_consumes) ends at now_ns. Returns the copies back that this starts. */
struct offload_copies offload_consumed(struct offload_state *x, struct offload_streams *s, int64_t seq, int64_t now_ns, int64_t ns);
/* Whether OFFLOAD would overwrite a part in host memory that has not been consumed; *held: its message. */
bool offload_overwrites(const struct offload_state *x, int64_t seq, int32_t part, int64_t *held);

bool offload_has(const struct procedure *f, enum instr_kind kind);
/* Whether the end of a call frees what it FETCHed: of B and W, not of I. */
bool offload_consumes(const struct procedure *f);
/* Parts of a microbatch: OFFLOADs of F. O(instructions of F). */
int32_t offload_parts(const struct program_stage *s);
/* Of one copy. */
int64_t offload_bytes(const struct program_stage *s);
/* Bytes in host memory; bytes of the two rings, which are allocated at all times. */
int64_t offload_host_bytes(const struct program_stage *s);
int64_t offload_ring_bytes(const struct program_stage *s);
/* Offset in ring `out` or `in` of a part of a message. */
int64_t offload_offset(const struct program_stage *s, int32_t ring, int32_t parts, int64_t seq, int32_t part);

#endif
