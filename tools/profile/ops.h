/* tools/profile/ops.h - the distinct operators that `musher profile` measures: those of a job, or of plans. */
#ifndef TOOLS_PROFILE_OPS_H
#define TOOLS_PROFILE_OPS_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "core/program/program.h"

struct profile_ops {
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct lower_options lower;
    struct program_op *ops; /* unique by key, the arena's */
    size_t n, capacity,
        n_fully; /* the first ones get all repeats; the rest, large or for a fit only, get few */
    int32_t seen; /* operators of all graphs, with repetitions */
    const char
        *layers; /* text: the number of distinct layers of the job; NULL: none were built */
};

/* Appends the operators of the job. ERR_INPUT: it cannot be lowered. */
MUST_CHECK enum status profile_ops_of_job(struct profile_ops *b, struct error *err);
/* Appends the operators of the plan's program. ERR_INPUT: it cannot be lowered, or has another precision. */
MUST_CHECK enum status profile_ops_of_plan(struct profile_ops *b, const struct plan *p,
                                           struct error *err);

#endif
