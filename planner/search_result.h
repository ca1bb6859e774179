/* planner/search_result.h - the result of a search: the incumbents within the limits, or the reason for their absence. */
#ifndef PLANNER_SEARCH_RESULT_H
#define PLANNER_SEARCH_RESULT_H

#include "planner/bound/any.h"
#include "planner/candidate/search_context.h"
#include "profiles/profile.h"

void search_result_begin(struct arena *a, struct search_result *out); /* no plan yet, and no baseline */
/* Whether a plan that was found, or a baseline, lies outside the plans that a bound of such stages covers. */
bool search_result_outside(const struct search_result *out, enum bound_stages stages);
/* Places experts by popularity, if the job states any. Fills everything but the lower bounds. ERR_INFEASIBLE: no plan fits, or none within the limits of rate and cost. ERR_INTERRUPTED:
 * the search was stopped before any plan was found. */
MUST_CHECK enum status search_result_conclude(struct search_context *q, const struct job *j, const struct cluster *c, const struct profile *p,
                                              struct search_result *out, struct error *err);
/* The text of an error, with the devices that no link joins, if no plan fits and there are some. */
const char *search_result_why(struct arena *a, const struct cluster *c, enum status st,
                              const char *text);

#endif
