/* planner/bound/pipeline_bound.h - what one pipeline cannot beat.
 *
 * The path "update of stage 0, first forward down to stage s, all of stage s, last backward up to stage 0, update" is
 * a cycle of one iteration, so the period is at least its length. A stage hands the gradient on before its last weight
 * gradients, and computes forwards again before it has the gradient, so what another stage waits for is not the whole
 * backward B but r, from the gradient's arrival until it leaves; b = B − (what runs again), t = b − r:
 *   LB = max_s  Σ_{j<s}(F_j + r_j + 2 c_j) + span_s − t_s + U_0,
 *   span_s >= m (F_s + B_s) + max(0, R_s − (B_s − b_s) − (K_s − 1) F_s)   (only K_s forwards can run before it)
 *   span_s >= ceil(m / K_s) (F_s + R_s + b_s)                             (F of i+K waits for B of i)
 * with R_s = Σ_{j>s}(F_j + r_j) + Σ_{l>=s} 2 c_l, the round trip below s, and K_s the warm-up count. Stage 0 hands
 * nothing on: r_0 = b_0. Also, for every stage, m (F_s + B_s) + U_s.
 */
#ifndef PLANNER_BOUND_PIPELINE_BOUND_H
#define PLANNER_BOUND_PIPELINE_BOUND_H

#include "core/base/units.h"

#include <stdint.h>

struct bound_stage {
    int64_t forward_ns, backward_ns, update_ns; /* backward: B, all of it */
    int64_t recompute_ns;                       /* of B, what runs again */
    int64_t return_ns;                          /* r */
    int64_t transfer_ns; /* to the next stage (one way, occupancy + latency); 0 for the last */
    int32_t in_flight;   /* K */
};
/* *path_ns: the part of it that ends with the update of stage 0, which a sum over replicas delays. */
int64_t bound_pipeline(const struct bound_stage *stages, int32_t n, int64_t microbatches,
                       int64_t *path_ns);

/* Ring all-reduce of bytes over n members whose slowest hop has this occupancy per byte: what the slowest link alone needs. */
int64_t bound_ring(double bytes, int32_t n, double slowest_Bps, int64_t slowest_latency_ns);

#endif
