/* tools/predict.h - a prediction whose trace and explanation stay within a memory limit.
 *
 * Readers of a trace hold all of its spans in memory. If these exceed options.trace_most_bytes, the trace is reduced to one steady
 * step of one replica of each class, and the explanation is that of a simulation of one step of one replica of each class
 * (sim/engine/representatives.h). If even the reduced one is too large, the error for the full one is returned.
 */
#ifndef TOOLS_PREDICT_H
#define TOOLS_PREDICT_H

#include "profiles/device_speed.h"
#include "core/plan/plan.h"
#include "sim/metrics.h"
#include "sim/engine/sim.h"

struct arena;

struct prediction {
    struct program program;
    struct sim_result result; /* of all devices */
    bool reduced; /* the trace has only one step of one replica of each class, without --fold */
    /* Input of the explanation, with a trace in memory: all devices, or the representatives if devices are folded, or one
     * replica of each class. */
    const struct program *explained;
    struct sim_result explained_result;
    bool
        by_replicas; /* one replica of each class: times are close to those of `result`, not equal */
};
/* o->keep_trace, o->beside_trace and o->fold as the user asked; explains: explained is filled. known_ns > 0: the plan's iteration
 * time is known, and is the only result of all devices if one replica of each class is explained; 0: all devices are simulated too.
 * ERR_RESOURCE. */
MUST_CHECK enum status predict(struct arena *a, const struct plan *plan,
                               const struct profile *profile, const struct sim_options *o,
                               bool explains, int64_t known_ns, struct prediction *out,
                               struct error *err);

/* The metrics of a plan. profile NULL: without a simulation, which leaves the use of devices unknown and takes the memory from
 * lowering. known_ns > 0: the plan's iteration time is known, and a plan of more than COMMON_REPLICAS_ONE_BY_ONE replicas is simulated
 * by one replica of each class; 0: the simulated time counts. tokens: of the run, 0: the job's own. Memory is not checked. */
void predict_metrics(struct arena *a, const struct plan *plan, const struct profile *profile,
                     int64_t known_ns, int64_t tokens, struct metrics *out);

#endif
