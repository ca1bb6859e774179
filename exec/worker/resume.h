/* exec/worker/resume.h - resumes from a checkpoint: parameters, optimizer state, loss scale and data position. */
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

#endif
