/* planner/multi_device/internal.h - what the climb of planner/multi_device/multi_device_stage.c shares among its files. */
#ifndef PLANNER_MULTI_DEVICE_INTERNAL_H
#define PLANNER_MULTI_DEVICE_INTERNAL_H

#include "planner/multi_device/multi_device_stage.h"

enum {
    REGROUP_SPACES_MAX = 16,
    REGROUP_SEEN_MAX = 1 << 13, /* plans remembered, a power of two */
    REGROUP_SMALL_MAX = 40      /* simulations of small changes of one plan */
};

struct regroup {
    struct tries *t;
    struct arena *arena;
    int32_t n_spaces;
    struct space spaces[REGROUP_SPACES_MAX]; /* copies, which know the graphs of shares as well */
    int64_t left, looks;                      /* simulations; plans made */
    uint64_t *seen;                           /* (REGROUP_SEEN_MAX) hashes; 0: free */
    int32_t n_seen;
};

/* A plan, its time and its space. */
struct regroup_point {
    struct search_plan x;
    int32_t space;
};

/* No simulations left, or no looks. */
bool regroup_over(const struct regroup *c);
/* Plans of many devices were improved by small changes where they were found (planner/fleet/fleet_local_search.h), and simulations are few. */
bool regroup_many(const struct regroup *c);
/* A copy of default orders, counted as a look. */
struct plan regroup_copy(struct regroup *c, const struct plan *p);
/* *y becomes p where that is worth a simulation; its time is INT64_MAX where it was not: seen before, hopeless, or it does not fit. */
MUST_CHECK enum status regroup_try(struct regroup *c, struct plan *p, int32_t space,
                                   const struct search_plan *best, struct regroup_point *y,
                                   struct error *err);
/* Small changes as long as one helps, with at most so many simulations. */
MUST_CHECK enum status regroup_climb_small(struct regroup *c, struct regroup_point *at,
                                           int64_t most, struct error *err);
/* Large changes, followed by small ones, as long as one helps. */
MUST_CHECK enum status regroup_climb(struct regroup *c, struct regroup_point *at,
                                     struct error *err);

#endif
