/* planner/bound/pipeline_bound.h - closed-form lower bound of the iteration of one 1F1B pipeline.
 *
 * The path "update of stage 0, first forward down to stage s, all work of stage s, last backward up to stage 0, update" is a
 * cycle of one iteration, so the period is at least its length. A stage sends the gradient before its last weight gradients
 * and may recompute forwards before the gradient arrives. So another stage waits not for the whole backward B but for r, from
 * the gradient's arrival to the departure of the next one; b = B − recomputation, t = b − r:
 *   LB = max_s  Σ_{j<s}(F_j + r_j + 2 c_j) + span_s − t_s + U_0,
 *   span_s >= m (F_s + B_s) + max(0, R_s − (B_s − b_s) − (K_s − 1) F_s)   (only K_s forwards can run before it)
 *   span_s >= ceil(m / K_s) (F_s + R_s + b_s)                             (F of i+K waits for B of i)
 * R_s = Σ_{j>s}(F_j + r_j) + Σ_{l>=s} 2 c_l: the round trip below s; K_s: the warm-up count. Stage 0 sends no gradient: r_0 =
 * b_0. Also, for every stage, m (F_s + B_s) + U_s.
 */
#ifndef PLANNER_BOUND_PIPELINE_BOUND_H
#define PLANNER_BOUND_PIPELINE_BOUND_H

#include "core/base/units.h"

#include <stdint.h>

struct bound_stage {
    int64_t forward_ns, backward_ns, update_ns; /* backward: B, all of it */
    int64_t recompute_ns;                       /* recomputation, part of B */
    int64_t return_ns;                          /* r */
    int64_t transfer_ns; /* c: to the next stage, one direction, occupancy + latency; 0 for the last */
    int32_t in_flight;   /* K */
};
/* The bound in ns. *path_ns: the largest term that ends with the update of stage 0, which a gradient all-reduce delays. */
int64_t bound_pipeline(const struct bound_stage *stages, int32_t n, int64_t microbatches,
                       int64_t *path_ns);

/* Lower bound in ns of a ring all-reduce of `bytes` over n members: the time of its slowest link alone. */
int64_t bound_ring(double bytes, int32_t n, double slowest_Bps, int64_t slowest_latency_ns);

#endif
