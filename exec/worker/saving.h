/* exec/worker/saving.h - what one rank has of a checkpoint: collected from device memory into a snapshot, and written from there.
 *
 * Each tensor is written once, by the first stage of replica 0 that owns the parameter, and by the first of several
 * devices. Shards over replicas (ZeRO) are assembled by exec/worker/divided, shards of a sharded stage by
 * exec/worker/shards. */
#ifndef EXEC_WORKER_SAVING_H
#define EXEC_WORKER_SAVING_H

#include "exec/worker/divided.h"
#include "exec/worker/feedback.h"
#include "exec/worker/shards.h"

struct arena;
struct serve;
struct snapshot;

/* All fields but the rows belong to saving.c. */
struct saving {
    struct arena *a; /* the caller's, of one generation */
    struct snapshot *snapshot;
    const struct chunks *chunks;
    int64_t step;
    struct checkpoint_tensor *tensors; /* (n) rows of the manifest; after saving_write all of this rank's */
    int32_t n;
    const void **data; /* (n) of the stages' own */
    enum dtype *held;  /* (n) dtype of data; until saving_finish some is half as wide as the row's */
    int32_t *first;    /* (chunks + 1) index of each chunk's first tensor */
    struct feedback *feedback; /* (chunks) */
    struct divided divided;
    struct divided_tensors whole;
    bool divided_written;
    struct shards shards;
};

/* Bytes of the snapshot that this rank takes after `step` steps. */
MUST_CHECK enum status saving_bytes(struct snapshot *to, const struct chunks *chunks, struct serve *serve, int64_t step, int64_t *out,
                                    struct error *err);
/* All ranks together, nothing else under way: copies what is saved after `step` steps of the whole training. */
MUST_CHECK enum status saving_collect(struct saving *s, struct arena *a, struct snapshot *to, const struct chunks *chunks,
                                      struct serve *serve, int64_t step, struct error *err);
/* All ranks together, then: assembles shards over replicas on rank 0, which writes them at once if put is not NULL. */
MUST_CHECK enum status saving_assemble(struct saving *s, checkpoint_put *put, void *owner, struct error *err);
/* Any thread: widens half-precision values; false: some value is not finite. */
bool saving_finish(struct saving *s);
/* Any thread, then: writes this rank's files. */
MUST_CHECK enum status saving_write(struct saving *s, checkpoint_put *put, void *owner, struct error *err);

#endif
