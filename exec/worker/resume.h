/* exec/worker/resume.h - resumes from a checkpoint: parameters, optimizer state, loss scale and data position; or begins a training with weights. */
#ifndef EXEC_WORKER_RESUME_H
#define EXEC_WORKER_RESUME_H

#include "core/base/error.h"

struct chunks;
struct inputs;
struct progress;
struct rank;
struct scale_log;
struct serve;

/* All ranks together, before the communication thread runs. Rank 0 chooses the generation for all. ERR_INPUT: the
 * checkpoint belongs to another job. */
MUST_CHECK enum status resume_from_checkpoint(struct rank *r, const struct chunks *c,
                                              const struct inputs *inputs, struct progress *g,
                                              struct scale_log *scales, struct serve *serve, struct error *err);
/* All ranks together: the parameters are those of the folder run_options.init, all else is as at the start of a training. ERR_INPUT: they are not
 * those of this model. */
MUST_CHECK enum status resume_begin_with_weights(struct rank *r, const struct chunks *c, struct error *err);

#endif
