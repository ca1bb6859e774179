/* tools/schedule/cases.h - reader of a CSV of abstract pipelines with reference makespans, for `musher schedule --cases`.
 *
 * One case per line; columns are found by name, unknown ones are ignored:
 *   case, p, m                       name, stages, microbatches
 *   tF, tB, tW                       times of F, I and W, '|'-separated, one per stage (whole numbers of any unit)
 *   tcomm_links                      one-way latencies of the p-1 links
 *   memF, memB, memW                 signed changes of the stage's memory at F, I and W
 *   mem_limit                        one a stage, or one for all; inf: no limit
 *   one_f_one_b … best_known         makespans of feasible schedules; empty: does not fit the memory. Optional.
 *   lower_bound                      lower bound of all schedules with one chunk per device. Optional.
 */
#ifndef TOOLS_SCHEDULE_CASES_H
#define TOOLS_SCHEDULE_CASES_H

#include "sim/pipeline/static.h"

/*      member               column */
#define SCHEDULE_COLUMNS(X)                                                                        \
    X(one_f_one_b)                                                                                 \
    X(h1f1b_published)                                                                             \
    X(zero_bubble_heuristic)                                                                       \
    X(best_known)                                                                                  \
    X(lower_bound)

enum schedule_column {
#define X(name) COLUMN_##name,
    SCHEDULE_COLUMNS(X)
#undef X
        SCHEDULE_COLUMN_COUNT
};
const char *schedule_column_name(enum schedule_column c);
/* Rounding error of a makespan that a table gives to six figures, 4028523 as 4028520: half a unit of the sixth figure. */
int64_t schedule_cases_rounding(int64_t written);

struct schedule_case {
    const char *name;
    int line;
    int32_t n_stages, microbatches;
    struct pipeline pipeline;                /* one chunk per device; times are nanoseconds here */
    int64_t makespan[SCHEDULE_COLUMN_COUNT]; /* -1: empty or no such column */
};
struct schedule_cases {
    const char *file;
    bool has[SCHEDULE_COLUMN_COUNT]; /* columns of the file */
    int32_t n;
    struct schedule_case *cases;
};
/* ERR_INPUT with file:line and column. */
MUST_CHECK enum status schedule_cases_read(struct arena *a, const char *path,
                                           struct schedule_cases *out, struct error *err);

#endif
