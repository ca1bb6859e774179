/* tools/run_log.h - the log of a training run: JSON Lines, an object for each step and each evaluation, in order.
 *
 * Step: step, loss, learning_rate; gradient_norm if the program measures it; samples, tokens (of text; both of the whole training), elapsed_s
 * (since the training began, its earlier runs included), seconds (of the step), data_s, compute_s and wait_s (means over the devices, of which the
 * last two are absent if a device has its operators issued in advance; wait: for messages, collectives and other devices), memory_bytes (of the
 * device with the most), loss_scale and skipped of fp16. Evaluation: step, validation_loss, perplexity (of text), samples (of the mean),
 * elapsed_s, seconds, best. A loss that is not finite is null.
 */
#ifndef TOOLS_RUN_LOG_H
#define TOOLS_RUN_LOG_H

#include "core/base/error.h"
#include "exec/worker/observer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

struct run_log {
    const char *path;
    FILE *file;              /* NULL: closed */
    int64_t sequence_length; /* tokens of a sample; 0: images */
    double elapsed_s;        /* of the last line that was kept */
};
/* Creates the file, or goes on with that of an earlier run: lines of steps behind first_step, and a line without an end, are removed. ERR_INPUT: the
 * file has another line than those of a log. ERR_RESOURCE. */
MUST_CHECK enum status run_log_open(struct run_log *l, const char *path, int64_t first_step, int64_t sequence_length, struct error *err);
/* Before a run that goes on with no earlier one. ERR_INPUT: the file holds steps of one, which run_log_open would remove. */
MUST_CHECK enum status run_log_unused(const char *path, struct error *err);
void run_log_close(struct run_log *l);
/* Appended and given to the system at once. After an error, which is a warning, nothing more is written. */
void run_log_step(struct run_log *l, const struct step_report *r, double elapsed_s);
void run_log_evaluated(struct run_log *l, const struct evaluation_report *r, double elapsed_s);

struct run_log_row {
    int64_t step;
    double tokens, elapsed_s; /* tokens: samples, of images; of an evaluation those of the step before it */
    double loss;              /* NAN: not finite */
    bool validation;
};
/* Whether the file begins like a log. */
bool run_log_is(const char *path);
/* ERR_INPUT with file:line. */
MUST_CHECK enum status run_log_read(struct arena *a, const char *path, struct run_log_row **rows, size_t *n, bool *images, struct error *err);

#endif
