/* planner/baseline/harp.h - HARP's inter-operator planner as published (arXiv 2509.24859 and its code).
 *
 * Devices are used in the order of the cluster, all of them, in meshes of 2^k GPUs of one type on one node. A mesh runs a stage
 * and divides every microbatch by sequences. Plans are ranked by the closed form
 *   T = sum(t_i + c_i) + (B - 1) max max(t_i, c_i),
 * t: forward and backward of a microbatch, c: the message to the next stage. It excludes gradient all-reduces, contention and
 * the update. Warm-ups: w_S = 1; w_i = w_{i+1} + 1 on one node; across nodes + 1, 2 or 3 if c is below a tenth of the slowest
 * stage, below half of it, or above. The published limitations are kept: no search over the order of nodes, no idle device, no
 * stage across nodes, no memory constraint in the choice of the plan.
 */
#ifndef PLANNER_BASELINE_HARP_H
#define PLANNER_BASELINE_HARP_H

#include "planner/baseline/baseline.h"

struct harp_plan {
    int64_t closed_ns; /* T; INT64_MAX: infeasible */
    int32_t size;      /* index into the task's sizes */
    int32_t n_stages;
    bool fits; /* in memory, by estimate */
    int32_t *first_device, *n_devices, *last_layer, *warmup; /* (n_stages) */
};

/* The plan of least T at one microbatch size. Infeasible: closed_ns INT64_MAX and the reason in k->why.
 * O(maxima tried · meshes · layers²). */
MUST_CHECK enum status harp_plan_make(struct baseline_task *k, int32_t size, struct harp_plan *out,
                                      struct error *err);
/* x as a plan in arena `a`. */
MUST_CHECK enum status harp_plan_fill(struct baseline_task *k, const struct harp_plan *x,
                                      struct arena *a, struct plan *out, struct error *err);

#endif
