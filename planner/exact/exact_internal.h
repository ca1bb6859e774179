/* planner/exact/exact_internal.h - what the exact search and its walk over partitions share. */
#ifndef PLANNER_EXACT_EXACT_INTERNAL_H
#define PLANNER_EXACT_EXACT_INTERNAL_H

#include "planner/exact/bottleneck.h"
#include "planner/exact/candidate.h"
#include "planner/exact/partition.h"

/* Pipelines of one set of devices with so many microbatches, as far as they were asked for. */
struct exact_list {
    uint64_t key; /* of both; 0: free */
    int64_t limit_ns;
    struct pipeline_list list;
};
/* The tables of one microbatch size. */
struct exact_size {
    const struct space *s;
    const struct bottleneck *b;
    struct partition *parts;
    size_t n, n_room;
    size_t n_lists, capacity; /* a power of two */
    struct exact_list **lists;
};
struct exact_turn { /* of one partition */
    int32_t size;
    size_t part;
    int64_t bound_ns; /* what turns are taken by */
};

/* What cannot beat the worst kept plan is pruned, so that how many plans are asked for does not change which are found. */
struct exact {
    struct search_context *t;
    struct arena *lists; /* pipelines */
    struct exact_size *sizes;
    int32_t n_sizes;
    struct exact_turn *turns;
    size_t n_turns, turns_room;
    struct candidates trials;
    /* The fastest plan of each number of replicas: what is best may have more than what is best so far. ns 0: none */
    struct candidate shape[SPACE_TABLES_MAX + 1];
    int64_t shape_ns[SPACE_TABLES_MAX + 1];
    bool walked; /* by exact_walk: partitions are many */
    int64_t
        walk_ns; /* what a step of the walk must beat, where that is more than what the kept plans say */
};

/* The best-bound pipelines of a partition with greedy shares. *ns: of that plan; INT64_MAX where it cannot beat the limit. */
MUST_CHECK enum status exact_first(struct exact *q, const struct exact_turn *turn, int64_t *ns,
                                   struct error *err);
/* Notes a partition of a size as a turn, its last. */
void exact_add_turn(struct exact *q, int32_t size, const struct partition *p, int64_t bound_ns);

/* Where partitions are too many to be listed (planner/exact/exact_walk.c): from those of the kept plans and from even ones, devices
 * are moved, exchanged, left out and taken in, and replicas merged, as long as that makes the plan faster. Turns become the
 * partitions that were visited, the fastest first. */
MUST_CHECK enum status exact_walk(struct exact *q, struct error *err);

#endif
