/* planner/baseline/harp.h - HARP's inter-operator planner as its authors published it (arXiv 2509.24859 and its code).
 *
 * Devices are taken in the order of the cluster, every one of them, in meshes of 2^k GPUs of one type on one node; a mesh
 * runs a stage, its GPUs share every microbatch by sequences. Plans are ranked by the closed form
 *   T = sum(t_i + c_i) + (B - 1) max max(t_i, c_i),
 * t forward and backward of a microbatch, c the message to the next stage; gradient all-reduces, contention and the update are
 * outside of it. Warm-ups: w_S = 1, w_i = w_{i+1} + 1 on one node, across nodes + 1, 2 or 3 where c is below a tenth of
 * the slowest stage, below half of it, or above. Their limits are kept: no order of nodes is searched, nothing is left out,
 * no stage is on two nodes, memory does not choose the plan.
 */
#ifndef PLANNER_BASELINE_HARP_H
#define PLANNER_BASELINE_HARP_H

#include "planner/baseline/baseline.h"

struct harp_plan {
    int64_t closed_ns; /* T; INT64_MAX where there is none */
    int32_t size;      /* into the task's sizes */
    int32_t n_stages;
    int32_t *first_device, *n_devices, *last_layer, *warmup; /* (n_stages) */
};

/* The plan of least T at one microbatch size; closed_ns INT64_MAX, and task->why, where there is none.
 * O(maxima tried · meshes · layers²). */
MUST_CHECK enum status harp_plan_make(struct baseline_task *k, int32_t size, struct harp_plan *out,
                                      struct error *err);
MUST_CHECK enum status harp_plan_fill(struct baseline_task *k, const struct harp_plan *x,
                                      struct arena *a, struct plan *out, struct error *err);

#endif
