/* tools/validate/plans.h - measured plans of a CSV, predicted with imported profiles: errors of time and memory.
 *
 * A CSV with a header line; columns in any order, unknown ones are ignored:
 *   model, else set       model whose table is MODEL.layers.json in the folder of models; a set is a path with its name ("clariden/OPT-350")
 *   layers_per_stage      "5|7|7|7"
 *   gpu_per_stage_replica GPU of each stage's replicas, "A100-40+V100-16|GH-96+GH-96", names of tools/import/sailor_tables.h or of the catalogue
 *   tp                    tensor-parallel degree: "4", "4|2" by stage, "4+2|4+2" by stage and replica
 *   mbs, gbs              sequences of a microbatch, of a step
 *   pp, dp, nodes         optional; another pp or dp than that of the row is an error, another number of nodes a note
 *   real_s_main, real_s_other, max_mem_bytes_main, max_mem_bytes_other: measured, optional; file: the row's name
 * A row becomes a plan (1F1B; nodes are filled in the order of stages, then replicas), which is lowered and simulated like any
 * other. Nothing is fitted to the rows. A row that cannot be predicted has its reason.
 */
#ifndef TOOLS_VALIDATE_PLANS_H
#define TOOLS_VALIDATE_PLANS_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum validated { VALIDATED_MAIN, VALIDATED_OTHER, VALIDATED_MEAN, VALIDATED_N };
struct validated_row {
    const char *name;
    int line;
    const char *why;                /* the reason of a row that is not predicted; else NULL */
    const char *note;               /* extrapolated, or contradicted by the profile; else NULL */
    double seconds;                 /* predicted iteration time */
    int64_t bytes;                  /* predicted peak of the fullest GPU */
    double measured_s[VALIDATED_N]; /* 0: not measured; the mean is of the measured ones */
    double measured_bytes[VALIDATED_N];
    double profile_s; /* of one replica of one stage: the sum of its layers' times; else 0 */
};
struct validated_summary { /* fractions, not percent; over predicted rows with a measurement */
    int32_t rows, predicted, timed, weighed; /* timed, weighed: rows with measured time, memory */
    /* mean absolute error; of the mean run: bias, 90th percentile, Spearman's rho */
    double time[VALIDATED_N], time_bias, time_p90, time_rank;
    double memory[VALIDATED_N], memory_bias;
    double noise; /* mean abs difference of the two runs, relative to the first */
};

/* models: the folder of *.layers.json. ERR_INPUT: an unreadable CSV or header, no profile. */
MUST_CHECK enum status validate_plans(struct arena *a, const char *csv, const char *db,
                                      const char *models, struct validated_row **rows,
                                      struct validated_summary *out, struct error *err);
/* Summary of the rows; a predicted row without measurements counts in `predicted` only. */
void validated_sum_up(struct arena *a, const struct validated_row *rows, int32_t n,
                      struct validated_summary *s);
/* Error of a row as a fraction; NAN: not measured. */
double validated_error(const struct validated_row *r, enum validated which);
double validated_memory_error(const struct validated_row *r, enum validated which);

/* Validates and prints rows and summary on stdout. models NULL: the folder of the database. */
MUST_CHECK enum status validate_plans_print(struct arena *a, const char *csv, const char *db,
                                            const char *models, bool as_json, struct error *err);

#endif
