/* tests/validate/harp_model.h - HARP's cases: exhaustive enumeration of the pipelines on few devices, timed by sim/pipeline/static.
 *
 * HARP (arXiv 2509.24859) cuts a model between any two sub-layers and assigns each sub-cluster contiguous layers. Here a
 * sub-cluster is a node of the cluster file. A case states how its GPUs divide the stage:
 *   sequences  each computes an equal number of a microbatch's sequences; parameters are replicated, the optimizer state is sharded
 *              (zero: 1); one gradient all-reduce a step
 *   operators  every operator is sharded (tests/support/tensor_rules.h), weights too; six all-reduces of activations a block. One GPU's
 *              view is priced, which stands for all; each GPU of the next stage receives all activations
 * No log states which of them the authors used. Sequences is assumed for all cases, after a test of both: with sharded operators the
 * splits and the time of the small case agree as well, but the large cases are 161 and 34 % slower than measured: six
 * all-reduces of 84 MB a block over the NVLink of eight GPUs (63 and 33 % without what follows), and eight copies of 84 MB a microbatch
 * over the link between two nodes. The peaks also match replicated parameters with sharded state, except for our fp32
 * gradients.
 * Costs are those of sim/stage/stage and of the links; every stage recomputes its forward, as in HARP; a schedule is
 * timed exactly by sim/pipeline/static, and the longest all-reduce and update are added. One pipeline takes some microseconds, so
 * all of them can be timed; the ablations need the true optimum of a class, not the result of a search. In addition, chosen
 * plans are lowered and simulated like every plan (harp_model_plan).
 * Rejected: memory as a constraint of the class, because the cases have more than they need; lowering checks it.
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
    struct cluster cluster;
    /* OPERATORS: of a node with several GPUs; else NULL */
    const struct sharding *rules[HARP_STAGES_MAX];
    struct profile profile; /* the prior; pace is the constant of calibration */
    struct cost *cost;
    int32_t n_layers, microbatches;
    /* (n_nodes, n_layers, n_layers): [node][first][last] of a GPU, row-major */
    struct stage_cost *stage;
    int64_t *cut_bytes; /* (n_layers - 1) of a microbatch, whole */
};
/* ERR_INPUT: errors of the readers; no microbatch size or several; more than HARP_STAGES_MAX nodes; a node of several types, or
 * with a number of GPUs that does not divide a microbatch. */
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
/* The best pipeline of the class; ties: the first in order. A pipeline is pruned if M times its slowest stage exceeds the best. */
MUST_CHECK enum status harp_model_search(struct arena *a, const struct harp_team *t,
                                   const struct harp_class *c, struct harp_result *out,
                                   struct error *err);

/* The pipeline as a plan, with recomputation. */
void harp_model_plan(struct arena *a, const struct harp_team *t, const struct harp_pipeline *p,
               struct plan *out);

#endif
