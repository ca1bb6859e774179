/* planner/exact/bottleneck.h - all pipelines on one set of devices whose lower bound is below a limit.
 *
 * Depth-first branch and bound over (next device, end of its layers). A node is pruned by the exact cost of its prefix and,
 * for the suffix, by the least bottleneck of the remaining devices on the remaining layers (dynamic program over subsets, made
 * once).
 */
#ifndef PLANNER_EXACT_BOTTLENECK_H
#define PLANNER_EXACT_BOTTLENECK_H

#include "planner/candidate/space.h"

struct exact_pipeline {
    int64_t bound_ns, path_ns; /* bound_pipeline */
    int32_t n_stages;
    int8_t device[SPACE_TABLES_MAX];
    int16_t last[SPACE_TABLES_MAX]; /* last layer of each stage */
    bool recompute[SPACE_TABLES_MAX];
};
struct pipeline_list {
    struct exact_pipeline *items; /* by bound, then by order of enumeration */
    size_t n, capacity;
    bool complete; /* false: more than `most` were found and the worst dropped, or max_steps was reached */
    int64_t seen;  /* complete pipelines with a computed bound */
    int64_t steps; /* stages placed */
};

struct bottleneck; /* least possible max stage time by (subset, first layer) */
struct bottleneck *bottleneck_make(struct arena *a, const struct space *s);
int64_t bottleneck_steps(const struct space *s); /* estimated cost of bottleneck_make in ns */
/* Least possible F + B of the slowest stage if all devices of mask compute layers first … the last one; INT64_MAX: impossible. */
int64_t bottleneck_ns(const struct bottleneck *b, uint32_t mask, int32_t first);

/* Pipelines that use exactly the devices in mask, for m microbatches, with bound < limit_ns; at most `most`, within max_steps. */
void bottleneck_enumerate(struct arena *a, const struct space *s, const struct bottleneck *b,
                          uint32_t mask, int32_t m, int64_t limit_ns, size_t most,
                          int64_t max_steps, struct pipeline_list *out);

#endif
