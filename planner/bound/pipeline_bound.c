#include "planner/bound/pipeline_bound.h"

#include "core/base/units.h"

int64_t bound_pipeline(const struct bound_stage *stages, int32_t n, int64_t microbatches,
                       int64_t *path_ns)
{
    int64_t round_trip = 0, path = 0, alone = 0, down = 0;
    for (int32_t s = 0; s + 1 < n; s++)
        down += stages[s].forward_ns + stages[s].return_ns + 2 * stages[s].transfer_ns;
    for (int32_t s = n - 1; s >= 0; s--) { /* down: head and tail of stage s; round_trip: R_s */
        const struct bound_stage *t = &stages[s];
        int64_t back = t->backward_ns - t->recompute_ns, k = t->in_flight;
        int64_t work = microbatches * (t->forward_ns + t->backward_ns);
        int64_t gap = units_max(0, round_trip - t->recompute_ns - (k - 1) * t->forward_ns);
        int64_t tokens = (microbatches + k - 1) / k * (t->forward_ns + round_trip + back);
        int64_t span = units_max(work + gap, tokens) - (back - t->return_ns);
        path = units_max(path, down + span + stages[0].update_ns);
        alone = units_max(alone, work + t->update_ns);
        if (s > 0) {
            const struct bound_stage *above = &stages[s - 1];
            round_trip += t->forward_ns + t->return_ns + 2 * above->transfer_ns;
            down -= above->forward_ns + above->return_ns + 2 * above->transfer_ns;
        }
    }
    *path_ns = path;
    return units_max(path, alone);
}

int64_t bound_ring(double bytes, int32_t n, double slowest_Bps, int64_t slowest_latency_ns)
{
    if (n < 2) return 0;
    double chunk_s = bytes / n / slowest_Bps;
    return (int64_t)(2.0 * (n - 1) * chunk_s * NS_PER_S) + slowest_latency_ns;
}
