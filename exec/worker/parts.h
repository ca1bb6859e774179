/* exec/worker/parts.h - checkpoints of parameters that devices of one stage have in parts (core/collective/part.h).
 *
 * A checkpoint has whole tensors by name, whoever computes them: rank 0 puts each together from everybody's parts and
 * writes it. Some devices may have the same part. Reading needs no messages: each rank takes its part out of the whole.
 */
#ifndef EXEC_WORKER_PARTS_H
#define EXEC_WORKER_PARTS_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

struct parts { /* on rank 0: whole tensors; elsewhere none */
    int32_t n;
    struct checkpoint_tensor *rows; /* (n) */
    const void **data;              /* (n) */
};

/* Whether the stage has but a part of its parameter x. */
bool parts_held(const struct program_stage *s, const struct program_parameter *x);
/* All ranks together; *finite becomes false where a tensor holds what is not a finite number. */
MUST_CHECK enum status parts_collect(struct rank *r, const struct chunks *chunks, struct arena *a,
                                     struct parts *out, bool *finite, struct error *err);
/* All ranks together: rank 0 writes a file of the folder. */
MUST_CHECK enum status parts_write(struct rank *r, struct arena *a, const char *folder,
                                   const struct parts *p, struct error *err);

#endif
