/* planner/search.h - the planner's entry point: the best plan of a job on a cluster, with a lower bound and, where possible, a
 * proof.
 *
 * Input: a job, a cluster, a profile and options. Output: plans in the order of the objective, baselines, a dual bound and its
 * gap.
 *
 * Up to SEARCH_DEVICES_MAX devices: branch and bound (planner/exact/exact.h) over SEARCH_CLASS: every subset of the devices,
 * every partition of it into replicas, every order of a replica's devices, every contiguous split of the layers, every integer
 * share of the microbatches, each microbatch size of the job, 1F1B. A stage recomputes only if it does not fit otherwise; if
 * it still does not fit, its receive buffers shrink to one message ahead and then its warm-up count falls. `exact` is set if
 * the best plan of this class and the 15 after it (more if `top` is larger) are proved; else `stopped` names the limit that
 * ended the search.
 *
 * Teams of equal pipelines over classes of equal nodes, whose stages may shard operators over the GPUs of a node (planner/coarse/coarse.h),
 * are searched first for any number of devices. With more than SEARCH_DEVICES_MAX devices the search is never exact; up to 12 the class above
 * is still searched, from the incumbents (planner/exact/exact.c). Budgets are spent in rounds: 1,250, 20,000, 40,000, 80,000 … evaluations, the
 * first in any case. A budget between two of them is the smaller one.
 *
 * Up to 12 devices the best plans of both are then improved by local search over one table of moves (planner/local_search): stages and replicas
 * merged, split and exchanged, devices and sequences moved, other microbatch sizes, ZeRO and recomputation.
 *
 * Parts of the cluster, with all other devices idle, are searched behind them (planner/subsets.h).
 *
 * Where the objective or a limit is money, every round is made by time first, without limits, and its plans are candidates: an answer by cost is
 * never dearer than the answer by time. Then parts of the cluster, and up to 12 devices the class, are searched by money. One budget of counted
 * work holds for both; each has the evaluations.
 *
 * With the popularity of experts in the job (core/model/model.h, struct expert_block) the job is searched with equal shares of the tokens too,
 * and the experts of the best plans of both searches are placed by popularity (planner/experts/place.h): twice the work.
 *
 * For any number of devices lower_bound_ns holds for every plan of bound_class.
 *
 * In the class, a candidate whose lower bound (planner/bound/pipeline_bound.h) is not below the incumbent is never built; the
 * others are lowered and simulated. The simulator alone ranks plans. Incumbents are then refined by other warm-up counts,
 * gradient buckets and replica orders (planner/schedule/refine.h), which leaves the class and only shortens the iteration.
 * Returned plans differ from each other in layout (planner/candidate/incumbents.h).
 *
 * Deterministic: interchangeable devices are used in index order, ties follow the order of enumeration, and budgets are counts.
 */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "core/base/error.h"
#include "planner/candidate/types.h"
#include "profiles/profile.h"

/* ERR_INFEASIBLE: no plan fits (with the nearest miss), or the requested baseline cannot be built. ERR_USAGE: unknown baseline
 * (the message lists them), or an objective without its limit. ERR_INPUT: an objective that needs prices, and no type has one. */
MUST_CHECK enum status search_plans(struct arena *a, const struct job *j, const struct cluster *c,
                                    const struct profile *p, const struct search_options *o,
                                    struct search_result *out, struct error *err);

#endif
