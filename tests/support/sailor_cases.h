/* tests/support/sailor_cases.h - clusters and jobs of Sailor's mixed-GPU experiments, and plans on them in one line. */
#ifndef TESTS_SUPPORT_SAILOR_CASES_H
#define TESTS_SUPPORT_SAILOR_CASES_H

#include "core/plan/plan.h"
#include "profiles/profile.h"
#include "tests/support/sailor_referee.h"

#define SAILOR_MIXED "tests/data/sailor_mixed"

struct sailor_case {
    const char *cluster, *job, *model; /* names of files there, of the table */
    double best_known_s;               /* by enumeration, under Sailor's closed form */
};

/* A stage of every replica: layers first … last on n GPUs of the type. */
struct sailor_stage {
    int32_t first, last;
    const char *type;
    int32_t tp;
};

/* The job, the cluster of single GPUs, and a profile with nothing but the tables (NULL: none is read); all of the arena. */
MUST_CHECK enum status sailor_case_read(struct arena *a, const struct sailor_case *c,
                                        struct job *job, struct cluster *cluster,
                                        struct profile *profile, struct error *err);
/* Equal replicas with equal shares; the GPUs of a stage come from the first node with enough left. */
MUST_CHECK enum status sailor_case_plan(struct arena *a, const struct job *job,
                                        const struct cluster *cluster, int64_t microbatch,
                                        int32_t n_replicas, const struct sailor_stage *stages,
                                        int32_t n_stages, struct plan *out, struct error *err);
/* Scores a plan through its export by the referee. */
MUST_CHECK enum status sailor_case_score_plan(struct arena *a, const struct sailor_case *c,
                                              const struct plan *p, bool own_shares,
                                              struct sailor_score *out, struct error *err);
/* Lowers and simulates a plan; ERR_INFEASIBLE if it does not fit. */
MUST_CHECK enum status sailor_case_simulate(struct arena *a, const struct plan *p,
                                            const struct profile *profile, int64_t *iteration_ns,
                                            struct error *err);

#endif
