/* tools/profile_report.h - a call of `musher profile`: what it has, and what it says in the end. */
#ifndef TOOLS_PROFILE_REPORT_H
#define TOOLS_PROFILE_REPORT_H

#include "core/job.h"
#include "profiles/profile.h"
#include "tools/profile_away.h"
#include "tools/profile_cuda.h"
#include "tools/profile_links.h"
#include "tools/profile_ops.h"

#include <stdbool.h>
#include <stddef.h>

struct profile_bench { /* one call of the verb */
    struct arena *arena;
    const struct job *job;
    const struct cluster *cluster;
    struct profile_ops list;
    struct profile_links links;
    struct profile_cards cards;
    struct profile_away away;
    const char *provenance;
    bool again;        /* what the profile has is measured again */
    size_t n_measured; /* rows made */
    double
        pace; /* of the machine: what is known takes so many times as long now; 0 where nobody asked */
    double *
        fit_off; /* (n_fit_off) (fitted - measured) ÷ measured of rows made that the parent had fits of */
    size_t n_fit_off, fit_off_capacity;
};

/* The profile that was made or added to. n_plans: plans that were measured, 0: the job. */
void profile_report(const struct profile *p, const struct profile_bench *b, size_t n_plans,
                    bool as_json);

#endif
