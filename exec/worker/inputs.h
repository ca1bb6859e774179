/* exec/worker/inputs.h - training data, the inputs of a microbatch, and those shards of them that a device has.
 *
 * A discrete lane fills pinned memory, two buffers by turns, and copies on a stream of its own: behind the last call that read
 * what the slot held before, ahead of the compute stream, which waits for the copy. */
#ifndef EXEC_WORKER_INPUTS_H
#define EXEC_WORKER_INPUTS_H

#include "core/program/program.h"
#include "exec/data.h"

#include <stdint.h>

struct async_issue;
struct chunk;
struct chunks;
struct device_clock;
struct progress;
struct rank;

struct chunk_inputs; /* a discrete lane: of one chunk */

/* All fields belong to inputs.c. */
struct inputs {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    struct async_issue *ahead;
    struct device_clock *clock;
    struct data data;
    uint32_t crc;            /* rank 0, once inputs_identify was called */
    int64_t longest_bytes;   /* of an input's sequence or image */
    void *row;               /* (longest_bytes) */
    int32_t stream;          /* of copies; a discrete lane */
    struct chunk_inputs *of; /* (n_chunks) a discrete lane; else NULL */
};

/* Reads nothing yet. */
MUST_CHECK enum status inputs_open(struct inputs *x, struct rank *r, const struct chunks *c,
                                   const struct progress *g, struct async_issue *ahead,
                                   struct device_clock *clock, struct error *err);
void inputs_close(struct inputs *x);
/* All ranks together: rank 0 works out the data's CRC. */
MUST_CHECK enum status inputs_identify(struct inputs *x, struct error *err);

/* Bytes of pinned memory that a device's lane takes, and the buffers themselves. */
int64_t inputs_pinned_bytes(const struct program *p, int32_t device);
MUST_CHECK enum status inputs_open_discrete(struct inputs *x, char *pinned, struct error *err);

/* Number, among all sequences that are trained on, of the first one that the stage has of a microbatch of the current step. */
int64_t inputs_first_sequence(const struct inputs *x, const struct program_stage *s,
                              int32_t microbatch);
/* The inputs of a microbatch into the buffers of sequence number seq. */
MUST_CHECK enum status inputs_load(struct inputs *x, const struct chunk *k, int32_t microbatch,
                                   int64_t seq, struct error *err);
/* A call that reads the inputs of seq has been issued. */
MUST_CHECK enum status inputs_read(struct inputs *x, const struct chunk *k, int64_t seq,
                                   struct error *err);

#endif
