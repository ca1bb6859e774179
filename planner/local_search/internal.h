/* planner/local_search/internal.h - the state of a local search and its table of moves. */
#ifndef PLANNER_LOCAL_SEARCH_INTERNAL_H
#define PLANNER_LOCAL_SEARCH_INTERNAL_H

#include "planner/local_search/local_search.h"

struct local_search {
    const struct local_search_task *task;
    const struct space *s;
    struct arena *arena;
    struct plan plan; /* the best so far */
    int64_t *iteration_ns;
    int64_t left; /* of task->evaluations */
    struct plan_set *tried;
    int32_t n_groups;
    int32_t *group;   /* (n_replicas) groups of equal replicas */
    int32_t *example; /* (n_groups) a replica of each */
    uint32_t tight;   /* variants of the last schedule move, by bit, that did not fit, or only with more recomputation */
};

/* A kind of change. Variants are numbered; the same number means the same change of any plan with the same groups. */
struct local_search_move {
    const char *name;
    int32_t (*count)(const struct local_search *x);
    /* Changes *p, a copy of x->plan. false: there is no such variant. */
    bool (*make)(const struct local_search *x, struct plan *p, int32_t variant);
    bool repeats;   /* a variant that shortens the iteration is applied again */
    bool schedules; /* sets x->tight */
};

enum { LOCAL_SEARCH_ORDERS = 3 }; /* the first rows of the table: buckets and schedules of all stages */
const struct local_search_move *local_search_moves(int32_t *n);

#endif
