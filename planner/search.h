/* planner/search.h - the best plan of a job on a cluster: proved where that can be, searched for everywhere.
 *
 * Up to SEARCH_DEVICES_MAX devices a class of plans is searched to its end, or as far as the work allows (planner/exact/exact.h): every
 * choice of devices, every way to part them into replicas, every order of the devices of a replica, every contiguous split of the
 * layers over them, every integer share of the microbatches, each microbatch size of the job; 1F1B orders. A stage recomputes
 * only where it would not fit otherwise, and then, where it still does not, receives one message ahead and takes fewer warm-ups.
 * `exact` says that the best of this class and the 31 behind it (more where more are asked for) are known; `stopped` what ended
 * the search otherwise. With more devices, and where GPUs may be taken together, plans are made of device classes and
 * templates (planner/fleet/fleet.h) and never exact; up to 12 devices taken one by one are then searched in the class above as well, from
 * what was found (planner/exact/exact_walk.c). For any number lower_bound_ns holds for every plan of bound_class.
 * In the class what cannot beat the incumbent by a lower bound (planner/bound/pipeline_bound.h) is never built; what survives is
 * lowered and scored by the simulator, which alone decides. Those kept then try other warm-up counts, gradient
 * buckets and orders of the replicas (outside the class, only ever better, not exact), and the best are handed out:
 * each differs from the others in layout (planner/candidate/incumbents.h). Last, of up to 8 devices, stages that are shared or neighbours become
 * sharded stages (planner/spmd_stage/spmd_stage.h), where that is faster; outside the class as well. Interchangeable devices are used in index order.
 * Ties are broken by the order of enumeration, so that a search repeats to the byte.
 */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "core/base/error.h"
#include "planner/candidate/types.h"
#include "profiles/profile.h"

/* ERR_INFEASIBLE with the nearest miss where nothing fits, or no baseline of that name can be made; ERR_USAGE: unknown baseline
 * (lists them), an objective without its limit; ERR_INPUT: an objective that wants prices where no type has one. */
MUST_CHECK enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                                    const struct profile *p, const struct search_options *o,
                                    struct search_result *out, struct error *err);

#endif
