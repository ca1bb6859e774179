/* tools/team/replan.h - an old plan and a team that has changed: the plan as it stands there, and the best one there.
 *
 * `plan --from` and `whatif` are this. Devices of both teams are the same where their names are. The search starts from
 * the old plan (search_options.from), so that a small change is planned faster than from nothing.
 */
#ifndef TOOLS_TEAM_REPLAN_H
#define TOOLS_TEAM_REPLAN_H

#include "core/base/error.h"
#include "core/plan/plan.h"
#include "planner/search.h"
#include "profiles/profile.h"
#include "tools/options.h"
#include "tools/team/edit.h"

struct arena;

/* The plan with its stages on the devices of the same names of another cluster, which it then embeds. Devices that are
 * not there are named in *missing ("b.0, c.0"), and then *out is not filled; NULL where none is missing. */
void replan_carry(struct arena *a, const struct plan *p, const struct cluster *c, struct plan *out,
                  const char **missing);

/* Marks the devices that have a stage, or a part of one; (n_devices) of the plan's cluster. How many. */
int32_t replan_mark(const struct plan *p, bool *used);

/* All texts of a list of at least one, commas between them: devices that two of them name go once. */
const char *replan_joined(struct arena *a, const struct texts *list);

/* What plan --from PLAN wants: the job and the cluster of the plan, changed one after the other as the lists say, additions
 * first, so that what is taken away or joined may be a part of them; links measured by the profile are written into the cluster
 * where a node is added. */
MUST_CHECK enum status replan_team(struct arena *a, const struct plan *from,
                                   const struct profile *profile, const struct texts *with,
                                   const struct texts *without, struct cluster *out,
                                   struct error *err);

#endif
