/* planner/multi_device/internal.h - what the files of the search for stages on several devices share. */
#ifndef PLANNER_MULTI_DEVICE_INTERNAL_H
#define PLANNER_MULTI_DEVICE_INTERNAL_H

#include "planner/multi_device/multi_device_stage.h"

enum {
    MULTI_DEVICE_SPACES_MAX = 16,
    MULTI_DEVICE_SEEN_MAX = 1 << 13, /* plans remembered, a power of two */
    MULTI_DEVICE_SMALL_MAX = 40      /* simulations of small changes of one plan */
};

struct multi_device {
    struct search_context *t;
    struct arena *arena;
    int32_t n_spaces;
    struct space
        spaces[MULTI_DEVICE_SPACES_MAX]; /* copies, which know the graphs of shares as well */
    int64_t left, looks;                 /* simulations; plans made */
    uint64_t *seen;                      /* (MULTI_DEVICE_SEEN_MAX) hashes; 0: free */
    int32_t n_seen;
};

/* A plan, its time and its space. */
struct multi_device_point {
    struct search_plan x;
    int32_t space;
};

/* No simulations left, or no looks. */
bool multi_device_over(const struct multi_device *c);
/* Plans of many devices were improved by small changes where they were found (planner/fleet/fleet_local_search.h), and simulations are few. */
bool multi_device_many(const struct multi_device *c);
/* A copy of default orders, counted as a look. */
struct plan multi_device_copy(struct multi_device *c, const struct plan *p);
/* *y becomes p where that is worth a simulation; its time is INT64_MAX where it was not: seen before, hopeless, or it does not fit. */
MUST_CHECK enum status multi_device_try(struct multi_device *c, struct plan *p, int32_t space,
                                        const struct search_plan *best,
                                        struct multi_device_point *y, struct error *err);
/* Small changes as long as one helps, with at most so many simulations. */
MUST_CHECK enum status multi_device_local_search_small(struct multi_device *c,
                                                       struct multi_device_point *at, int64_t most,
                                                       struct error *err);
/* Large changes, followed by small ones, as long as one helps. */
MUST_CHECK enum status multi_device_local_search(struct multi_device *c,
                                                 struct multi_device_point *at, struct error *err);

#endif
