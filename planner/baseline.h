/* planner/baseline.h - textbook plans as points of the same plan space. */
#ifndef PLANNER_BASELINE_H
#define PLANNER_BASELINE_H

#include "planner/search.h"
#include "planner/space.h"

/* The baseline's plan for one microbatch size. ERR_INFEASIBLE where the job cannot be cut that way (says why). */
typedef enum status baseline_make(struct arena *a, const struct space *s, struct plan *out,
                                  struct error *err);

int32_t baseline_count(void);
const char *baseline_name(int32_t i);
baseline_make *baseline_maker(int32_t i);

/* A plan with one replica per row of n_stages and default schedules; what baselines and the search fill in. */
void plan_skeleton(struct arena *a, const struct space *s, const char *name, int32_t n_replicas,
                   const int32_t *n_stages, struct plan *out);

#endif
