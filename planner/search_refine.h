/* planner/search_refine.h - orders of the best plans of a search by named schedules (planner/schedule/plan.h). */
#ifndef PLANNER_SEARCH_REFINE_H
#define PLANNER_SEARCH_REFINE_H

#include "core/base/error.h"
#include "planner/candidate/search_context.h"

/* t->incumbents become the refined ones, within t's budgets. spaces: (n) of the microbatch sizes; plans of other sizes remain as they are. */
MUST_CHECK enum status search_refine(struct search_context *t, const struct cluster *c,
                                     const struct space *spaces, int32_t n, struct error *err);

#endif
