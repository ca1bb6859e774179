/* exec/worker/offloads.h - copies of activations to host memory and back (core/program/offload.h).
 *
 * A discrete device in real time copies on two streams of its own, one for each direction, ordered by events against the compute stream; the
 * thread waits for none of them. A host, and an emulated device, copies at once on the compute stream; on emulated devices the copy lasts
 * as long as the device's host_bandwidth states, on virtual copy streams. Thread: the compute thread only. */
#ifndef EXEC_WORKER_OFFLOADS_H
#define EXEC_WORKER_OFFLOADS_H

#include "core/program/offload.h"
#include "exec/worker/chunks.h"

struct async_issue;
struct device_clock;
struct span_list;

struct offload_events { /* of a part in host memory, by direction: to the host, back */
    int32_t begin[2], end[2];
    int64_t seq[2]; /* of the copy between them whose span has not been read; -1: none */
    int32_t part;
};
struct offload_chunk {
    struct chunk *chunk;
    struct offload_state state;    /* count 0: the stage offloads nothing */
    int64_t bytes;                 /* of one copy */
    int64_t ns;                    /* of one copy on an emulated device; else 0 */
    struct offload_events *events; /* (count · parts) discrete device in real time; else NULL */
};
/* All fields belong to offloads.c. */
struct offloads {
    struct rank *r;
    struct async_issue *ahead;
    struct device_clock *clock;
    struct span_list *spans;
    struct offload_chunk *chunks; /* (n_chunks) */
    int32_t n_chunks;
    struct offload_streams times;
    int64_t begun;              /* step of message 0 */
    bool streams;               /* the device has copy streams */
    int32_t stream[2], ready;   /* by direction; ready: event of the compute stream */
};

/* After the chunks' memory is open. ERR_RESOURCE. */
MUST_CHECK enum status offloads_open(struct offloads *x, struct rank *r, struct chunks *c, struct async_issue *ahead, struct device_clock *clock,
                                     struct span_list *spans, struct error *err);
/* Before a call with OFFLOAD writes its part 0; OFFLOAD; FETCH; the end of the last call that reads its buffer. chunk: of the lane. */
MUST_CHECK enum status offloads_room(struct offloads *x, int32_t chunk, int64_t seq, struct error *err);
MUST_CHECK enum status offloads_out(struct offloads *x, int32_t chunk, int64_t seq, int32_t part, struct error *err);
MUST_CHECK enum status offloads_fetch(struct offloads *x, int32_t chunk, int64_t seq, int32_t part, struct error *err);
MUST_CHECK enum status offloads_consumed(struct offloads *x, int32_t chunk, int64_t seq, struct error *err);
/* Messages are numbered anew, those of step `begun` of the run first; the device has finished, and all copies have been consumed. */
MUST_CHECK enum status offloads_restart(struct offloads *x, int64_t begun, struct error *err);
/* Reads the spans of all copies; the device has finished. */
MUST_CHECK enum status offloads_finish(struct offloads *x, struct error *err);

#endif
