/* planner/local_search/internal.h - the state of a local search and its table of moves. */
#ifndef PLANNER_LOCAL_SEARCH_INTERNAL_H
#define PLANNER_LOCAL_SEARCH_INTERNAL_H

#include "planner/local_search/local_search.h"

struct local_search {
    const struct local_search_task *task;
    const struct space *s; /* of the plan's microbatch size: own[size] */
    struct space *own;     /* (n_sizes) copies of the task's spaces, with the graphs of sequences */
    int32_t size, n_sizes;
    struct arena *arena;
    struct plan plan; /* the best so far */
    int64_t *iteration_ns;
    int64_t left; /* of task->evaluations */
    bool better;  /* since the last pass over the table began */
    struct plan_set *tried;
    int32_t n_groups;
    int32_t *group;   /* (n_replicas) groups of equal replicas */
    int32_t *example; /* (n_groups) a replica of each */
};

/* A kind of change. Variants are numbered; the same number means the same change of any plan with the same groups. */
struct local_search_move {
    const char *name;
    int32_t (*count)(const struct local_search *x);
    /* Changes *p, a copy of x->plan. false: there is no such variant. */
    bool (*make)(const struct local_search *x, struct plan *p, int32_t variant);
    bool repeats;   /* a variant that shortens the iteration is applied again */
    bool stages;    /* changes devices, stages or memory: only where the task asks for it */
    bool sizes;     /* tried at all microbatch sizes */
    bool last;      /* tried only in a pass in which no other move has helped, because its evaluations would end the search of these earlier */
    int32_t least_percent; /* of the iteration, that a variant must save to be taken; 0: anything */
};

enum { LOCAL_SEARCH_ORDERS = 2 }; /* the first rows of the table: buckets and schedules of all stages */
const struct local_search_move *local_search_moves(int32_t *n);
/* Resets orders written out, warm-up counts, recomputation and receive buffers to their defaults; named schedules stay. */
void local_search_plain(struct plan *p);
/* The same, and warm-up counts that hide messages where no schedule is named. Returns true. */
bool local_search_reorder(const struct local_search *x, struct plan *p);

/* Rows of stage_rows.c: as local_search_move's count and make. */
#define STAGE_ROWS(X)                                                                              \
    X(merges, merge) X(splits, split) X(joins, join) X(divisions, divide) X(devices, device)       \
    X(idle, idle) X(swaps, swap) X(sizes, size) X(sequences, sequence) X(zero, zero) X(recompute, recompute)
#define X(many, one)                                                                               \
    int32_t stage_rows_count_##many(const struct local_search *x);                                 \
    bool stage_rows_##one(const struct local_search *x, struct plan *p, int32_t variant);
STAGE_ROWS(X)
#undef X

#endif
