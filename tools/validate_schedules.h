/* tools/validate_schedules.h - our schedules beside those of a file of cases (tools/schedule_cases.h).
 *
 * Each case is timed by sim/static under every named schedule with one chunk a device, and what does not fit its memory is
 * said so. one_f_one_b (I right before W) and h1f1b_published (fused, warm-ups by the published rule) must come out
 * exactly, and no schedule of ours may beat the lower bound. A file may state a makespan beyond a million at six figures:
 * it is compared at those.
 */
#ifndef TOOLS_VALIDATE_SCHEDULES_H
#define TOOLS_VALIDATE_SCHEDULES_H

#include "tools/schedule_cases.h"

/*      column         schedule         fused? */
#define VALIDATED(X)                                                                               \
    X(gpipe, GPIPE, false)                                                                         \
    X(one_f_one_b, 1F1B, false)                                                                    \
    X(eager, EAGER, false)                                                                         \
    X(h1f1b_published, H1F1B_PUBLISHED, true)                                                      \
    X(h1f1b, H1F1B, false)                                                                         \
    X(zb_h1, ZB_H1, false)                                                                         \
    X(zb_h2, ZB_H2, false)
enum validated {
#define X(name, kind, fused) VALIDATED_##name,
    VALIDATED(X)
#undef X
        VALIDATED_COUNT
};
struct validated_case {
    int64_t makespan[VALIDATED_COUNT]; /* -1: does not fit the memory */
    bool agrees[2];   /* with one_f_one_b, with h1f1b_published; true where there is no column */
    bool bound_holds; /* no schedule that fits ends before lower_bound */
    int32_t best;     /* of ours that fit; -1: none */
};
MUST_CHECK enum status validate_case(const struct schedule_cases *f, const struct schedule_case *c,
                                     struct validated_case *out, struct error *err);

/* Prints a row a case and a summary on stdout. ERR_INPUT: the file; ERR_TOLERANCE: a column that must come out differs, or
 * a bound is beaten. O(operations of all cases). */
MUST_CHECK enum status validate_schedules(struct arena *a, const char *csv, bool json,
                                          struct error *err);

#endif
