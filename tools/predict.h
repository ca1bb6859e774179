/* tools/predict.h - a prediction whose trace and explanation stay within the memory that is allowed for them.
 *
 * A trace's readers hold all spans in memory. Where they are more than options.trace_most_bytes allow, the trace holds one replica
 * of each class and one steady step, and what is explained is the simulation of one replica of each class
 * (sim/engine/representatives.h). Where even these are too large the error of the whole stands.
 */
#ifndef TOOLS_PREDICT_H
#define TOOLS_PREDICT_H

#include "core/plan/plan.h"
#include "sim/engine/sim.h"

struct arena;

struct prediction {
    struct program program;
    struct sim_result result; /* of all devices */
    bool reduced; /* its trace is of one replica of each class and one step, without --fold */
    /* What is explained, with a trace in memory: of all devices, of those that stand for others where devices are folded, or
     * of one replica of each class. */
    const struct program *explained;
    struct sim_result explained_result;
    bool
        by_replicas; /* of one replica of each class: times are near those of `result`, not equal */
};
/* o->keep_trace, o->beside_trace and o->fold as the user asked; explains: explained is filled. ERR_RESOURCE. */
MUST_CHECK enum status predict(struct arena *a, const struct plan *plan,
                               const struct profile *profile, const struct sim_options *o,
                               bool explains, struct prediction *out, struct error *err);

#endif
