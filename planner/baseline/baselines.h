/* planner/baseline/baselines.h - construction and scoring of all baselines, and their comparison with the search.
 *
 * Of each family the settings with the best estimates are lowered and simulated, fewer on more devices; the best represents
 * the family. Beside a search of 33 to 64 devices the first setting is simulated, then every setting that the family would try
 * alone and whose estimate is not above the fastest plan, so that no baseline requested alone beats the search. With still
 * more devices one setting is simulated, or none. If a plan is known before (known_ns), every family has its first setting simulated,
 * and more only if their estimates are below it. Plans of one replica per device on thousands of devices are not made,
 * because lowering would write out each replica's operators.
 */
#ifndef PLANNER_BASELINE_BASELINES_H
#define PLANNER_BASELINE_BASELINES_H

#include "planner/candidate/search_context.h"

struct baselines_request {
    const struct job *job;
    const struct cluster *cluster;
    const struct profile *profile;
    const int64_t *sizes; /* (n_sizes) microbatch sizes */
    int32_t n_sizes;
    /* Of a plan known before; 0: none. Beside a search each family's first setting is simulated, then those estimated below. */
    int64_t known_ns;
};
/* Scores all baselines, or the one named by the options. out->baselines: the best plan of each family, or the reason why there
 * is none. Plans of the exact search's class become incumbents, so that they prune. */
MUST_CHECK enum status baselines_score(struct search_context *q, const struct baselines_request *r,
                                       struct search_result *out, struct error *err);
/* Grid families on a subset of the devices, team: (n_team) of the spaces' cluster, one of n >= 1 spaces per microbatch size.
 * Settings estimated below the incumbent are simulated within t's budgets; the best of each family is kept. */
MUST_CHECK enum status baselines_on(struct search_context *q, struct space *spaces, int32_t n,
                                    const int32_t *team, int32_t n_team, struct error *err);
/* Whether the plan is in the exact search's class: contiguous layers per device, 1F1B, nothing else. */
bool baselines_plain(const struct plan *p);
/* Adds all feasible baselines to the incumbents, so that no search returns a plan slower than a baseline. */
void baselines_keep(struct search_context *q, const struct search_result *out);
/* The baseline named by the options becomes the only incumbent. ERR_USAGE: unknown name (the message lists all). ERR_INFEASIBLE
 * with the reason. */
MUST_CHECK enum status baselines_pick(struct search_context *q, struct search_result *out,
                                      struct error *err);

#endif
