/* exec/worker/worker.h - executes a program in real time: one rank per device, rank i runs lane i.
 *
 * All ranks call worker_run with the same program and options (they may read the same program file). A run of one
 * device uses no message library. The result is complete on rank 0 only. The compute thread interprets the lane; a
 * communication thread moves messages and runs collectives, so that communication overlaps compute. Devices of
 * different backends may share a run; two of them communicate through the host if they have no direct transport. A
 * lane on a discrete device issues asynchronously (exec/worker/async_issue.h). On emulated devices time is virtual
 * (exec/clock.h).
 */
#ifndef EXEC_WORKER_WORKER_H
#define EXEC_WORKER_WORKER_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/arrivals.h"
#include "exec/gradient_noise.h"
#include "traces/saves.h"
#include "traces/trace.h"

#include <stdbool.h>
#include <stdint.h>

struct backend;
struct checkpoint_memory;
struct early_stop;
struct straggler_table;
struct faults;
struct run_board;
struct run_observer;

/* Fills the backend table of a device's backend name (program_device). ERR_INPUT: unknown name. */
typedef enum status backend_maker(const char *kind, struct backend *out, struct error *err);

/* How checkpoints between steps are written; the one at the end of a run is complete when the run ends. */
enum save_mode {
    SAVE_ASYNC, /* a snapshot in host memory while the steps wait, written while they go on (CheckFreq, FAST 2021) */
    SAVE_SYNC   /* the steps wait until it is written, and the run's clock stops */
};

struct run_options {
    int64_t steps;             /* optimizer steps to run now, >= 1 */
    struct data_source data;   /* no files: random data (benches) */
    int64_t eval_every;        /* steps between evaluations on the validation part of data (exec/worker/evaluate.h); 0: none; one is behind the last step */
    int64_t eval_batches;      /* most global batches of an evaluation; 0: all whole ones */
    struct run_observer *observer; /* exec/worker/observer.h; NULL: none. Not with servers that handle pushes by arrival */
    const char *save, *resume; /* checkpoint folders; NULL: none */
    const char *init;   /* folder of the first parameters (exec/checkpoint/weights.h) of a training that resumes nothing; NULL: random ones */
    const char *config; /* config.json of the checkpoints; NULL: they have none */
    bool continues; /* with save: from its newest checkpoint, if it has one; `steps` then counts those before this run too */
    bool any_host;  /* hosts of devices are those of their ranks (exec/worker/hosts.h), whatever the program names */
    int64_t save_every;        /* steps; 0: at the end only */
    bool save_auto;            /* instead: steps between checkpoints from their measured cost (traces/saves.h) */
    double mtbf_s;             /* of save_auto: mean time between failures of the run, > 0, or INFINITY */
    int save_mode;             /* enum save_mode */
    int64_t memory_every; /* steps between checkpoints in host memory; 0: none */
    struct checkpoint_memory *memory; /* exec/checkpoint/memory.h, of all ranks; NULL without memory_every */
    int64_t memory_step; /* resume from the checkpoint of this step in memory; 0: from `resume` */
    int64_t save_keep;         /* generations kept; 0: CHECKPOINTS_KEPT */
    const char *replay; /* log of arrivals (exec/arrivals.h) whose order parameter servers follow; NULL: the order of arrival */
    struct early_stop *stop; /* exec/worker/early_stop.h; NULL, and with servers that handle pushes by arrival: the run has all its steps */
    struct straggler_table *stragglers; /* exec/straggler.h, of all ranks; NULL: none are looked for */
    struct run_board *board;  /* exec/worker/run_board.h; NULL: none */
    struct faults *faults;    /* exec/worker/faults.h; NULL: none */
    /* A checkpoint between steps, or one with which the ranks were to start again, that cannot be written is a warning, and the run goes on.
     * Of forked ranks, with board. */
    bool survives;
    bool keep_trace;
    bool
        keep_kernels; /* with keep_trace: kernels within operators, from the device's profiler (activity.h) */
    backend_maker *backends; /* NULL: the host's and the plugins' */
    /* NULL, or what rank 0 does with the complete result: it writes files. The other ranks wait without a time limit,
     * and every rank returns its status. */
    enum status (*conclude)(void *owner, struct error *err);
    void *owner; /* of conclude */
};
struct run_result {
    int64_t iteration_ns;      /* trace_iteration, wall time */
    int64_t first_step, steps; /* first_step: 0, or the step of the checkpoint; steps 0: `continues`, and the training was complete */
    double *losses;            /* (steps) mean over the global batch, summed in microbatch order */
    /* (steps) norm of each step's gradients before clipping, of local SGD in the first island; not a number in a step that a loss scale
     * skips; NULL: the program's optimizer has no max_grad_norm */
    const double *gradient_norms;
    double tokens_per_s;       /* global batch · sequence ÷ iteration */
    /* CPU seconds inside BLAS ÷ CPU seconds of the compute thread; -1: not measured (needs MUSHER_BLAS_CLOCK=1) */
    double blas_share;
    bool real_time;      /* real-time priority was available */
    struct trace *trace; /* NULL unless keep_trace */
    struct arrivals arrivals; /* of parameter servers that handle pushes by arrival, server by server; n 0: none */
    int32_t n_ended_workers, *ended_workers; /* of these servers, before the end of the run: their numbers, from 0 */
    double loss_scale;   /* after the last step; 0: none */
    int64_t n_skipped,
        *skipped; /* (n_skipped) steps, from 1, skipped because gradients overflowed */
    struct gradient_noise noise; /* of a program that measures it */
    int32_t n_evaluations;
    struct evaluated {
        int64_t step;
        double loss; /* mean over the validation samples */
    } * evaluations; /* (n_evaluations) */
    int64_t best_step; /* of the lowest finite validation loss, whose checkpoint is kept, earlier runs included; 0: none */
    double best_loss;
    struct saver_costs {
        struct saves_cost cost;
        int64_t every; /* steps between them, at the end */
        int64_t bytes; /* host memory of a snapshot, of the rank with the most */
    } saves, memory;   /* of checkpoints between steps, in the folder and in host memory */
};
/* After an early stop the result has the steps that were run, a checkpoint of the last one is in the folder of `save`, and the status is
 * ERR_INTERRUPTED. */
MUST_CHECK enum status worker_run(struct arena *a, const struct program *p,
                                  const struct run_options *o, struct run_result *out,
                                  struct error *err);

#endif
