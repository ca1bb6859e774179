/* planner/baseline/baselines_internal.h - scoring of one family of baselines; private to baselines*.c. */
#ifndef PLANNER_BASELINE_BASELINES_INTERNAL_H
#define PLANNER_BASELINE_BASELINES_INTERNAL_H

#include "planner/baseline/baseline.h"
#include "planner/baseline/baselines.h"

struct harp_plan;

struct scoring { /* of one family */
    struct baseline_task *k;
    struct search_baseline *b; /* the best plan so far; iteration_ns INT64_MAX: none */
    int32_t n; /* best first: settings or HARP's plans */
    struct baseline_setting *settings;
    struct harp_plan *plans;
    int32_t at;       /* index of the next one */
    bool passed_over; /* settings were left out that may be faster */
    char why[ERROR_TEXT]; /* reason of the nearest miss, the first of equals */
    int64_t miss;         /* bytes missing; INT64_MAX: lowering rejected the plan */
};

/* Records a miss if it is the nearest so far. miss: bytes missing; INT64_MAX: lowering rejected the plan. */
void scoring_note(struct scoring *x, const char *why, int64_t miss);
/* Keeps a simulated plan if it is the best. whole: ns is not that of a sample. */
void scoring_keep(struct scoring *x, const struct plan *p, int64_t ns, bool whole);
/* Whether the limit of work is reached, or the search was stopped. */
bool scoring_spent(const struct scoring *x);
/* Finds and scores HAP's plans within the limit of work (baselines_hap.c). */
MUST_CHECK enum status scoring_hap(struct scoring *x, struct error *err);

#endif
