/* planner/subsets.h - search on parts of the cluster; all other devices are idle.
 *
 * Presets use every device. The best plan may leave out a class of devices, some nodes or a device; the cheapest one often most of them. A
 * subset takes a number of devices of each class of the coarse search (planner/coarse/coarse.h), so that interchangeable ones count once. Subsets:
 * every class alone, without one class, and the fastest classes (for an objective or a limit of money, those of most speed for their price)
 * together; of each a half, a quarter …; the cluster without one node of a class; of few devices also without one device, and the devices of every
 * plan found. A subset is left out if all its devices, computing all the time, are no better than the best plan, all of them paid for. The others
 * are searched in that order: presets on them (planner/baseline/baselines.h), within t's budgets. Then the coarse search in the order of its
 * estimates, until one brings no better plan: by money on all subsets; by time, where that of the whole cluster has had the teams that leave
 * devices idle, on the classes of its best candidate only (30 GPUs of four types: 8.8 % faster; docs/measurements.md, 11-27).
 */
#ifndef PLANNER_SUBSETS_H
#define PLANNER_SUBSETS_H

#include "planner/baseline/baselines.h"

/* Adds to t->incumbents, within t's budgets. r: of the whole cluster, which was searched before. O(classes² · log nodes) subsets. */
MUST_CHECK enum status subsets_search(struct search_context *t, const struct baselines_request *r,
                                      struct error *err);

#endif
