/* planner/exact/repair.h - repair if no plan fits: a local search that minimises missing memory from the nearest miss. */
#ifndef PLANNER_EXACT_REPAIR_H
#define PLANNER_EXACT_REPAIR_H

#include "planner/candidate/search_context.h"

/* Scores the pipeline whose worst device lacks the fewest tensor bytes (its reason becomes the scorer's message), then
 * minimises the bytes missing after lowering by local search (planner/exact/local_search.h). Plans that fit are added to
 * t->incumbents. a: scratch. */
MUST_CHECK enum status repair_try(struct search_context *t, struct arena *a, const struct space *s,
                                  struct error *err);

#endif
