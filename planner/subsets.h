/* planner/subsets.h - search on parts of the cluster; all other devices are idle.
 *
 * Presets use every device. The best plan may leave out a class of devices, some nodes or a device; the cheapest one often most of them. A
 * subset takes a number of devices of each class of the coarse search (planner/coarse/coarse.h), so that interchangeable ones count once.
 * Subsets: every class; all classes but one; the fastest classes together (for an objective or a limit of money, those of most speed for their
 * price); a half, a quarter … of each of these; all nodes but one of a class; of few devices, all but one device; the devices of every plan found.
 *
 * A subset is skipped if it could not beat the best plan even with every device busy all the time and every device paid for. The others are
 * searched in that order: presets first (planner/baseline/baselines.h), then the coarse search in the order of its estimates, until one brings no
 * better plan. By money that is done for all subsets. By time the coarse search of the whole cluster has tried idle devices already, so only the
 * classes of its best candidate are searched again (30 GPUs of four types: 8.8 % faster; docs/measurements.md, 11-27).
 */
#ifndef PLANNER_SUBSETS_H
#define PLANNER_SUBSETS_H

#include "planner/baseline/baselines.h"

/* Adds to t->incumbents, within t's budgets. r: of the whole cluster, which was searched before. O(classes² · log nodes) subsets. */
MUST_CHECK enum status subsets_search(struct search_context *t, const struct baselines_request *r,
                                      struct error *err);

#endif
