/* planner/exact/repair.h - where nothing was found that fits: the plan that lacks least, and whether some step from it fits. */
#ifndef PLANNER_EXACT_REPAIR_H
#define PLANNER_EXACT_REPAIR_H

#include "planner/candidate/search_context.h"

/* Gives the scorer, for its message, the one pipeline whose worst device lacks least by the bytes of its tensors, and climbs from
 * there (planner/exact/local_search.h) by the bytes that are lacking after lowering. What fits is kept. a: scratch. */
MUST_CHECK enum status repair_try(struct search_context *t, struct arena *a, const struct space *s,
                                struct error *err);

#endif
