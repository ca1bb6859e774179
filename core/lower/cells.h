/* core/lower/cells.h - gradient all-reduces over devices that keep parameters in different shards. */
#ifndef CORE_LOWER_CELLS_H
#define CORE_LOWER_CELLS_H

#include "core/lower/groups.h"

/* Intersections of the members' shards. Members with equal shards have the same regions. */
struct cells {
    int32_t n;             /* segments */
    int32_t *param_use;    /* (n) of a tied exchange: either of the two */
    struct region *within; /* (distinct members, n) in the member's own gradient */
    const int32_t *place;  /* (members) among the distinct ones */
};

/* Those of a member. (n) */
static inline struct region *cells_within(const struct cells *c, int32_t member)
{
    return c->within + c->place[member] * c->n;
}

/* Parameter uses first … last, over the stages `owner` of the plan (their first devices). summed: every holder has its stage's reduced
 * gradient, which counts once. All groups get this name and plan. ERR_INPUT. */
MUST_CHECK enum status lower_cells(struct lowering *l, const struct stage_build *const *owner,
                                   int32_t n_owners, const char *name, struct group_plan plan,
                                   struct error *err);

#endif
