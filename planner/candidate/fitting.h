/* planner/candidate/fitting.h - repairs of a plan that lacks memory: blocks recomputed, then whole stages, fewer receives posted ahead, fewer
 * warm-ups; and, where device types allow it (`offload: activations`), activations in host memory instead of recomputation. */
#ifndef PLANNER_CANDIDATE_FITTING_H
#define PLANNER_CANDIDATE_FITTING_H

#include "core/plan/plan.h"
#include "planner/candidate/space.h"

struct program;
struct fitting; /* opaque */

/* Bytes that the device lacks; negative: bytes to spare. */
int64_t fitting_missing(const struct program *p, int32_t device);
/* A move that takes layers from a stage may leave fewer blocks than are recomputed: then all are. */
void fitting_bound_blocks(const struct space *s, struct plan *p);
struct fitting *fitting_new(struct arena *a, const struct plan *p);
/* The next repair of each stage of p that is too large; program: the lowered plan. false: none is left, or all that are left free too
 * little. O(stages · buffer rings). */
bool fitting_next(struct fitting *f, struct arena *a, const struct space *s, const struct program *program, struct plan *p);
/* Whether some type allows activations to be offloaded. */
bool fitting_offers(const struct space *s);
/* Whether the types of all its devices allow it, and it does not yet. */
bool fitting_may_offload(const struct space *s, const struct plan_stage *x);
/* Offloads the activations of the stage and recomputes nothing. */
void fitting_set_offload(struct plan_stage *x);
/* Does so to the stages of `out` that `fitted`, the same plan repaired, recomputes, or to all, where the types of their devices allow it.
 * false: to none. */
bool fitting_offload(const struct space *s, const struct plan *fitted, bool all, struct plan *out);
/* The repairs of another copy of the plan. */
void fitting_take(struct plan *p, const struct plan *other);

#endif
