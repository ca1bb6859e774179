/* exec/worker/divided.h - checkpoints of parameters and optimizer state sharded over replicas (ZeRO; program_shard in
 * core/program/program.h).
 *
 * A checkpoint has unsharded tensors by name, independent of the plan. On save, rank 0 assembles one tensor after the
 * other and writes files of about DIVIDED_FILE_BYTES; no rank holds more than that and its own shards. Loading needs
 * no messages: each rank reads its slice of the unsharded tensor.
 */
#ifndef EXEC_WORKER_DIVIDED_H
#define EXEC_WORKER_DIVIDED_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

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

/* Copies all shards owned by this rank that are saved after so many steps of the whole training; *finite becomes false if one has a non-finite value. */
MUST_CHECK enum status divided_collect(struct rank *r, const struct chunks *chunks, struct arena *a,
                                       int64_t steps, struct divided *out, bool *finite,
                                       struct error *err);
/* All ranks together: writes the tensors into files of the folder; rank 0 gets their rows of the manifest. */
MUST_CHECK enum status divided_write(struct rank *r, struct arena *a, const char *folder, int64_t steps,
                                     const struct divided *mine, struct checkpoint_tensor **tensors,
                                     int32_t *n, struct error *err);
/* Loads chunk k's shard of a parameter and its optimizer state from the checkpoint. */
MUST_CHECK enum status divided_load(struct rank *r, const struct checkpoint *c,
                                    const struct chunk *k, const struct program_parameter *p,
                                    struct error *err);

#endif
