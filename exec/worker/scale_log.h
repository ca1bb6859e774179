/* exec/worker/scale_log.h - a program's loss scale as a run has it: how it begins, what it was after each step, what a checkpoint keeps.
 *
 * Its numbers (core/graph/loss_scale.h) stand on the devices and change there; the host only looks, when it sees the step anyway. What is
 * kept of a step are those that all devices must have alike, the first three. The run ends with an error where they do not.
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

/* The first numbers of a loss scale, which all devices have alike. */
enum { SCALE_LOG_NUMBERS = LOSS_SCALE_SKIPPED + 1 };

/* All fields belong to scale_log.c. */
struct scale_log {
    float before[SCALE_LOG_NUMBERS]; /* this run; 0: there was none */
    float *after; /* (steps, SCALE_LOG_NUMBERS) of this run; NULL: the program has none */
};

/* Before scale_log_open: the numbers of a checkpoint. */
void scale_log_resume(struct scale_log *s, const float numbers[SCALE_LOG_NUMBERS]);
/* Before the first step: the devices' numbers. */
MUST_CHECK enum status scale_log_open(struct scale_log *s, struct rank *r, const struct chunks *c,
                                      struct error *err);
/* The numbers behind a step that was seen; of a lane whose memory is the host's, whose step is over when its calls are. */
void scale_log_note(struct scale_log *s, int64_t step, const float *numbers);
MUST_CHECK enum status scale_log_see(struct scale_log *s, struct rank *r, const struct chunks *c,
                                     int64_t step, struct error *err);
/* Updates skipped before this run that a program without a loss scale does not count. */
int64_t scale_log_skipped_before(const struct scale_log *s);
/* After so many steps of this run. */
void scale_log_after(const struct scale_log *s, int64_t steps, float out[SCALE_LOG_NUMBERS]);
/* All ranks together: ERR_RESOURCE where devices do not have the same. */
MUST_CHECK enum status scale_log_agreed(const struct scale_log *s, struct rank *r,
                                        const struct chunks *c, struct error *err);
/* loss_scale and skipped, in a. */
void scale_log_report(const struct scale_log *s, const struct rank *r, const struct progress *g,
                      struct arena *a, struct run_result *out);

#endif
