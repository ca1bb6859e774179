/* exec/worker/observer.h - what rank 0 reports of a run while it goes on: each step and each evaluation, once, in order.
 *
 * Reports of a step come when all ranks have delivered theirs, which is usually one or two steps later; an evaluation behind step n comes behind
 * the report of step n. The functions run on rank 0's compute thread between two steps, so they must not wait.
 */
#ifndef EXEC_WORKER_OBSERVER_H
#define EXEC_WORKER_OBSERVER_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct step_report {
    int64_t step;         /* of the whole training, from 1 */
    int64_t of;           /* the last step of this run */
    int64_t samples;      /* of the whole training: sequences or images */
    double loss;          /* mean over the global batch */
    double learning_rate; /* of its update */
    double gradient_norm; /* L2, of the whole gradient; NAN: the program does not measure it (max_grad_norm, or the plan's gradient_noise_scale) */
    double loss_scale;    /* after it; 0: none */
    bool skipped;         /* no update, because a gradient overflowed */
    int64_t ns;           /* from the end of the step before, on rank 0's device; checkpoints between them included, evaluations not */
    /* Means over the devices. data: reading of input data by the compute thread. compute: operators; -1: not known, because a device has its
     * operators issued in advance. */
    int64_t data_ns, compute_ns;
    int64_t memory_bytes; /* allocated on the device with the most, which is its peak */
};
struct evaluation_report {
    int64_t step, samples; /* samples: of the mean */
    double loss;           /* mean over the validation samples */
    int64_t ns;            /* wall time that training paused */
    bool best;             /* lowest so far, and finite */
};
struct run_observer {
    void *owner;
    /* Before the first step; first_step: steps before this run. */
    enum status (*begin)(void *owner, int64_t first_step, struct error *err);
    void (*step)(void *owner, const struct step_report *r);
    void (*evaluated)(void *owner, const struct evaluation_report *r);
};

#endif
