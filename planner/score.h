/* planner/score.h - plan → program → simulated time, with memory reused from one candidate to the next. */
#ifndef PLANNER_SCORE_H
#define PLANNER_SCORE_H

#include "core/lower.h"
#include "core/plan.h"
#include "planner/space.h"
#include "sim/cost.h"

struct scorer; /* opaque; freed by scorer_free */

struct scorer *scorer_new(const struct lower_options *lower, struct cost *k);
void scorer_free(struct scorer *w);
/* Scratch for one candidate's plan; forgotten by the scorer_run after next use. */
struct arena *scorer_arena(struct scorer *w);
/* *iteration_ns: simulated, INT64_MAX where the plan does not fit a device's memory (then *missing_bytes > 0 where known) or
 * exceeds limit_ns. Infeasible is a result, not an error. */
MUST_CHECK enum status scorer_run(struct scorer *w, const struct space *s, const struct plan *p,
                                  int64_t limit_ns, int64_t *iteration_ns, int64_t *missing_bytes,
                                  struct error *err);
int64_t scorer_runs(const struct scorer *w);
const char *
scorer_why(const struct scorer *w); /* of the last infeasible plan; "nothing was tried" before */
struct plan
score_copy_plan(struct arena *a,
                const struct plan *p); /* replicas and stages copied; job and cluster shared */

#endif
