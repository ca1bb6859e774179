/* exec/worker/worker.h - runs a program for real: one rank a device, rank i runs lane i.
 *
 * Every rank calls worker_run with the same program and options (they may read the same program file). With one
 * device no message library is touched. The result is complete on rank 0 only.
 * The compute thread interprets the lane; a communication thread moves messages and runs collectives, so that both
 * overlap. Devices of several kinds may share a run: where two that must talk have no way of their own, the host carries.
 * A lane whose device has its own memory runs ahead of it (exec/worker/async_issue.h). On emulated devices time is the device's own clock (docs in worker.c and clock.c).
 */
#ifndef EXEC_WORKER_WORKER_H
#define EXEC_WORKER_WORKER_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct backend;

/* Fills in the table of the backend of a device of this kind (program_device). ERR_INPUT: no such kind. */
typedef enum status backend_maker(const char *kind, struct backend *out, struct error *err);

struct run_options {
    int64_t steps;             /* optimizer steps to run now, >= 1 */
    const char *data;          /* text file read as bytes; NULL: the program needs none (benches) */
    const char *save, *resume; /* checkpoint folders; NULL: none */
    int64_t save_every;        /* 0: at the end only */
    bool keep_trace;
    bool
        keep_kernels; /* with keep_trace: what CUDA devices ran in operators, by their profiler (activity.h) */
    backend_maker *backends; /* NULL: the host's, and the plugins' */
    /* NULL, or what rank 0 does with the result, which is complete then: it writes files. The other ranks wait for as long as that takes,
     * and every rank returns its status. */
    enum status (*conclude)(void *owner, struct error *err);
    void *owner; /* of conclude */
};
struct run_result {
    int64_t iteration_ns;      /* trace_iteration of the wall clock */
    int64_t first_step, steps; /* first_step: 0, or where resume stood */
    double *losses;            /* (steps) mean over the global batch, summed in microbatch order */
    double tokens_per_s;       /* global batch · sequence ÷ iteration */
    /* CPU seconds inside BLAS ÷ CPU seconds of the compute thread; -1: not measured (MUSHER_BLAS_CLOCK=1 measures) */
    double blas_share;
    bool real_time;      /* real-time priority was to be had */
    struct trace *trace; /* NULL unless kept */
    double loss_scale;   /* after the last step; 0: the program has none */
    int64_t n_skipped,
        *skipped; /* (n_skipped) steps, from 1 on, whose gradients overflowed: nothing was updated */
};
MUST_CHECK enum status worker_run(struct arena *a, const struct program *p,
                                  const struct run_options *o, struct run_result *out,
                                  struct error *err);

#endif
