/* planner/exact/repair.h - where no plan fits: the plan that lacks least memory, and a local search from it towards one that fits. */
#ifndef PLANNER_EXACT_REPAIR_H
#define PLANNER_EXACT_REPAIR_H

#include "planner/candidate/search_context.h"

/* Gives the scorer, for its message, the one pipeline whose worst device lacks least by the bytes of its tensors, and starts a local search
 * there (planner/exact/local_search.h) whose objective is the bytes that are lacking after lowering. What fits is kept. a: scratch. */
MUST_CHECK enum status repair_try(struct search_context *t, struct arena *a, const struct space *s,
                                  struct error *err);

#endif
