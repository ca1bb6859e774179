/* exec/worker/continued.h - a run that continues a training from the newest checkpoint of its own folder of --save (run_options.continues). */
#ifndef EXEC_WORKER_CONTINUED_H
#define EXEC_WORKER_CONTINUED_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct rank;
struct run_options;

/* All ranks together, before memory is initialised. Rank 0 searches the folder, and all ranks get the same answer. own: storage for the
 * options of this run, which r->o points to afterwards: `resume` is the folder if it has a checkpoint, and `steps` are those that the
 * training still lacks. *complete: it lacks none; *step: that of the checkpoint, 0: none. Cost: each byte of the checkpoint is read once
 * by rank 0. A folder without checkpoints starts a new training. ERR_INPUT: it has some, and all are damaged. */
MUST_CHECK enum status continued_from(struct rank *r, struct run_options *own, bool *complete, int64_t *step, struct error *err);

#endif
