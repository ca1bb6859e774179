/* tools/print/variants.h - the table of a what-if: one row for each changed cluster. */
#ifndef TOOLS_PRINT_VARIANTS_H
#define TOOLS_PRINT_VARIANTS_H

#include "core/base/error.h"
#include "planner/candidate/types.h"
#include "profiles/profile.h"
#include "tools/print/metrics.h"

struct variant {
    const char *name;
    struct cluster team;
    int64_t old_ns; /* the old plan simulated on the changed cluster; 0: impossible, see old_why */
    const char *old_why;
    int64_t best_ns; /* 0: no plan fits, for why */
    const char *why;
    const struct plan *best; /* the plan found, or the old plan if nothing faster was */
    bool stays;              /* best is the old plan */
    struct metrics metrics;  /* of best */
    int64_t lower_bound_ns;  /* 0: unknown */
    double lower_cost;       /* of an iteration; 0: unknown */
    const char *binding, *stopped;
    bool exact;
    int64_t evaluated;
    double search_s;
    struct arena
        *arena; /* of its own, because variants are planned concurrently; NULL: not started */
    enum status status;
    struct error err;
};
struct variants_report {
    const char *plan;       /* file of the old plan */
    const struct plan *old; /* that was asked about */
    const struct profile *profile;
    enum objective objective; /* of which gaps are */
    bool only_repaired;       /* plans beyond SEARCH_DEVICES_MAX devices are adaptations of the old one, without a search */
};
/* n variants; the last one has the device types of all. */
void print_variants(struct arena *a, const struct variants_report *q, const struct variant *v, size_t n);
void print_variants_json(struct arena *a, const struct variants_report *q, const struct variant *v,
                         size_t n);

#endif
