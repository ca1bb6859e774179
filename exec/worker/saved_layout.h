/* exec/worker/saved_layout.h - the tensors that all ranks together save of a program, and their places in the files of a generation.
 *
 * They are computed from the program, alike on each rank, so that ranks write into one file without a message. Islands of local SGD but the
 * first, workers of a parameter server, and what a device has of its own (exec/worker/feedback.h) have files of their own. */
#ifndef EXEC_WORKER_SAVED_LAYOUT_H
#define EXEC_WORKER_SAVED_LAYOUT_H

#include "core/program/program.h"
#include "exec/checkpoint/files.h"

/* After `steps` steps of the whole training. Ownership: the arena's. O(n log n) of the parameters of all stages. ERR_INPUT: a name is too long. */
MUST_CHECK enum status saved_layout_make(struct arena *a, const struct program *p, int64_t steps, struct checkpoint_layout *out, struct error *err);
/* Data of one checkpoint: each full tensor once, and every device's feedback and, between two updates, gradients. */
int64_t saved_layout_bytes(const struct program *p);

#endif
