/* exec/worker/step_log.h - this rank's record of each step: its share of the losses, and the end of its last update. */
#ifndef EXEC_WORKER_STEP_LOG_H
#define EXEC_WORKER_STEP_LOG_H

#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct program_stage;
struct rank;

struct step_loss { /* a value that a LOSS instruction reads */
    const struct program_stage *stage;
    int32_t microbatch;
    enum dtype dtype;
};

/* All fields belong to step_log.c. */
struct step_log {
    double *losses;   /* (steps, microbatches of all replicas) */
    int64_t *end_ns;  /* (steps) on the run's clock, wall time */
    int64_t bad_step; /* of this run: the first step with a non-finite loss here; -1 */
    bool warned;      /* a warning about non-finite losses was printed */
};

void step_log_open(struct step_log *l, const struct rank *r);
/* value: of the loss slot, in its dtype. */
void step_log_loss(struct step_log *l, const struct rank *r, int64_t step,
                   const struct step_loss *what, const void *value);
/* That value's term of the microbatch's loss, which is a mean over its sequences. *finite: the value is. */
double step_log_value(const struct rank *r, const struct step_loss *what, const void *value, bool *finite);
void step_log_end(struct step_log *l, int64_t step, int64_t end_ns);
/* All ranks together: false if a loss is not finite, with one warning that names the first step. first_step: before
 * this run. */
bool step_log_finite(struct step_log *l, const struct rank *r, int64_t first_step);
/* All ranks together: replaces this rank's losses by the sum over ranks. */
void step_log_sum(struct step_log *l, const struct rank *r);
/* (steps) means over the global batch, in a; after step_log_sum. */
double *step_log_means(const struct step_log *l, const struct rank *r, struct arena *a);

#endif
