/* exec/worker/evaluate.h - evaluations: the mean loss over validation samples, between two steps, by the training's own program.
 *
 * An evaluation calls each stage's plain F once for every microbatch of each batch, in the order of the lane and with the lane's collectives
 * (gathers of ZeRO-3, sharded stages), and nothing else: no backward, gradient, update or offloaded activation. Its operators are those of
 * training, but dropout has rate 0, and parameters with two weight versions are read in their latest one. It writes activations and messages
 * alone, whose memory is free between two steps, so training goes on with the same bits. Batch n is samples [n B, (n + 1) B) of the validation
 * samples in an order of their own (exec/data/sample_order.h), B the global batch; a last incomplete batch is left out, and fewer samples than
 * one batch are repeated. With local SGD each island evaluates its part of the samples with its own parameters.
 *
 * No receive of a later step is posted in front of an evaluation. All ranks then wait, number the messages of channels anew, and do so again
 * behind it. The run's clock stops meanwhile, and no span is recorded. Cost: forwards of the batches, and the filling of the pipeline.
 * Collective over all ranks, between two steps.
 */
#ifndef EXEC_WORKER_EVALUATE_H
#define EXEC_WORKER_EVALUATE_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/worker/worker.h"

#include <stdbool.h>
#include <stdint.h>

struct worker;

/* All fields belong to evaluate.c. */
struct evaluation {
    int64_t batches;  /* of an evaluation; 0: the run evaluates nothing */
    double *losses;   /* (batches, microbatches) this rank's terms */
    int32_t event;    /* of a discrete device */
    struct checkpoint_best best;
    struct evaluated *done; /* (n) on rank 0, in the caller's arena */
    int32_t n;
};

/* All ranks, after the chunks are prepared and the position in the training is known. */
MUST_CHECK enum status evaluate_open(struct worker *w, struct error *err);
/* Behind each step; evaluates behind the last one before progress.until. *best: the loss is the lowest so far, and the run saves checkpoints: one
 * must be written before the next step. */
MUST_CHECK enum status evaluate_now(struct worker *w, int64_t offset_ns, bool *best, struct error *err);
/* The value of a LOSS instruction. */
struct step_loss;
MUST_CHECK enum status evaluate_loss(struct worker *w, int64_t batch, const struct step_loss *l, const void *from, struct error *err);

#endif
