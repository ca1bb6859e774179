/* tools/team/left.h - how fast a job runs with what is left of its devices: sim/goodput/goodput's speed, from weights or from the planner. */
#ifndef TOOLS_TEAM_LEFT_H
#define TOOLS_TEAM_LEFT_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;

struct team_left {
    int32_t n_types;
    const char **types;
    int64_t *devices, *spares; /* (n_types) in use; standing by */
    double *weights;           /* (n_types) speed of one device; NULL: the table */
    int64_t unit;              /* devices of a type that only count together (a replica), >= 1 */
    double *table;   /* by counts in mixed radix, the first type fastest; 1 at all devices */
    int64_t n_plans; /* plans that the table needed */
};

/* Speed relative to all devices, for struct goodput_job. O(n_types). */
double team_left_speed(const void *left, const int64_t *devices);

/* What one plan has: its devices by type, the others of its cluster as spares. */
MUST_CHECK enum status team_left_of_plan(struct arena *a, const struct plan *p,
                                         struct team_left *out, struct error *err);
/* The table: the plan itself where all its devices are there, else the best plan of those left (planner/search), never slower
 * than with fewer of them. ERR_USAGE: more than 256 such sets. A search a set: of more than 8 devices one that begins with p. */
MUST_CHECK enum status team_left_plan_all(struct arena *a, const struct plan *p,
                                          const struct profile *profile, int64_t evaluations,
                                          struct team_left *f, struct error *err);

#endif
