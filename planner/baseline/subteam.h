/* planner/baseline/subteam.h - textbook plans on subsets of the devices.
 *
 * A baseline uses every device, so one slow device degrades all of them, and ZeRO (replicas with sharded state) is never tried
 * on the other devices. So after an exact search the baselines are also made on all devices but one, for each of them, and on
 * the devices of the best plans. An additional device then never costs more than leaving it idle.
 */
#ifndef PLANNER_BASELINE_SUBTEAM_H
#define PLANNER_BASELINE_SUBTEAM_H

#include "planner/baseline/baselines.h"

/* Adds to t->incumbents. s: a space of the task's cluster of at most SPACE_TABLES_MAX devices; subsets come from t->incumbents.
 * Within t's budgets. */
MUST_CHECK enum status subteam_try(struct search_context *t, const struct baselines_request *r,
                                   const struct space *s, struct error *err);

#endif
