/* planner/baseline/hap.h - HAP's plan (arXiv 2401.05965): one stage on all devices, every operator sharded, uneven ratios.
 *
 * The sharded index of each operator comes from planner/spmd/spmd, each device's ratio from planner/spmd/ratio, in alternation;
 * the microbatch size is the best of the job's. HAP's released search ignores bytes, latency, memory and row- and head-parallel
 * operators. This module does not: it searches their family of plans completely.
 */
#ifndef PLANNER_BASELINE_HAP_H
#define PLANNER_BASELINE_HAP_H

#include "planner/baseline/baseline.h"
#include "planner/spmd_stage/spmd_stage.h"

struct hap_plan {
    int64_t ns; /* estimate of planner/spmd/spmd; INT64_MAX: infeasible */
    int32_t size;
    struct spmd_stage_team team; /* of its only stage */
    struct spmd_stage_answer answer;
};

/* HAP's plan at one microbatch size. Infeasible: out->ns INT64_MAX and the reason in k->why. thorough: optimise ratios too. */
MUST_CHECK enum status hap_plan_make(struct baseline_task *k, int32_t size, bool thorough,
                                     struct hap_plan *out, struct error *err);
/* Estimate of the plan if memory were ample, with ratios by speed: found by a search that takes a tenth of the other's work where memory
 * is tight. INT64_MAX: infeasible. */
MUST_CHECK enum status hap_plan_least_ns(struct baseline_task *k, int32_t size, int64_t *ns,
                                         struct error *err);
/* The plan in arena `a`, fitted and simulated. *ns: INT64_MAX if nothing fits. */
MUST_CHECK enum status hap_plan_fit(struct baseline_task *k, struct hap_plan *x, struct arena *a,
                                    struct plan *out, int64_t *ns, struct error *err);

#endif
