/* tools/validate/plans.h - plans that somebody ran and measured, predicted with what was imported.
 *
 * A CSV with a head; columns in any order, unknown ones are ignored:
 *   model, else set       model whose table is MODEL.layers.json in the folder of models; a set names it somewhere ("clariden/OPT-350")
 *   layers_per_stage      "5|7|7|7"
 *   gpu_per_stage_replica GPU of each stage's replicas, "A100-40+V100-16|GH-96+GH-96", names of tools/import/sailor_tables.h or of the catalogue
 *   tp                    GPUs that share a stage: "4", "4|2" by stage, "4+2|4+2" by stage and replica
 *   mbs, gbs              sequences of a microbatch, of a step; where they are there pp and dp are checked, other nodes than are filled noted
 *   real_s_main, real_s_other, max_mem_bytes_main, max_mem_bytes_other: measured, optional; file: the row's name
 * A row becomes a plan (1F1B; nodes are filled in the order of stages, then replicas), is lowered and simulated like any other. Nothing is fitted to the
 * rows. A row that cannot be predicted keeps its reason.
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
    const char *why;                /* not predicted: the reason; else NULL */
    const char *note;               /* extrapolated, or contradicted by the profile; else NULL */
    double seconds;                 /* predicted */
    int64_t bytes;                  /* predicted peak of the fullest GPU */
    double measured_s[VALIDATED_N]; /* 0: not measured; the mean of what is there */
    double measured_bytes[VALIDATED_N];
    double profile_s; /* one replica of one stage: its layers' times alone, else 0 */
};
struct validated_summary { /* shares, not percent; of predicted rows that were measured */
    int32_t rows, predicted, timed, weighed; /* timed, weighed: with measured time, memory */
    /* mean abs error; against the mean run; Spearman's rho */
    double time[VALIDATED_N], time_bias, time_p90, time_rank;
    double memory[VALIDATED_N], memory_bias;
    double noise; /* mean abs difference of the two runs, relative to the first */
};

/* models: the folder of *.layers.json. ERR_INPUT: an unreadable CSV or head, no profile. */
MUST_CHECK enum status validate_plans(struct arena *a, const char *csv, const char *db,
                                      const char *models, struct validated_row **rows,
                                      struct validated_summary *out, struct error *err);
/* From rows that are predicted; rows without a reason and without measurements count as predicted only. */
void validated_sum_up(struct arena *a, const struct validated_row *rows, int32_t n,
                      struct validated_summary *s);
/* Row errors as a share, NAN where nothing was measured. */
double validated_error(const struct validated_row *r, enum validated which);
double validated_memory_error(const struct validated_row *r, enum validated which);

/* Prints rows and summary on stdout. models NULL: the folder of the database. */
MUST_CHECK enum status validate_plans_print(struct arena *a, const char *csv, const char *db,
                                            const char *models, bool as_json, struct error *err);

#endif
