/* tools/profile/report.h - what a profile is made with, and what is told of it. */
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
        of_job; /* where list is of plans: what the parent knows, to tell the machine's pace by */
    struct profile_links links;
    struct profile_gpus gpus;
    struct profile_away away;
    const char *provenance;
    bool again;        /* what the profile has is measured again */
    size_t n_measured; /* rows made */
    double
        pace; /* of the machine: what is known takes so many times as long now; 0 where nobody asked */
    size_t n_collectives; /* and those of collectives */
    double *
        fit_off; /* (n_fit_off) (fitted - measured) ÷ measured of rows made that the parent had fits of */
    size_t n_fit_off, fit_off_capacity;
};

/* To stdout, for people or as JSON. n_plans: whose operators were asked for; 0: the job's. */
void profile_report(const struct profile *p, const struct profile_bench *b, size_t n_plans,
                    bool as_json);

#endif
