/* planner/baseline/subteam.h - textbook plans of a part of the team.
 *
 * Presets use every device, so one bad device spoils them all, and what only they know (replicas that divide what they hold) is
 * never seen of the devices around it. So after an exact search presets are made of the teams without one of the devices, and of
 * those that the best plans use. A device more then never costs what leaving it idle would not.
 */
#ifndef PLANNER_BASELINE_SUBTEAM_H
#define PLANNER_BASELINE_SUBTEAM_H

#include "planner/candidate/search_context.h"

/* n >= 0 spaces of the same cluster of at most SPACE_TABLES_MAX devices; of plans kept in t->incumbents and t->diverse_starts. Spends
 * evaluations and, where work ends, so much of it beside what is left. */
MUST_CHECK enum status subteam_try(struct search_context *t, struct space *spaces, int32_t n,
                                   int64_t work_ns, struct error *err);

#endif
