/* exec/worker/divided.h - checkpoints of parameters and optimizer state sharded over replicas (ZeRO; program_shard in
 * core/program/program.h).
 *
 * A checkpoint has unsharded tensors by name, independent of the plan. On save, rank 0 assembles one tensor after the
 * other for files of about DIVIDED_FILE_BYTES. If these are written at once, no rank holds more than one and its own shards;
 * if they are written while training goes on, rank 0 holds all of them. Loading needs no messages: each rank reads its slice of the
 * unsharded tensor.
 */
#ifndef EXEC_WORKER_DIVIDED_H
#define EXEC_WORKER_DIVIDED_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

struct rank;
struct snapshot;

enum { DIVIDED_FILE_BYTES = 64 << 20 };

/* This rank's shard of one tensor: elements first … first + n - 1. */
struct divided_piece {
    const struct program_parameter *parameter;
    int32_t island;
    int part; /* saved_tensor.h's `which` */
    int64_t first, n;
    const void *data;
    const struct tensor_shard
        *kept; /* slice of the full tensor that this parameter is; NULL: all of it */
};
struct divided {
    int32_t n;
    struct divided_piece *pieces;
};

struct divided_tensors { /* on rank 0; empty elsewhere */
    int32_t n;
    struct checkpoint_tensor *rows; /* (n) */
    const void **data;              /* (n) */
};

/* Copies all shards owned by this rank that are saved after so many steps of the whole training. Ownership: the arena's, of the data the
 * snapshot's. */
MUST_CHECK enum status divided_collect(struct snapshot *s, const struct chunks *chunks, struct arena *a, int64_t steps,
                                       struct divided *out, struct error *err);
/* All ranks together, after snapshot_settle: assembles the tensors. put: rank 0 writes them with it, and data is gone; NULL: they
 * stay in the arena. */
MUST_CHECK enum status divided_gather(struct rank *r, struct arena *a, checkpoint_put *put, void *owner, int64_t steps,
                                      const struct divided *mine, struct divided_tensors *out, struct error *err);
/* On rank 0, any thread: writes the tensors that stayed. */
MUST_CHECK enum status divided_write(struct arena *a, checkpoint_put *put, void *owner, struct divided_tensors *x, struct error *err);
/* Loads chunk k's shard of a parameter and its optimizer state from the checkpoint. */
MUST_CHECK enum status divided_load(struct rank *r, const struct checkpoint *c,
                                    const struct chunk *k, const struct program_parameter *p,
                                    struct error *err);

#endif
