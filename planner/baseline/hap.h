/* planner/baseline/hap.h - HAP's plan (arXiv 2401.05965): all devices shard every operator, dealt out as suits them.
 *
 * One stage of all layers on all devices of the cluster. By which index each operator is split is planner/spmd/spmd's choice, how
 * much of it each device gets planner/spmd/ratio's, by turns; the microbatch size is the best of the job's. What HAP's
 * released search lacks (bytes, latency, memory, row- and head-parallel operators) is not taken from it here: it is their
 * family of plans, searched well.
 */
#ifndef PLANNER_BASELINE_HAP_H
#define PLANNER_BASELINE_HAP_H

#include "planner/baseline/baseline.h"
#include "planner/spmd_stage/spmd_stage.h"

struct hap_plan {
    int64_t ns; /* as planner/spmd/spmd adds up; INT64_MAX where there is none */
    int32_t size;
    struct spmd_stage_spot spot; /* its only stage */
};

/* At one microbatch size; ns INT64_MAX, and task->why, where there is none. thorough: ratios too. */
MUST_CHECK enum status hap_plan_make(struct baseline_task *k, int32_t size, bool thorough,
                                     struct hap_plan *out, struct error *err);
/* Its plan, in the arena, made to fit and simulated by planner/spmd_stage/spmd_stage. *ns: INT64_MAX where nothing fits. */
MUST_CHECK enum status hap_plan_fit(struct baseline_task *k, struct hap_plan *x, bool thorough,
                                    struct arena *a, struct plan *out, int64_t *ns,
                                    struct error *err);

#endif
