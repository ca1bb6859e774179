/* planner/baselines.h - every baseline made, scored and put beside what the search finds. */
#ifndef PLANNER_BASELINES_H
#define PLANNER_BASELINES_H

#include "planner/tries.h"

/* Each baseline at this microbatch size; out->baselines keeps the best over all sizes scored so far, or why it is none. What
 * fits is kept among the plans found too. scratch: filled. */
MUST_CHECK enum status baselines_score(struct tries *q, struct arena *scratch,
                                       const struct space *s, struct search_result *out,
                                       struct error *err);
/* The one that the options name becomes the only plan kept. ERR_USAGE: unknown (lists them); ERR_INFEASIBLE: why not. */
MUST_CHECK enum status baselines_pick(struct tries *q, struct search_result *out,
                                      struct error *err);

#endif
