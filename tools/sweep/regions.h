/* tools/sweep/regions.h - where along an axis which training is the best: runs of neighbouring points with one answer (`sweep --allow`).
 *
 * At each point the synchronous plan that was found ("hierarchical" if it shards state inside nodes) is compared with those of the strategies:
 * by effective time, an iteration divided by progress (tools/strategy/strategies.h), or by effective cost where cost is the objective; and by
 * time alone. The axis is that with the most values, as in the picture; every combination of the others has regions of its own.
 */
#ifndef TOOLS_SWEEP_REGIONS_H
#define TOOLS_SWEEP_REGIONS_H

#include "tools/sweep/sweep.h"

struct arena;
struct json;

/* The best of a point with a plan; the synchronous one, if it is less than 1 % worse. by_time: by time alone. */
struct sweep_line regions_best(const struct sweep_point *x, const struct search_options *o, bool by_time);
/* A block of lines for each combination of the other axes: range of values, name, times, the progress from which on the answer holds against the
 * synchronous plan, and the plan at the first of its points; then the effective times of all trainings at all points, if they fit a line. Nothing without
 * --allow. */
void regions_print(struct arena *a, const struct sweep_grid *s, const struct search_options *o, bool all);
/* The list "regions", empty without --allow. */
void regions_json(struct arena *a, const struct sweep_grid *s, const struct search_options *o, struct json *j);

#endif
