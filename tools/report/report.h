/* tools/report/report.h - plans as one HTML page: question, plan, timeline, memory, where the time goes, alternatives, sensitivity,
 * assumptions.
 *
 * Every plan is simulated with a trace and explained. Devices with equal timelines are simulated once, equal devices, replicas and
 * links are one row, and pictures have at most TIMELINE_ROWS_MAX rows, so a page of 10,240 devices stays legible. The same inputs give the same bytes: no date, no duration of a search.
 */
#ifndef TOOLS_REPORT_REPORT_H
#define TOOLS_REPORT_REPORT_H

#include "planner/search.h"
#include "sim/explain/explain.h"
#include "sim/metrics.h"
#include "tools/live_rows.h"
#include "tools/predict.h"
#include "tools/print/outcome.h"

#include <stdio.h>

struct arena;

enum { REPORT_PLANS_MAX = 8, REPORT_MEMORY_PANELS = 12 };

struct report_plan {
    const char *id, *file, *label; /* id: of its anchors; label: the plan's name and its file's */
    struct plan plan;
    bool same_cluster; /* as the first plan's: the bound and the search are of it */
    struct outcome outcome;
    struct metrics metrics;
    struct prediction told;
    struct cost *cost;
    int64_t *weight; /* (explained devices) devices that each represents */
    struct explain why;
    struct step_timeline line;
    int32_t n_live;
    struct live_row *live;
};
struct report {
    const struct profile *profile;
    int32_t n_plans;
    struct report_plan *plans;
    const struct search_result *search; /* of the first plan's job and cluster; NULL: none */
};

/* Simulates and explains. Fills all fields but id, file, label, plan, same_cluster and outcome. tokens: of the run, or images; 0: the
 * job's own number, if it states one. */
MUST_CHECK enum status report_predict(struct arena *a, const struct profile *profile,
                                      int64_t tokens, struct report_plan *x, struct error *err);
/* ERR_RESOURCE, ERR_INPUT of the simulations for the sensitivity. */
MUST_CHECK enum status report_write(FILE *out, struct arena *a, const struct report *r,
                                    struct error *err);

/* The sections, each in its file. */
void question_write(FILE *out, struct arena *a, const struct report *r);
void layout_write(FILE *out, struct arena *a, const struct report_plan *x);
void charts_timeline(FILE *out, struct arena *a, const struct report_plan *x);
void charts_memory(FILE *out, struct arena *a, const struct report_plan *x);
void usage_write(FILE *out, struct arena *a, const struct report_plan *x);
void alternatives_write(FILE *out, struct arena *a, const struct report *r);
MUST_CHECK enum status sensitivity_write(FILE *out, struct arena *a, const struct report_plan *x,
                                         struct error *err);
void assumptions_write(FILE *out, struct arena *a, const struct report *r);

/* A device type's colour, in every picture the same. */
const char *report_type_colour(int32_t type);

#endif
