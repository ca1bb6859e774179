/* planner/search_check.h - what a search is asked for, against the cluster that it is asked of. */
#ifndef PLANNER_SEARCH_CHECK_H
#define PLANNER_SEARCH_CHECK_H

#include "planner/candidate/types.h"

/* Whether GPUs may be taken one by one, and whether they may be taken together. */
bool search_check_takes_one(const struct search_options *o);
bool search_check_takes_several(const struct search_options *o);
/* ERR_INPUT: prices or equal GPUs that the options want and the cluster has not; ERR_USAGE: an objective without its limit. */
MUST_CHECK enum status search_check_objective(const struct cluster *c,
                                              const struct search_options *o, struct error *err);
MUST_CHECK enum status search_check_tensor(const struct cluster *c, const struct search_options *o,
                                           struct error *err);

#endif
