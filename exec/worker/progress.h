/* exec/worker/progress.h - training progress: steps and sequences, before this run and in it. */
#ifndef EXEC_WORKER_PROGRESS_H
#define EXEC_WORKER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct program;

/* All fields belong to progress.c. */
struct progress {
    int64_t first_step;     /* steps before this run */
    int64_t first_sequence; /* sequences consumed before this run */
    int64_t global_batch;   /* sequences a step */
    int64_t step;           /* of this run, from 0 */
    /* Messages are numbered anew behind each evaluation (exec/worker/evaluate.h): from step `begun` of this run on, for the steps before
     * `until`. evaluates: the calls are forwards of an evaluation, and their steps are its batches from 0 on. */
    int64_t begun, until;
    bool evaluates;
};

void progress_start(struct progress *g, const struct program *p);
/* Continues after this number of steps and sequences. */
void progress_resume(struct progress *g, int64_t steps, int64_t sequences);
void progress_next_step(struct progress *g);
/* Number of the current step, from 1, including steps before this run. */
int64_t progress_number(const struct progress *g);
/* Number of the first message of a step, or of an evaluation's batch, of a stage with so many microbatches. */
int64_t progress_message(const struct progress *g, int64_t step, int32_t microbatches);
/* Number of the first sequence of that step or batch: in the training, or in the validation samples. */
int64_t progress_first_of(const struct progress *g, int64_t message, int32_t microbatches);
/* Sequences consumed before step `step` of this run. */
int64_t progress_sequences(const struct progress *g, int64_t step);

#endif
