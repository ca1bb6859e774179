/* planner/baseline/baselines_internal.h - scoring of one family of baselines; private to baselines*.c. */
#ifndef PLANNER_BASELINE_BASELINES_INTERNAL_H
#define PLANNER_BASELINE_BASELINES_INTERNAL_H

#include "planner/baseline/baseline.h"

struct harp_plan;

enum { QUICK_LANES = 64 }; /* larger plans are compared by their first step */

struct scoring { /* of one family */
    struct baseline_task *k;
    struct search_baseline *b;
    int32_t n; /* best first: settings or HARP's plans */
    struct baseline_setting *settings;
    struct harp_plan *plans;
    int32_t at;        /* index of the next one */
    int64_t beyond_ns; /* settings estimated above it are skipped; 0: none */
    bool passed_over;  /* a setting was skipped */
    int64_t settled_ns;
    bool last;        /* hap: scored after all other families, because it takes longest */
    int64_t rival_ns; /* then: the fastest of the others */
    int64_t least;    /* layers lowered by the first setting */
    int64_t layers;   /* layers lowered so far */
    int32_t tries;
    char why[ERROR_TEXT]; /* reason of the nearest miss, the first of equals */
    int64_t miss;  /* bytes missing; INT64_MAX: lowering rejected the plan */
};

/* Number of layers that lowering writes out for a plan. */
int64_t scoring_layers(const struct plan *p);
/* Records a miss if it is the nearest so far. miss: bytes missing; INT64_MAX: lowering rejected the plan. */
void scoring_note(struct scoring *x, const char *why, int64_t miss);
/* Why the plan that was scored last, *p, does not fit: bytes missing on the fullest device, or INT64_MAX. Notes it. */
int64_t scoring_find_why(struct scoring *x, const struct plan *p);
void scoring_keep(struct scoring *x, const struct space *s, const struct plan *p, int64_t ns);
/* Finds and scores HAP's plans (baselines_hap.c). */
MUST_CHECK enum status scoring_hap(struct scoring *x, struct error *err);

#endif
