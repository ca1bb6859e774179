/* tools/profile/report.h - the state of one `musher profile`, and its output as text and as JSON. */
#ifndef TOOLS_PROFILE_REPORT_H
#define TOOLS_PROFILE_REPORT_H

#include "profiles/profile.h"
#include "tools/profile/cuda.h"
#include "tools/profile/links.h"
#include "tools/profile/ops.h"
#include "tools/profile/remote.h"

struct profile_bench {
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct profile_ops list;
    struct profile_ops
        of_job; /* if list is of plans: operators of the parent profile, measured again for the machine's pace */
    struct profile_links links;
    struct profile_gpus gpus;
    struct profile_away away;
    const char *provenance;
    bool again;        /* --again: existing rows are measured again */
    size_t n_measured; /* operator rows added */
    double
        pace; /* of the machine: time now ÷ time in the parent profile, of known operators; 0: not measured */
    size_t n_collectives; /* collective rows added */
    double *
        fit_off; /* (n_fit_off) (fitted - measured) ÷ measured, of added rows that the parent had fits for */
    size_t n_fit_off, fit_off_capacity;
};

/* Prints to stdout, as text or as JSON. n_plans: plans on the command line; 0: the job's operators were measured. */
void profile_report(const struct profile *p, const struct profile_bench *b, size_t n_plans,
                    bool as_json);

#endif
