/* planner/multi_device/internal.h - state shared by the files of the search for stages on several devices. */
#ifndef PLANNER_MULTI_DEVICE_INTERNAL_H
#define PLANNER_MULTI_DEVICE_INTERNAL_H

#include "planner/candidate/plan_set.h"
#include "planner/multi_device/multi_device_stage.h"

enum {
    MULTI_DEVICE_SPACES_MAX = 16,
    MULTI_DEVICE_SMALL_MAX = 40      /* simulations of small moves from one plan */
};

struct multi_device {
    struct search_context *t;
    struct arena *arena;
    int32_t n_spaces;
    struct space
        spaces[MULTI_DEVICE_SPACES_MAX]; /* copies with the graphs of batch shards */
    int64_t left, looks;                 /* remaining simulations; remaining plans to construct */
    struct plan_set seen;                /* plans tried */
};

/* A plan, its time and its space. */
struct multi_device_point {
    struct search_plan x;
    int32_t space;
};

/* Whether either budget is spent. */
bool multi_device_over(const struct multi_device *c);
/* Whether the cluster is large: small moves are then left to planner/local_search/local_search.h, because simulations are few. */
bool multi_device_many(const struct multi_device *c);
/* A copy with default orders; counts towards `looks`. */
struct plan multi_device_copy(struct multi_device *c, const struct plan *p);
/* *y becomes p with its simulated time. INT64_MAX: p was tried before, its bound is not below best, or it does not fit. */
MUST_CHECK enum status multi_device_try(struct multi_device *c, struct plan *p, int32_t space,
                                        const struct search_plan *best,
                                        struct multi_device_point *y, struct error *err);
/* Local search with small moves, within `most` simulations. */
MUST_CHECK enum status multi_device_local_search_small(struct multi_device *c,
                                                       struct multi_device_point *at, int64_t most,
                                                       struct error *err);
/* Local search with large moves, each followed by small ones. */
MUST_CHECK enum status multi_device_local_search(struct multi_device *c,
                                                 struct multi_device_point *at, struct error *err);

#endif
