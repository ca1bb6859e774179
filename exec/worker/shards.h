/* exec/worker/shards.h - checkpoints of parameters that devices of one stage hold as shards (core/collective/tensor_shard.h).
 *
 * A checkpoint has whole tensors by name, whoever computes them: rank 0 puts each together from everybody's shards and
 * writes it. Some devices may have the same shard. Reading needs no messages: each rank takes its shard out of the whole.
 */
#ifndef EXEC_WORKER_SHARDS_H
#define EXEC_WORKER_SHARDS_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

struct shards { /* on rank 0: whole tensors; elsewhere none */
    int32_t n;
    struct checkpoint_tensor *rows; /* (n) */
    const void **data;              /* (n) */
};

/* Whether the stage has but a shard of its parameter x. */
bool shards_held(const struct program_stage *s, const struct program_parameter *x);
/* All ranks together; *finite becomes false where a tensor holds what is not a finite number. */
MUST_CHECK enum status shards_collect(struct rank *r, const struct chunks *chunks, struct arena *a,
                                      struct shards *out, bool *finite, struct error *err);
/* All ranks together: rank 0 writes a file of the folder. */
MUST_CHECK enum status shards_write(struct rank *r, struct arena *a, const char *folder,
                                    const struct shards *p, struct error *err);

#endif
