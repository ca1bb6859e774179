/* planner/baseline/baselines.h - every baseline made, scored and put beside what the search finds.
 *
 * Of each family the settings with the best estimates are lowered and simulated, a few where devices are few and fewer where
 * they are many; the best of them stands for the family. Beside a search of 33 to 64 devices that is the first setting, then
 * whatever the family would try alone and is not estimated above the fastest plan of all, so that a search ends above no preset
 * that is made alone; with still more devices one setting, or none. Plans of one replica a device on thousands of devices are not
 * made: lowering would write each replica's operators down.
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
};
/* All baselines, or the one that the options name; out->baselines gets the best of each, or why there is none. What is of the
 * exact search's class is kept among the plans found, so that it prunes. */
MUST_CHECK enum status baselines_score(struct search_context *q, const struct baselines_request *r,
                                       struct search_result *out, struct error *err);
/* The families of grids on some devices (n_team, of the spaces' cluster) alone, each microbatch size one of n >= 1 spaces. What
 * by its estimate may beat the best plan kept is simulated, as evaluations and work last, and each family's best kept. */
MUST_CHECK enum status baselines_on(struct search_context *q, struct space *spaces, int32_t n,
                                    const int32_t *team, int32_t n_team, struct error *err);
/* Of the class that the exact search knows: contiguous layers a device, 1F1B, nothing else. */
bool baselines_plain(const struct plan *p);
/* Those that are kept after all, because no search may end with a plan slower than a baseline's. */
void baselines_keep(struct search_context *q, const struct search_result *out);
/* The one that the options name becomes the only plan kept. ERR_USAGE: unknown (lists them); ERR_INFEASIBLE: why not. */
MUST_CHECK enum status baselines_pick(struct search_context *q, struct search_result *out,
                                      struct error *err);

#endif
