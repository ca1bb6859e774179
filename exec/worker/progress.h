/* exec/worker/progress.h - training progress: steps and sequences, before this run and in it. */
#ifndef EXEC_WORKER_PROGRESS_H
#define EXEC_WORKER_PROGRESS_H

#include <stdint.h>

struct program;

/* All fields belong to progress.c. */
struct progress {
    int64_t first_step;     /* steps before this run */
    int64_t first_sequence; /* sequences consumed before this run */
    int64_t global_batch;   /* sequences a step */
    int64_t step;           /* of this run, from 0 */
};

void progress_start(struct progress *g, const struct program *p);
/* Continues after this number of steps and sequences. */
void progress_resume(struct progress *g, int64_t steps, int64_t sequences);
void progress_next_step(struct progress *g);
/* Number of the current step, from 1, including steps before this run. */
int64_t progress_number(const struct progress *g);
/* Sequences consumed before step `step` of this run. */
int64_t progress_sequences(const struct progress *g, int64_t step);

#endif
