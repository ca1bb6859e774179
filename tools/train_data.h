/* tools/train_data.h - which data `run` trains on and evaluates with, and which weights it starts from: its options, else the job's `data` and `init`. */
#ifndef TOOLS_TRAIN_DATA_H
#define TOOLS_TRAIN_DATA_H

#include "core/plan/plan.h"
#include "core/program/program.h"
#include "exec/worker/worker.h"

struct train_data {
    const char *data, *validation, *init; /* NULL: no --data, no --validation, no --init */
    int form;                             /* enum data_form */
};
/* Sets o's data, init and config. plan: NULL of a program file. ERR_USAGE: none, or no validation samples for o's evaluations. */
MUST_CHECK enum status train_data_choose(struct arena *a, const struct train_data *x, const struct program *p, const struct plan *plan,
                                         struct run_options *o, struct error *err);

#endif
