/* planner/baseline/baselines_internal.h - scoring one family of baselines; shared by baselines*.c alone. */
#ifndef PLANNER_BASELINE_BASELINES_INTERNAL_H
#define PLANNER_BASELINE_BASELINES_INTERNAL_H

#include "planner/baseline/baseline.h"

struct harp_plan;

enum { QUICK_LANES = 64 }; /* of more, candidates are compared by their first step */

struct scoring { /* of one family */
    struct baseline_task *k;
    struct search_baseline *b;
    int32_t n; /* best first: settings or HARP's plans */
    struct baseline_setting *settings;
    struct harp_plan *plans;
    int32_t at;        /* the next of them */
    int64_t beyond_ns; /* what is estimated above that is passed over; 0: nothing is */
    bool passed_over;  /* something was */
    int64_t settled_ns;
    bool last;        /* hap: sought when all others stand, since that takes longest */
    int64_t rival_ns; /* then: the fastest of those */
    int64_t least;    /* layers of the first one */
    int64_t layers;   /* lowered so far */
    int32_t tries;
    char why[256]; /* of what came nearest to fitting, the first of those */
    int64_t miss;  /* bytes that it lacks; INT64_MAX: lowering refused it */
};

/* What a plan has lowering write down. */
int64_t scoring_layers(const struct plan *p);
/* miss: bytes that it lacks; INT64_MAX: lowering refused it. Kept of what came nearest. */
void scoring_note(struct scoring *x, const char *why, int64_t miss);
void scoring_find_why(struct scoring *x, const struct space *s, const struct plan *p);
void scoring_keep(struct scoring *x, const struct space *s, const struct plan *p, int64_t ns);
/* Finds HAP's plans and scores them (baselines_hap.c). */
MUST_CHECK enum status scoring_hap(struct scoring *x, struct error *err);

#endif
