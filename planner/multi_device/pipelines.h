/* planner/multi_device/pipelines.h - pipelines of stages on arbitrary sets of devices, ranked by an estimate; starts of
 * planner/multi_device/multi_device_stage.
 *
 * Units are devices or, if they are more than SPACE_DEVICES_MAX, the devices of one type on one node. Dynamic program over sets
 * of units S and cuts i < j of the layers (at most PIPELINE_CUTS of about equal work):
 *   f(D + S, j) = min f(D, i) + t(S, i, j) + 2 c,   t(S, i, j) + g / M <= T,
 * for T from the fastest single stage down until no pipeline is feasible; a plan's estimate is f + (M - 1) T. t: time of the
 * slowest device of S with balanced sequences, interpolated for few sequences; c: the fastest message from D to S; g: a ring
 * all-reduce of the gradients over S.
 * Symmetry is broken: equal devices are used in index order. The estimate only ranks; plans are simulated by the caller.
 */
#ifndef PLANNER_MULTI_DEVICE_PIPELINES_H
#define PLANNER_MULTI_DEVICE_PIPELINES_H

#include "core/plan/plan.h"
#include "planner/candidate/space.h"

/* plans: (most), by rising estimate; returns their number. few: the space of the smallest microbatch size, may be s itself.
 * None for more than SPACE_DEVICES_MAX units or MULTI_DEVICE_MEMBERS_MAX devices. O(3^units · cuts²) for each of at most
 * PIPELINE_PERIODS values of T. */
enum { PIPELINE_CUTS = 16, PIPELINE_CUTS_MANY = 10, PIPELINE_PERIODS = 16 };
int32_t multi_device_pipelines(struct arena *a, const struct space *s, const struct space *few,
                               int32_t most, struct plan *plans);

#endif
