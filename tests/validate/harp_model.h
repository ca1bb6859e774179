/* tests/validate/harp_model.h - a pipeline on few devices, searched to the end by sim/pipeline/static: what HARP's cases are made of.
 *
 * HARP (arXiv 2509.24859) cuts a model between any two sub-layers and gives each sub-cluster a contiguous part. Here a
 * sub-cluster is a node of the cluster file. Its GPUs share the stage in one of two ways, as the case says:
 *   sequences  each takes an equal part of every microbatch, all hold the stage's parameters and divide the optimizer's state
 *              (zero: 1); gradients are summed once a step
 *   operators  they shard every operator (`tensor_parallel`), weights are divided, activations are summed six times a block
 * Which of them they had is in no log. Sequences is taken for all, after trying both: with the operators shared, splits and the
 * time of the small case come out as well, but six sums of 84 MB a block over eight GPUs' NVLink make the large ones 63 and
 * 33 % slower than measured. The peaks too are those of whole parameters with divided state, but for our gradients in fp32.
 * Costs are sim/stage/stage's and the links'; every stage computes its forward again in the backward, as theirs do; a schedule is
 * timed exactly by sim/pipeline/static, and the longest sum and update are added. So one pipeline is some microseconds, and all of them
 * can be asked: the ablations need to know what the best of a class is, not what a search found in it. Chosen plans go the
 * way of every plan besides (harp_model_plan, lowering, sim).
 * Discarded: memory as a constraint of the class. The cases have more than they need; lowering has the last word.
 */
#ifndef TESTS_VALIDATE_HARP_MODEL_H
#define TESTS_VALIDATE_HARP_MODEL_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/model/job.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "profiles/profile.h"
#include "sim/cost.h"
#include "sim/stage/stage.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { HARP_STAGES_MAX = 4 };

enum harp_sharing { HARP_SEQUENCES, HARP_OPERATORS };
struct harp_team {
    struct job job; /* one microbatch size */
    enum harp_sharing sharing;
    /* OPERATORS: the GPUs of a node grouped to one device (core/cluster/group) */
    struct cluster cluster;
    struct cluster tp;   /* as in the file */
    struct profile profile; /* the prior; pace is the constant of calibration */
    struct cost *cost;
    int32_t n_layers, microbatches;
    /* (n_nodes, n_layers, n_layers): [node][first][last] of a GPU, row-major */
    struct stage_cost *stage;
    int64_t *cut_bytes; /* (n_layers - 1) of a microbatch, whole */
};
/* ERR_INPUT: what the readers say; no microbatch size or several; more than HARP_STAGES_MAX nodes; a node of several types, or
 * with more GPUs than divide a microbatch. */
MUST_CHECK enum status harp_team_read(struct arena *a, const char *job, const char *cluster,
                                      enum harp_sharing sharing, double pace, struct harp_team *out,
                                      struct error *err);

struct harp_pipeline {
    int32_t n;
    int32_t node[HARP_STAGES_MAX], last[HARP_STAGES_MAX]; /* last layer of each stage */
    int32_t warmup[HARP_STAGES_MAX];                       /* forwards in flight */
    int64_t iteration_ns;
};
/* Fills warmup by the rule (1F1B, eager, H-1F1B as published or as a ceiling) unless own_warmup, and iteration_ns. ERR_INPUT: two
 * neighbours without a link. O(microbatches · stages). */
MUST_CHECK enum status harp_model_time(struct arena *a, const struct harp_team *t,
                                 enum schedule_kind rule, bool own_warmup, struct harp_pipeline *p,
                                 struct error *err);

struct harp_class {
    enum schedule_kind rule;
    int32_t coarse;  /* cuts only between so many groups of equally many layers; 0: any cut */
    bool any_order;  /* nodes in any order, some left out; else all of them in the cluster's */
    bool exhaustive; /* nothing is pruned */
};
struct harp_result {
    struct harp_pipeline best;
    int64_t pipelines, timed; /* of the class; of them asked for a time */
    double cpu_s;
};
/* The best pipeline of the class; ties go to the first in order. Pruned is what M times its slowest stage already loses. */
MUST_CHECK enum status harp_model_search(struct arena *a, const struct harp_team *t,
                                   const struct harp_class *c, struct harp_result *out,
                                   struct error *err);

/* The same as a plan: block by block computed again. */
void harp_model_plan(struct arena *a, const struct harp_team *t, const struct harp_pipeline *p,
               struct plan *out);

#endif
