/* planner/schedule/find.h - the order of F, I and W (or F and B) on every device that takes the least time within memory.
 *
 * Given are the stages of one pipeline, its links and the memory of its devices (sim/pipeline/static.h); the order is sought, for one
 * placement of stages on devices. Three things in turn, anytime:
 *   starts     all named schedules that fit, 1F1B with as many warm-ups as memory allows, the zero-bubble authors' scheduler
 *              in its 32 ways, and the list scheduler (planner/schedule/shop.h) by plain rules;
 *   turning    the list scheduler forwards by what remains after an operation in the best schedule so far, then on the turned
 *              shop by what went before it, and so on, with noise (forward-backward improvement, Li and Willis, EJOR 56,
 *              1992), which repairs a schedule as a whole;
 *   moves      tabu search on critical blocks (planner/schedule/tabu.h), which repairs it in places.
 * The answer is never worse than any of the starts. It ends at once where a lower bound is met. Orders are of split backward
 * unless a stage has a fused one (fused_ns > 0), which is then taken as it is.
 *
 * The same arguments give the same order: the budget counts operations timed; *stop only cuts off.
 */
#ifndef PLANNER_SCHEDULE_FIND_H
#define PLANNER_SCHEDULE_FIND_H

#include "planner/bound/schedule.h"
#include "sim/pipeline/static.h"

struct arena;

struct schedule_find_options {
    uint64_t seed;
    int64_t operations; /* to time at most (about 4e7 a second); 0: 25,000,000 */
    /* only closed forms bound it (planner/bound/schedule.h): no time is spent on a proof */
    bool cheap;
    bool (*stop)(void *user); /* true: end with the best so far; NULL: never */
    void *user;
};
struct schedule_found {
    struct schedule schedule;
    int64_t makespan_ns;
    int64_t *peak_bytes; /* (n_devices) */
    /* which of the three found it: the name of a start, "rules", "turning", "moves", "proof" */
    const char *from;
    int64_t operations; /* timed */
    /* any order of this placement; of several chunks a device none is known here (lower_bound_ns 0, no term): of halves
     * planner/schedule/halves.h has one. found is NULL */
    struct bound_schedule bound;
};
/* shape: places chunks on devices (stage, n_devices, n_chunks) and says how many microbatches; its lanes are not read.
 * ERR_INFEASIBLE: some device cannot hold even one microbatch. ERR_INPUT: see shop_make. */
MUST_CHECK enum status schedule_find(struct arena *a, const struct pipeline *p,
                                     const struct schedule *shape,
                                     const struct schedule_find_options *o,
                                     struct schedule_found *out, struct error *err);
/* A shape without lanes. v_shaped: chunk 0 goes down the devices, chunk 1 comes back, and so on; else round robin. */
void schedule_shape(struct arena *a, int32_t devices, int32_t chunks, int32_t microbatches,
                    bool v_shaped, struct schedule *out);

#endif
