/* exec/worker/inputs.h - loads the inputs of microbatches, or the shards of them that a device needs.
 *
 * On a discrete device inputs are filled into one of two pinned buffers and copied on a separate stream. The copy
 * waits for the last call that read the slot, and the compute stream waits for the copy. */
#ifndef EXEC_WORKER_INPUTS_H
#define EXEC_WORKER_INPUTS_H

#include "core/program/program.h"
#include "exec/data/data.h"

#include <stdint.h>

struct async_issue;
struct chunk;
struct chunks;
struct device_clock;
struct progress;
struct rank;

struct chunk_inputs; /* of one chunk on a discrete device */

/* All fields belong to inputs.c. */
struct inputs {
    struct rank *r;
    const struct chunks *chunks;
    const struct progress *progress;
    struct async_issue *ahead;
    struct device_clock *clock;
    struct data data, validation; /* validation: of a run that evaluates */
    uint32_t crc;            /* rank 0, after inputs_identify */
    int64_t longest_bytes;   /* largest sequence or image of an input */
    void *row;               /* (longest_bytes) */
    int32_t stream;          /* of copies; discrete device only */
    struct chunk_inputs *of; /* (n_chunks) on a discrete device; else NULL */
};

/* Opens the data; reads nothing yet. */
MUST_CHECK enum status inputs_open(struct inputs *x, struct rank *r, const struct chunks *c,
                                   const struct progress *g, struct async_issue *ahead,
                                   struct device_clock *clock, struct error *err);
void inputs_close(struct inputs *x);
void inputs_restart(struct inputs *x); /* messages are numbered anew; the device has finished */
/* All ranks together: rank 0 computes the data's CRC. */
MUST_CHECK enum status inputs_identify(struct inputs *x, struct error *err);

/* Bytes of pinned memory of a device's lane, and their use. */
int64_t inputs_pinned_bytes(const struct program *p, int32_t device);
MUST_CHECK enum status inputs_open_discrete(struct inputs *x, char *pinned, struct error *err);

/* Number, in the whole training, of the stage's first sequence of the microbatch of sequence number seq. */
int64_t inputs_first_sequence(const struct inputs *x, const struct program_stage *s, int64_t seq);
/* Loads a microbatch's inputs into the buffers of sequence number seq. */
MUST_CHECK enum status inputs_load(struct inputs *x, const struct chunk *k, int64_t seq, struct error *err);
/* A call that reads the inputs of seq has been issued. */
MUST_CHECK enum status inputs_read(struct inputs *x, const struct chunk *k, int64_t seq,
                                   struct error *err);

#endif
