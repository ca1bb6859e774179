/* exec/worker/shards.h - checkpoints of parameters sharded over the devices of one stage
 * (core/collective/tensor_shard.h).
 *
 * A checkpoint has unsharded tensors by name, independent of the plan: rank 0 assembles each from all shards and
 * writes it. Several devices may hold the same shard. Loading needs no messages: each rank reads its slice of the
 * unsharded tensor.
 */
#ifndef EXEC_WORKER_SHARDS_H
#define EXEC_WORKER_SHARDS_H

#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/chunks.h"

struct rank;
struct snapshot;

struct shards { /* unsharded tensors on rank 0; empty elsewhere */
    int32_t n;
    struct checkpoint_tensor *rows; /* (n) */
    const void **data;              /* (n) */
};

/* Whether the stage holds only a shard of its parameter x. */
bool shards_held(const struct program_stage *s, const struct program_parameter *x);
/* After so many steps of the whole training. All ranks together. Ownership: the arena's. */
MUST_CHECK enum status shards_collect(struct snapshot *s, const struct chunks *chunks, struct arena *a, int64_t steps, struct shards *out,
                                      struct error *err);
/* On rank 0, any thread: one file; elsewhere no effect. */
MUST_CHECK enum status shards_write(struct arena *a, checkpoint_put *put, void *owner, const struct shards *p, struct error *err);

#endif
