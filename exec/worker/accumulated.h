/* exec/worker/accumulated.h - in checkpoints, gradients of islands that do not update in every step (core/lower/outer.h).
 *
 * Between two updates every device of such an island has a sum of its own microbatches' gradients. It saves its region of gradients as the
 * tensor "gradients#xHASH/STAGE" of the program's plan: only a run with that plan continues the sum, with the same bits. With another plan
 * the next update has the gradients of the remaining steps alone, and a warning states it. */
#ifndef EXEC_WORKER_ACCUMULATED_H
#define EXEC_WORKER_ACCUMULATED_H

#include "core/program/program.h"
#include "exec/worker/feedback.h"

/* Bytes that the stage saves after so many steps of the whole training; 0: its gradients are zero. */
int64_t accumulated_bytes(const struct program *p, const struct program_stage *s, int64_t steps);
/* Adds the tensor to what the chunk's device has of its own, which has room for one more. */
MUST_CHECK enum status accumulated_collect(struct snapshot *s, const struct chunk *k, int64_t steps, struct feedback *out, struct error *err);
/* Leaves the gradients zero if the checkpoint lacks them. */
MUST_CHECK enum status accumulated_load(struct rank *r, struct arena *a, const struct checkpoint *c, const struct chunk *k,
                                        struct error *err);
/* Whether the checkpoint lacks those of some stage, or has those of another plan. O(stages · tensors). */
bool accumulated_lost(const struct checkpoint *c, const struct program *p);

#endif
