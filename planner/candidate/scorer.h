/* planner/candidate/scorer.h - plan → program → simulated time, with memory reused from one candidate to the next. */
#ifndef PLANNER_CANDIDATE_SCORER_H
#define PLANNER_CANDIDATE_SCORER_H

#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "planner/candidate/space.h"
#include "sim/cost.h"

struct scorer; /* opaque; freed by scorer_free */

struct scorer *scorer_new(const struct lower_options *lower);
/* quick: the first step of a run, procedures whole: nearly the steady step (from rest), at a fraction of the time. */
void scorer_quick(struct scorer *w, bool quick);
void scorer_free(struct scorer *w);
/* Scratch for one candidate's plan; forgotten by the next call. */
struct arena *scorer_arena(struct scorer *w);
/* *iteration_ns: simulated, INT64_MAX where the plan does not fit a device's memory, which is a result and no error. */
MUST_CHECK enum status scorer_run(struct scorer *w, const struct space *s, const struct plan *p,
                                  int64_t *iteration_ns, struct error *err);
/* The same, but a stage that lowering finds too large is changed in *p until it fits: it recomputes, then receives one
 * message ahead, then takes fewer warm-ups. What does not make it smaller is taken back. */
MUST_CHECK enum status scorer_fit(struct scorer *w, const struct space *s, struct plan *p,
                                  int64_t *iteration_ns, struct error *err);
/* The plan's program, memory unchecked, until the next call of this scorer. *out NULL: it cannot be lowered (infeasible). */
MUST_CHECK enum status scorer_program(struct scorer *w, const struct space *s, const struct plan *p,
                                      const struct program **out, struct error *err);
/* The nearest miss of one scorer put before another's: taken from it, which forgets, and noted there in any order of calls that
 * repeats; with plans simulated in between. */
struct scorer_miss {
    int64_t missing; /* INT64_MAX: lowering refused, or nothing was tried */
    char why[sizeof((struct error *)0)->text];
};
void scorer_take_miss(struct scorer *w, struct scorer_miss *out);
void scorer_note(struct scorer *w, const struct scorer_miss *miss, int64_t runs, int64_t work_ns);
/* When each replica of the plan that was simulated last has ended its last backward, from rest: (n_replicas). false: nothing
 * was simulated since a plan was lowered. */
bool scorer_worked(const struct scorer *w, const struct plan *p, int64_t *end_ns);
int64_t scorer_runs(const struct scorer *w); /* plans simulated */
/* What this scorer has done, in nanoseconds that it takes about: operators lowered and events simulated, and what others put on
 * its account. A count and no clock, so that whoever ends by it ends at the same plan everywhere. */
int64_t scorer_work(const struct scorer *w);
/* Calls of stages that it has lowered: what plans of very many microbatches cost, whatever their operators. */
int64_t scorer_calls(const struct scorer *w);
void scorer_charge(struct scorer *w, int64_t ns);
/* Of the plan that lacked the fewest bytes on its fullest device; "nothing was tried" before. */
const char *scorer_why(const struct scorer *w);
struct plan scorer_copy_plan(
    struct arena *a,
    const struct plan *p); /* replicas, stages and their orders copied; job and cluster shared */

#endif
