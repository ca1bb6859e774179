/* tools/team/left.h - the speed of a job on its remaining devices, for sim/goodput: from weights of device types or from plans. */
#ifndef TOOLS_TEAM_LEFT_H
#define TOOLS_TEAM_LEFT_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "profiles/profile.h"

#include <stdint.h>

struct arena;

struct team_left {
    int32_t n_types;
    int32_t servers; /* types from here to n_types are those of parameter servers: the job needs all of their devices, and they have no spares */
    const char **types;
    int64_t *devices, *spares; /* (n_types) in use; spare */
    double *weights;           /* (n_types) relative speed of one device; NULL: the table is used */
    int64_t unit;              /* devices of a type that are useful only together (a replica), >= 1 */
    double *table;   /* relative speed by device counts in mixed radix, the first type fastest; 1 with all devices */
    int64_t n_plans; /* plans searched for the table */
};

/* Speed with these device counts relative to that with all devices, for struct goodput_job. O(n_types). */
double team_left_speed(const void *left, const int64_t *devices);

/* The devices of a plan by type, workers first, then parameter servers; the other devices of its cluster are spares of the workers. */
MUST_CHECK enum status team_left_of_plan(struct arena *a, const struct plan *p,
                                         struct team_left *out, struct error *err);
/* Fills the table: the plan itself with all its devices, else the best plan of the remaining ones (planner/search), never slower
 * than with fewer of them. One search a set of devices; above 8 devices it starts from p. ERR_USAGE: more than 256 sets. */
MUST_CHECK enum status team_left_plan_all(struct arena *a, const struct plan *p,
                                          const struct profile *profile, int64_t evaluations,
                                          struct team_left *f, struct error *err);

#endif
