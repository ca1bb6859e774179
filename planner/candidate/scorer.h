/* planner/candidate/scorer.h - the objective function of every search: plan → program → simulated iteration time.
 *
 * Memory is reused from one candidate to the next. Work is counted, never timed, so that a search that stops by it repeats.
 */
#ifndef PLANNER_CANDIDATE_SCORER_H
#define PLANNER_CANDIDATE_SCORER_H

#include "core/lower/lower.h"
#include "core/plan/plan.h"
#include "planner/candidate/space.h"
#include "sim/cost.h"

struct scorer; /* opaque; freed by scorer_free */

struct scorer *scorer_new(const struct lower_options *lower);
/* quick: simulate only the first step of a run, with one event per procedure. It approximates the steady step at a fraction of
 * the cost. */
void scorer_quick(struct scorer *w, bool quick);
/* A plan is given up, as if it did not fit, if its simulation exceeds this work from now on; 0: no limit. */
void scorer_limit(struct scorer *w, int64_t work_ns);
/* Every plan is lowered as a deterministic one. What lowering then refuses (all_reduce, ZeRO) does not fit. Before the first plan. */
void scorer_deterministic(struct scorer *w, bool deterministic);
void scorer_free(struct scorer *w);
/* Scratch for one candidate's plan; reset by the next call. */
struct arena *scorer_arena(struct scorer *w);
/* The scorer of another thread (1 …), freed with this one: what it keeps of its lowerings serves the next plans of that thread. */
struct scorer *scorer_helper(struct scorer *w, int32_t thread);
/* *iteration_ns: simulated; INT64_MAX if the plan exceeds a device's memory, which is a result and not an error. */
MUST_CHECK enum status scorer_run(struct scorer *w, const struct space *s, const struct plan *p,
                                  int64_t *iteration_ns, struct error *err);
/* The same, with repair: a stage that exceeds memory after lowering is modified in *p until it fits: recomputation of as many blocks as needed, then
 * receive buffers of one message ahead, then a lower warm-up count. A change that saves no memory is undone. */
MUST_CHECK enum status scorer_fit(struct scorer *w, const struct space *s, struct plan *p,
                                  int64_t *iteration_ns, struct error *err);
/* Program of the plan that was run or fitted last, without a memory check; NULL: lowering refused it, *refusal. Valid until the next
 * call of this scorer. */
const struct program *scorer_last(const struct scorer *w, enum status *refusal);
/* Bytes missing on the fullest device of the plan that was run or fitted last, *p, and the text of its error; INT64_MAX: lowering
 * refused it. */
int64_t scorer_last_miss(struct scorer *w, const struct plan *p, char why[ERROR_TEXT]);
/* The plan's program without a memory check; valid until the next call of this scorer. *out NULL: lowering rejects the plan. */
MUST_CHECK enum status scorer_program(struct scorer *w, const struct space *s, const struct plan *p,
                                      const struct program **out, struct error *err);
/* Transfer of a scorer's nearest miss to another scorer (a thread's to the search's): take resets the source, note merges it
 * with the number of runs and the work done. Deterministic if the calls are made in a fixed order. */
struct scorer_miss {
    int64_t missing; /* bytes; INT64_MAX: lowering rejected the plan, or nothing was tried */
    char why[sizeof((struct error *)0)->text];
};
void scorer_take_miss(struct scorer *w, struct scorer_miss *out);
void scorer_note(struct scorer *w, const struct scorer_miss *miss, int64_t runs, int64_t work_ns);
int64_t scorer_runs(const struct scorer *w); /* plans simulated */
/* Work done, in estimated nanoseconds: operators lowered, events simulated, and charges by scorer_charge. A count and not a
 * clock, so that a search with a work limit ends at the same plan on every machine. */
int64_t scorer_work(const struct scorer *w);
/* Stage calls lowered: the cost of plans with very many microbatches, independent of their operators. */
int64_t scorer_calls(const struct scorer *w);
void scorer_charge(struct scorer *w, int64_t ns);
/* Nearest miss: the message of the plan that lacked the fewest bytes on its fullest device; of no plan: that none fits by estimate. */
const char *scorer_why(const struct scorer *w);
struct plan scorer_copy_plan(
    struct arena *a,
    const struct plan *p); /* replicas, stages and their orders copied; job and cluster shared */

#endif
