/* planner/candidate/plan_skeleton.h - a plan with all fields but its stages' devices, layers and shares. */
#ifndef PLANNER_CANDIDATE_PLAN_SKELETON_H
#define PLANNER_CANDIDATE_PLAN_SKELETON_H

#include "planner/candidate/space.h"

/* n_replicas replicas of n_stages[r] stages each, allocated in `a`, with the space's job, cluster and microbatch size and
 * default schedules. */
void plan_skeleton(struct arena *a, const struct space *s, const char *name, int32_t n_replicas,
                   const int32_t *n_stages, struct plan *out);

#endif
