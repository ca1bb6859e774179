/* planner/bound.h - what one pipeline cannot beat (schedules.md's bounds, for steady state).
 *
 * The path "update of stage 0, first forward down to stage s, all of stage s, last backward up to stage 0, update" is
 * a cycle of one iteration, so the period is at least its length:
 *   LB = max_s  Σ_{j<s}(F_j + c_j) + span_s + Σ_{j<s}(B_j + c_j) + U_0,
 *   span_s >= m (F_s + B_s) + max(0, R_s − (K_s − 1) F_s)      (only K_s forwards can run before the first backward)
 *   span_s >= ceil(m / K_s) (F_s + R_s + B_s)                  (F of i+K waits for B of i)
 * with R_s = Σ_{j>s}(F_j + B_j) + Σ_{l>=s} 2 c_l, the round trip below s, and K_s the warm-up count. Also m(F_s+B_s)+U_s.
 */
#ifndef PLANNER_BOUND_H
#define PLANNER_BOUND_H

#include <stdint.h>

struct bound_stage {
    int64_t forward_ns, backward_ns, update_ns;
    int64_t transfer_ns; /* to the next stage (one way, occupancy + latency); 0 for the last */
    int32_t in_flight;   /* K */
};
int64_t bound_pipeline(const struct bound_stage *stages, int32_t n, int64_t microbatches);

/* Ring all-reduce of bytes over n members whose slowest hop has this occupancy per byte: what the slowest link alone needs. */
int64_t bound_ring(double bytes, int32_t n, double slowest_Bps, int64_t slowest_latency_ns);

#endif
