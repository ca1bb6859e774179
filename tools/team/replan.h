/* tools/team/replan.h - an old plan on a changed cluster, for `plan --from` and `whatif`.
 *
 * Devices of the old and the new cluster are matched by name. The search starts from the old plan (search_options.from), because
 * a small change is then planned faster than from scratch.
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
struct server_counts;

/* *out: the plan with its stages on the devices of the same names in cluster c, which it then embeds. *missing: names of absent
 * devices ("b.0, c.0"), and then *out is not filled; NULL: none. */
void replan_carry(struct arena *a, const struct plan *p, const struct cluster *c, struct plan *out,
                  const char **missing);

/* The plan as it stands on cluster c, for job j: *out, which embeds both, and its simulated time *ns. 0: it cannot run there, for *why (a
 * device that it uses is missing, memory, a batch or a microbatch size that the job has not). *staleness: of its parameter servers; NULL: not
 * needed. Answers to nested questions are compared so: a plan of one question that is also a plan of another is never faster than the
 * answer to the other.
 * Cost: one lowering and one simulation. */
MUST_CHECK enum status replan_as_it_stands(struct arena *a, const struct plan *p,
                                           const struct job *j, const struct cluster *c,
                                           const struct profile *profile, struct plan *out,
                                           int64_t *ns, struct server_counts *staleness, const char **why,
                                           struct error *err);

/* used: (n_devices) of the plan's cluster; marks those that hold a stage, a shard of one or a parameter server. Returns their number. */
int32_t replan_mark(const struct plan *p, bool *used);

/* The texts of a list of at least one, joined by commas; a device named twice is removed once. */
const char *replan_joined(struct arena *a, const struct texts *list);

/* The cluster of `plan --from`: that of the plan with the changes of both lists, additions first, because --without may name added
 * devices. If a node is added, the links that the profile measured are written into the cluster as numbers. */
MUST_CHECK enum status replan_team(struct arena *a, const struct plan *from,
                                   const struct profile *profile, const struct texts *with,
                                   const struct texts *without, struct cluster *out,
                                   struct error *err);

#endif
