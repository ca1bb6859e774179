/* planner/schedule/find.h - the order of F, I and W (or F and B) on every device that minimises a pipeline's makespan within
 * memory.
 *
 * Input: the stages of one pipeline, its links, the memory of its devices (sim/pipeline/static.h) and one placement of stages
 * on devices. Anytime heuristic in three phases:
 *   starts     "eager" (below), all named schedules that fit, and the zero-bubble authors' scheduler in its 32 variants;
 *   turning    forward-backward improvement (Li and Willis, EJOR 56, 1992): list scheduling with the remaining path of each
 *              operation in the best schedule as its priority, then on the reversed problem, alternating, with noise;
 *   moves      tabu search on critical blocks (planner/schedule/tabu.h).
 * "eager" is list scheduling (planner/schedule/shop.h) by one rule: input gradients before forwards before weight gradients,
 * at once; forwards in flight as in eager 1F1B; all of it as far as memory admits (the memory-limited heuristic of Qi et al.,
 * arXiv 2401.10241, §3, with the controllable memory of Qi et al., arXiv 2405.15362).
 * The result is never worse than any start. The search ends early if it meets a lower bound. Orders have split backwards,
 * except for stages with a fused backward (fused_ns > 0), which keep it.
 *
 * Deterministic: the budget counts operations timed; *stop only ends the search early.
 */
#ifndef PLANNER_SCHEDULE_FIND_H
#define PLANNER_SCHEDULE_FIND_H

#include "planner/bound/schedule.h"
#include "planner/schedule/shop.h"
#include "sim/pipeline/static.h"

struct arena;

/* Orders kept, from which improvement starts, and rounds of forward-backward improvement of one. */
enum { SCHEDULE_ELITE = 6 };

struct schedule_find_options {
    uint64_t seed;
    int64_t operations; /* budget of operations timed (about 4e7 per second); 0: BOUND_SCHEDULE_STEPS */
    /* lower bound by closed forms only (BOUND_CHEAP), without an attempt at a proof */
    bool cheap;
    /* only the memory-limited order "eager" above and 1F1B, if it fits; no bound. O(operations · log devices) */
    bool eager;
    /* (n_devices) of one chunk a device: memory by the peaks of buffer rings, besides the stages' bytes, which are those alive; NULL: by
     * what is alive */
    const struct shop_rings *rings;
    bool (*stop)(void *user); /* true: end with the best so far; NULL: never */
    void *user;
};
struct schedule_found {
    struct schedule schedule;
    int64_t makespan_ns;
    int64_t *peak_bytes; /* (n_devices) of what is alive */
    int64_t operations; /* timed */
    /* lower bound of every order of this placement; with several chunks per device none (lower_bound_ns 0, no term) */
    struct bound_schedule bound;
};
/* shape: placement of chunks on devices (stage, n_devices, n_chunks) and number of microbatches; its lanes are not read.
 * ERR_INFEASIBLE: a device cannot hold even one microbatch. ERR_INPUT: see shop_make. */
MUST_CHECK enum status schedule_find(struct arena *a, const struct pipeline *p,
                                     const struct schedule *shape,
                                     const struct schedule_find_options *o,
                                     struct schedule_found *out, struct error *err);
/* A shape without lanes. v_shaped: chunk 0 passes the devices in ascending order, chunk 1 in descending order, and so on; else
 * round robin. */
void schedule_shape(struct arena *a, int32_t devices, int32_t chunks, int32_t microbatches,
                    bool v_shaped, struct schedule *out);

#endif
