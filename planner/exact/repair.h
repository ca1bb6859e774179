/* planner/exact/repair.h - if no plan was found: the pipelines that lack the least memory. */
#ifndef PLANNER_EXACT_REPAIR_H
#define PLANNER_EXACT_REPAIR_H

#include "planner/candidate/search_context.h"

/* Scores the pipeline whose fullest device lacks the fewest bytes of tensors, of any and of each number of stages (dynamic program over
 * subsets of the devices). Its reason becomes the scorer's message; plans that fit are added to t->incumbents. a: scratch. */
MUST_CHECK enum status repair_try(struct search_context *t, struct arena *a, const struct space *s,
                                  struct error *err);

#endif
