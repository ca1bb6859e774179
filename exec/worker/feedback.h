/* exec/worker/feedback.h - feedback of codes (core/graph/encoding.h) in checkpoints.
 *
 * Feedback is a device's own, so every device saves its own: tensor "SLOT#I/N" of the I-th of N stages of the program that have it; SLOT
 * states the code. A run with another plan begins without feedback, as a new training does, where the code, N or a shape differs. */
#ifndef EXEC_WORKER_FEEDBACK_H
#define EXEC_WORKER_FEEDBACK_H

#include "exec/checkpoint/checkpoint.h"

struct arena;
struct chunk;
struct rank;
struct snapshot;
struct program;

struct feedback { /* of a chunk */
    int32_t n;
    struct checkpoint_tensor *tensors; /* (n), with room for two more */
    const void **data;                 /* likewise */
};
/* Ownership: the arena's, of the data the snapshot's. O(parameters · stages of the program). */
MUST_CHECK enum status feedback_collect(struct snapshot *s, struct arena *a, const struct chunk *k, struct feedback *out,
                                        struct error *err);
/* Whether the checkpoint has feedback of any code, and whether the program does. */
bool feedback_saved(const struct checkpoint *c);
bool feedback_kept(const struct program *p);
/* Leaves tensors that the checkpoint lacks as they are, zero; *lacking: their number is added. */
MUST_CHECK enum status feedback_load(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k,
                                     int64_t *lacking, struct error *err);

#endif
