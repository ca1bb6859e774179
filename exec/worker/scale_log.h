/* exec/worker/scale_log.h - the loss scale of a run: its initial value, its value after each step, what a checkpoint
 * saves.
 *
 * The numbers (core/graph/loss_scale.h) are device memory and change there; the host reads a copy when it settles the
 * step. Of each step the first three numbers are kept, which must be equal on all devices. The run ends with an error
 * if they differ.
 */
#ifndef EXEC_WORKER_SCALE_LOG_H
#define EXEC_WORKER_SCALE_LOG_H

#include "core/base/error.h"
#include "core/graph/loss_scale.h"

#include <stdint.h>

struct arena;
struct chunks;
struct progress;
struct rank;
struct run_result;

/* The first numbers of a loss scale, equal on all devices. */
enum { SCALE_LOG_NUMBERS = LOSS_SCALE_SKIPPED + 1 };

/* All fields belong to scale_log.c. */
struct scale_log {
    float before[SCALE_LOG_NUMBERS]; /* before this run; 0: none */
    float *after; /* (steps, SCALE_LOG_NUMBERS) of this run; NULL: the program has no loss scale */
};

/* Before scale_log_open: sets the numbers of a checkpoint. */
void scale_log_resume(struct scale_log *s, const float numbers[SCALE_LOG_NUMBERS]);
/* Before the first step: writes the devices' numbers. */
MUST_CHECK enum status scale_log_open(struct scale_log *s, struct rank *r, const struct chunks *c,
                                      struct error *err);
/* note: the numbers after a step, copied from a discrete device. see: reads them from host memory, for a lane whose
 * step ends with its calls. */
void scale_log_note(struct scale_log *s, int64_t step, const float *numbers);
MUST_CHECK enum status scale_log_see(struct scale_log *s, struct rank *r, const struct chunks *c,
                                     int64_t step, struct error *err);
/* Skipped updates before this run, for a program without a loss scale, which counts none itself. */
int64_t scale_log_skipped_before(const struct scale_log *s);
/* The numbers after `steps` steps of this run. */
void scale_log_after(const struct scale_log *s, int64_t steps, float out[SCALE_LOG_NUMBERS]);
/* All ranks together: ERR_RESOURCE if devices differ. */
MUST_CHECK enum status scale_log_agreed(const struct scale_log *s, struct rank *r,
                                        const struct chunks *c, struct error *err);
/* Fills loss_scale and skipped, in a. */
void scale_log_report(const struct scale_log *s, const struct rank *r, const struct progress *g,
                      struct arena *a, struct run_result *out);

#endif
