/* planner/subsets.h - search on parts of the cluster; all other devices are idle.
 *
 * Presets use every device. The best plan may leave out a class of devices, some nodes or a device; the cheapest one often most of them. A
 * subset takes a number of devices of each class of the coarse search (planner/coarse/coarse.h), so that interchangeable ones count once.
 * Subsets: every class; all classes but one; the fastest classes together (for an objective or a limit of money, those of most speed for their
 * price); a half, a quarter … of each of these, down to one device of a class, and by money three quarters of each; all nodes but one of a
 * class; of few devices, all but one device; the devices of every plan found. By money also, behind every search, a device or a node of a class
 * more or less than the best plan uses: 0.8 % cheaper on 16 L40S and 16 RTX 3090 (docs/measurements.md, 11-27).
 *
 * The value of a subset is a bound at first: the time with every device busy all the time, and every device paid for. The coarse search takes the
 * subset of the best value: its bound becomes the estimate of its best candidate, and an estimated subset is searched. A subset whose value cannot
 * precede the best plan is skipped, and an estimate ends where its candidates cannot. Estimates of all subsets together have a budget of counted
 * work, and so have the searches. Presets (planner/baseline/baselines.h) are tried on the subsets in the order of their values, as far as the bound
 * may precede the best plan.
 *
 * By money the coarse search comes first, because the cheapest plans are often on few devices, where the bounds of all numbers of devices of a class
 * are equal. By time presets come first, and the coarse search of the whole cluster has tried idle devices already, so only the classes of its best
 * candidate are searched again (30 GPUs of four types: 8.8 % faster; docs/measurements.md, 11-27).
 */
#ifndef PLANNER_SUBSETS_H
#define PLANNER_SUBSETS_H

#include "planner/baseline/baselines.h"

/* Adds to t->incumbents, within t's budgets. r: of the whole cluster, which was searched before. O(classes² · log devices) subsets. */
MUST_CHECK enum status subsets_search(struct search_context *t, const struct baselines_request *r,
                                      struct error *err);

#endif
