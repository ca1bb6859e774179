/* tools/observe.h - what `run` writes while it goes on: its log, a TensorBoard event file, and a progress line on a terminal. */
#ifndef TOOLS_OBSERVE_H
#define TOOLS_OBSERVE_H

#include "core/plan/plan.h"
#include "core/program/program.h"
#include "exec/worker/observer.h"
#include "exec/worker/worker.h"
#include "tools/run_log.h"
#include "tools/tensorboard.h"

#include <stdbool.h>
#include <stdint.h>

/* All fields but the first three belong to observe.c. */
struct observe {
    const char *log, *tensorboard; /* NULL: no --log, no --tensorboard */
    struct arena *a;
    struct run_observer observer;
    const struct program *program; /* the current start's, as plan */
    const struct plan *plan;
    int64_t tokens, batch, begun_ns; /* tokens: of a sample, 1 of an image; batch: samples of a step */
    bool images;
    double mfu_s;             /* MFU x seconds of a step; 0: not known */
    double step_s;            /* moving mean of the last steps */
    double validation_loss;   /* of the last evaluation; NAN: none */
    struct run_log file;
    struct tensorboard events;
};

/* Before anything is written. ERR_USAGE: --log -, or workers of ssp and asp; ERR_INPUT: the log holds steps of a run that this one does not go on with. */
MUST_CHECK enum status observe_check(const struct observe *x, const struct program *p, const struct run_options *o, struct error *err);
/* The observer of a run, or NULL where nothing is written: neither file is wanted, and there is no progress line. plan: NULL of a program file. line:
 * this process starts the ranks and waits for them, or is the only one. */
struct run_observer *observe_with(struct observe *x, const struct program *p, const struct plan *plan, bool line);

#endif
