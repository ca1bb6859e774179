/* core/model/job.h - a training job: model, batch, precision, optimizer, data.
 *
 * job.yaml:
 *   version: 1
 *   model: models/tiny-gpt2.json      # path of a config.json relative to this file, or the map itself; X.layers.json: measured layers
 *   sequence_length: 128              # models of images: absent, or the model's own (patches + 1 of a vit, 1 of a vgg)
 *   global_batch: 32                  # sequences, or images, a step
 *   microbatch: 4                     # sequences; a number, a list, or absent: the planner chooses
 *   layers: fine                      # coarse | fine | a number: possible stage boundaries (core/model/layers.h); absent: the default cuts
 *   precision: fp32                   # fp32 | fp64 | bf16 | fp16
 *   loss_scale: {initial: 65536, grows_after: 2000}   # fp16 only (core/graph/loss_scale.h), the default; or one number: constant
 *   optimizer: {kind: adamw, lr: 1e-3, beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01,   # or sgd, lamb, lars
 *               lr_rule: {kind: linear, batch: 256}}                # core/model/optimizer.h; absent: lr whatever the batch
 *   tokens: 1T                        # of the whole run, for the days, cost and energy of it; `images:` of an image model; absent: unknown
 *   data: text.txt                    # or {form: uint16, files: [...]} (core/model/data_source.h); overridden by run --data
 *   balance: 0.01                     # of a model with experts: coefficient of the load-balancing loss (core/graph/op.h, gating), which
 *                                     # is not part of the printed loss; absent: 0
 *   expert_imbalance: 2               # of a model with experts and no capacity_factor: largest load of an expert over the even one
 *   init: weights                     # folder of safetensors weights that the training starts from; run --init overrides it; absent: random ones
 *   dropout: config                   # as in the model's config | 0.1, for every dropout of the model; absent: none
 *   seed: 1
 */
#ifndef CORE_MODEL_JOB_H
#define CORE_MODEL_JOB_H

#include "core/base/error.h"
#include "core/document/document.h"
#include "core/graph/loss_scale.h"
#include "core/model/data_source.h"
#include "core/model/layers.h"
#include "core/model/model.h"
#include "core/model/optimizer.h"

#include <stdio.h>

/* Of local SGD (a plan's `local_sgd`): what the mean change of the islands' parameters does to all of them, every so many steps.
 * AVERAGE: parameters become the mean (Stich 2019, "Local SGD Converges Fast and Communicates Little"; McMahan et al. 2017, FedAvg).
 * NESTEROV: the change, negated, is the gradient of an SGD with Nesterov momentum (Douillard et al. 2023, "DiLoCo", algorithm 1).
 * Streaming (Douillard et al. 2025, "Streaming DiLoCo", arXiv 2501.18512, algorithm 2): the layers are `fragments` intervals, exchanged in
 * turns, each once in `every` steps. A sum is applied `delay` steps after its start: first to the anchor a by the outer optimizer, then to
 * the parameters, p = alpha p + (1 - alpha) a. With delay 0 alpha is 0, so p = a.
 * Unequal numbers of local steps: island i makes updates[i] updates between two exchanges, one in every (every / updates[i])-th step, of the
 * mean gradient of all its samples since the update before (gradient accumulation over steps). */
enum outer_kind { OUTER_AVERAGE, OUTER_NESTEROV };
struct outer_optimizer {
    int32_t every; /* steps between exchanges; 0: no local SGD */
    enum outer_kind kind;
    double lr, momentum; /* of NESTEROV */
    int32_t fragments;   /* 1: all parameters at once; <= every */
    int32_t delay;       /* steps, < every */
    double alpha;        /* of the local parameters, 0 <= alpha < 1 */
    int32_t n_updates;   /* islands; 0: all update in every step */
    const int32_t *updates; /* (n_updates) divisors of `every`, one of them `every` itself */
};

enum dropout_by { DROPOUT_NONE, DROPOUT_CONFIG, DROPOUT_RATE };

struct job {
    struct model model;
    int64_t sequence_length, global_batch;
    int32_t n_microbatches_sizes; /* 0: the planner chooses */
    int64_t microbatch_sizes[16]; /* each divides global_batch */
    struct layers_choice layers;  /* defines the layer numbers of the job's plans */
    const struct node *layers_at; /* of `layers` in the file, for messages; NULL: absent */
    enum dtype precision;
    struct loss_scale loss_scale; /* initial 0: not fp16 */
    struct optimizer optimizer;
    enum dropout_by dropout; /* the model's rates are set accordingly */
    double dropout_rate;     /* DROPOUT_RATE: [0, 1) */
    int64_t run_tokens; /* of the whole run; images of an image model; 0: not stated */
    struct data_source data;
    const char *init; /* folder of the first parameters (exec/checkpoint/weights.h); NULL: random ones */
    const char *model_file; /* file of the model, NULL if the model is inline; relative paths start at the job file's folder */
    uint64_t seed;
};

/* folder: base of relative paths. */
MUST_CHECK enum status job_parse(struct arena *a, const struct node *root, const char *folder,
                                 struct job *out, struct error *err);
/* The tokens (of an image model: images) of a run from a text such as "1T"; false: the text is JOB_NO_COUNT. */
#define JOB_NO_COUNT "is not a count from 1 to 1e18, such as 300B, 1T or 1.5e12"
bool job_run_tokens(const char *text, int64_t *out);
MUST_CHECK enum status job_read(struct arena *a, const char *path, struct job *out,
                                struct error *err);
void job_write(FILE *out, struct arena *a, const struct job *j, int indent); /* the model inline */

#endif
