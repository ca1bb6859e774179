/* planner/multi_device/pipelines.h - pipelines of stages on any sets of devices, by an estimate; where planner/multi_device/multi_device_stage begins.
 *
 * Units are devices, or where they are more than SPACE_DEVICES_MAX the devices of one type on one node. Over sets of units S and cuts i < j of the layers (at most PIPELINE_CUTS of them, of about equal work):
 *   f(D + S, j) = min f(D, i) + t(S, i, j) + 2 c,   t(S, i, j) + sums / M <= T,
 * for T from the fastest single stage down until nothing is left; a plan is worth f + (M - 1) T. t: the slowest device of S, its
 * sequences balanced, times of few sequences interpolated; c: the fastest message from D to S; sums: a ring of S for the gradients.
 * Devices that are alike are taken in index order. Estimates only rank: what is made is simulated.
 */
#ifndef PLANNER_MULTI_DEVICE_PIPELINES_H
#define PLANNER_MULTI_DEVICE_PIPELINES_H

#include "core/plan/plan.h"
#include "planner/candidate/space.h"

/* Most promising first; plans: (most). few: the space of the fewest sequences there is, may be s itself. None where units
 * are more than SPACE_DEVICES_MAX, or devices than MULTI_DEVICE_MEMBERS_MAX. O(3^units · cuts²) for every T, of which there are at most PIPELINE_PERIODS. */
enum { PIPELINE_CUTS = 16, PIPELINE_CUTS_MANY = 10, PIPELINE_PERIODS = 16 };
int32_t multi_device_pipelines(struct arena *a, const struct space *s, const struct space *few,
                               int32_t most, struct plan *plans);

#endif
