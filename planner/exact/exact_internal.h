/* planner/exact/exact_internal.h - state shared by the exact search and its walk over partitions. */
#ifndef PLANNER_EXACT_EXACT_INTERNAL_H
#define PLANNER_EXACT_EXACT_INTERNAL_H

#include "planner/exact/bottleneck.h"
#include "planner/exact/candidate.h"
#include "planner/exact/partition.h"

/* Pipelines of one set of devices and number of microbatches, enumerated up to limit_ns. */
struct exact_list {
    uint64_t key; /* of devices and microbatches; 0: free */
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
    int64_t bound_ns; /* order of processing */
};

/* Pruning uses the worst incumbent, so that the number of requested plans does not change which plans are found. */
struct exact {
    struct search_context *t;
    struct arena *lists; /* owns pipeline lists */
    struct exact_size *sizes;
    int32_t n_sizes;
    struct exact_turn *turns;
    size_t n_turns, turns_room;
    struct candidates trials;
    /* The fastest plan of each number of replicas, because the optimum may have another number than the incumbent. ns 0: none */
    struct candidate shape[SPACE_TABLES_MAX + 1];
    int64_t shape_ns[SPACE_TABLES_MAX + 1];
    bool walked; /* partitions come from exact_walk */
    int64_t
        walk_ns; /* limit of a step of the walk, if it exceeds that of the incumbents */
};

/* First plan of a partition: for each replica the pipeline of least bound, with greedy shares. *ns: INT64_MAX if pruned. */
MUST_CHECK enum status exact_first(struct exact *q, const struct exact_turn *turn, int64_t *ns,
                                   struct error *err);
/* Appends a partition of a size to the turns. */
void exact_add_turn(struct exact *q, int32_t size, const struct partition *p, int64_t bound_ns);

/* Local search over partitions that are too many to list (planner/exact/exact_walk.c). Starts: partitions of the incumbents
 * and even ones. Moves: devices moved, exchanged, dropped and added, replicas merged. The visited partitions become the turns,
 * fastest first. */
MUST_CHECK enum status exact_walk(struct exact *q, struct error *err);

#endif
