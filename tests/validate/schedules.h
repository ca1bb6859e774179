/* tests/validate/schedules.h - musher's schedules against the makespans of a file of cases (tools/schedule/cases.h).
 *
 * Each case is timed by sim/pipeline/static under every named schedule with one chunk per device, and under the orders of
 * sim/pipeline/zero_bubble; a schedule that does not fit the memory is marked. one_f_one_b (I right before W), h1f1b_published (fused,
 * warm-ups by the published rule) and zero_bubble_heuristic must be reproduced exactly, and no schedule may be below the lower bound.
 * A makespan above a million that is stated to six figures is compared at those.
 */
#ifndef TESTS_VALIDATE_SCHEDULES_H
#define TESTS_VALIDATE_SCHEDULES_H

#include "tools/schedule/cases.h"

enum validated_kind { BY_NAME_SPLIT, BY_NAME_FUSED, BY_HEURISTIC, BY_ALL_HEURISTICS };
/*      column                schedule         made */
#define TIMED_SCHEDULES(X)                                                                         \
    X(gpipe, GPIPE, BY_NAME_SPLIT)                                                                 \
    X(one_f_one_b, 1F1B, BY_NAME_SPLIT)                                                            \
    X(eager, EAGER, BY_NAME_SPLIT)                                                                 \
    X(h1f1b_published, H1F1B_PUBLISHED, BY_NAME_FUSED)                                             \
    X(h1f1b, H1F1B, BY_NAME_SPLIT)                                                                 \
    X(zb_h1, ZB_H1, BY_NAME_SPLIT)                                                                 \
    X(zb_h2, ZB_H2, BY_NAME_SPLIT)                                                                 \
    X(zero_bubble_heuristic, ZB_H2, BY_HEURISTIC)                                                  \
    X(zb_all, ZB_H2, BY_ALL_HEURISTICS)
enum timed_schedule {
#define X(name, kind, made) TIMED_##name,
    TIMED_SCHEDULES(X)
#undef X
        TIMED_COUNT
};
enum { TIMED_EXACT = 3 }; /* one_f_one_b, h1f1b_published, zero_bubble_heuristic */
struct validated_case {
    int64_t makespan[TIMED_COUNT]; /* -1: does not fit the memory */
    bool agrees[TIMED_EXACT];      /* true where the file has no such column */
    bool bound_holds;              /* no schedule that fits ends before lower_bound */
    int32_t best;                  /* of ours that fit; -1: none */
};
MUST_CHECK enum status validate_case(const struct schedule_cases *f, const struct schedule_case *c,
                                     struct validated_case *out, struct error *err);

/* Prints a row per case and a summary on stdout. ERR_INPUT: the file. ERR_TOLERANCE: a column that must be reproduced differs, or
 * a makespan is below its bound. O(operations of all cases). */
MUST_CHECK enum status validate_schedules(struct arena *a, const char *csv, bool json,
                                          struct error *err);

#endif
