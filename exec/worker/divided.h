/* exec/worker/divided.h - checkpoints of what ranks divide among themselves (ZeRO; core/program/program.h's program_shard).
 *
 * A checkpoint has whole tensors by name, whoever computes them. So parts are put together on rank 0, one tensor after the
 * other, and written there, some DIVIDED_FILE_BYTES to a file; nobody holds more than that and its own parts. Reading needs
 * no messages: each rank takes its part out of the whole tensor.
 */
#ifndef EXEC_WORKER_DIVIDED_H
#define EXEC_WORKER_DIVIDED_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

enum { DIVIDED_FILE_BYTES = 64 << 20 };

/* This rank's parts of one tensor: elements first … first + n - 1. */
struct divided_piece {
    const struct program_parameter *parameter;
    int part; /* 0: the parameter, 1 and 2: m and v of the optimizer */
    int64_t first, n;
    const void *data;
    const struct tensor_shard
        *kept; /* of the whole, which the parameter here is; NULL: all of it */
};
struct divided {
    int32_t n;
    struct divided_piece *pieces;
};

/* Copies of all parts that this rank owns; *finite becomes false where one holds what is not a finite number. */
MUST_CHECK enum status divided_collect(struct rank *r, const struct chunks *chunks, struct arena *a,
                                       struct divided *out, bool *finite, struct error *err);
/* All ranks together: the divided tensors into files of the folder, and on rank 0 their rows of the manifest. */
MUST_CHECK enum status divided_write(struct rank *r, struct arena *a, const char *folder,
                                     const struct divided *mine, struct checkpoint_tensor **tensors,
                                     int32_t *n, struct error *err);
/* What chunk k has of a divided parameter and its state, from the checkpoint. */
MUST_CHECK enum status divided_load(struct rank *r, const struct checkpoint *c,
                                    const struct chunk *k, const struct program_parameter *p,
                                    struct error *err);

#endif
