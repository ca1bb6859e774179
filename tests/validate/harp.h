/* tests/validate/harp.h - HARP's own cases (arXiv 2509.24859, its authors' logs) planned and simulated: tests/data/harp/README.md.
 *
 * One constant is fitted, on the first case only: the pace, a factor of every operator's time (not of messages), such
 * that the authors' plan takes the time that they measured. All other figures are predictions with it.
 */
#ifndef TESTS_VALIDATE_HARP_H
#define TESTS_VALIDATE_HARP_H

#include "core/base/error.h"
#include "tests/validate/harp_model.h"
#include "tests/validate/published.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

struct harp_case {
    const char *name, *job, *cluster; /* paths */
    struct harp_team team;            /* with the pace */
    /* the authors' plan; without stated warm-up counts those of their rule */
    struct harp_pipeline published;
    double measured_s;
    double peak_GB[HARP_STAGES_MAX]; /* of a GPU of each stage */
    /* simulated as a plan: iteration and the most each stage's GPU holds */
    int64_t iteration_ns, peak_bytes[HARP_STAGES_MAX];
    /* the best of their class by simulation: devices in the order they chose, any cut, their warm-up rule */
    struct harp_result best;
    int32_t apart; /* most layers that a stage of it has more or less than theirs */
};
struct harp_cases {
    double pace; /* the constant, of the first case */
    int32_t n;
    struct harp_case *cases;
};
/* Reads folder/cases.csv and the files it names. ERR_INPUT with file:line. Some seconds. */
MUST_CHECK enum status harp_cases_read(struct arena *a, const char *folder, struct harp_cases *out,
                                       struct error *err);

enum { HARP_RULES = 4 };
extern const enum schedule_kind HARP_RULE[HARP_RULES]; /* 1F1B, eager, published, ceiling */
extern const char *const HARP_RULE_NAME[HARP_RULES];   /* as core/plan/schedule.h has them */
struct harp_sweep {
    double Gbps, published_s[HARP_RULES];
    int64_t simulated_ns[HARP_RULES];
};
/* Reads folder/sweep.csv and times the same plan at each bandwidth, by sim/pipeline/static. */
MUST_CHECK enum status harp_sweep_read(struct arena *a, const char *folder, int32_t *n,
                                       struct harp_sweep **out, struct error *err);

/* Ablations: the best pipeline of each class without one of HARP's ideas, by enumeration of the class. */
struct harp_ablation {
    const char *name;
    struct harp_class class;
    struct harp_result result;
};
/* Output of validate --harp FOLDER. */
MUST_CHECK enum status validate_harp(struct arena *a, const char *folder, bool as_json,
                                     struct error *err);

#endif
