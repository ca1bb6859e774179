/* sim/pipeline/program.h - a priced schedule as a program for the event loop.
 *
 * sim_run times the schedules that sim/pipeline/static cannot (several chunks on one occupied link, links shared fairly). Each
 * virtual stage becomes a stage of core/program/program with the procedures F, I and W (or B) and U of one operator each; their
 * durations are rows of a generated profile. Each connection from device to device is a link of 1 GB/s, so that a message of n
 * bytes occupies it for n nanoseconds; a message without occupancy has a link of its own. Posted receives and buffers are so
 * numerous that they never limit. Activations are buffer rings: F allocates, I and W release; messages have no bytes of memory.
 * sim_run and static_report therefore agree in times and in peaks.
 */
#ifndef SIM_PIPELINE_PROGRAM_H
#define SIM_PIPELINE_PROGRAM_H

#include "core/cluster/cluster.h"
#include "sim/cost.h"
#include "sim/engine/sim.h"
#include "sim/pipeline/static.h"

struct pipeline_program {
    struct program program;
    struct profile profile;
    struct cluster cluster;
    struct cost *cost;
};

/* update_ns: (n_stages) duration of the update after a device's last operation, NULL: 0; sharing: of occupied links. Run it with
 * sim_run(a, &out->program, out->cost, …) and do not move *out. ERR_INPUT: as schedule_check and pipeline_check; a stage with B
 * for some microbatches and I for others; memory changes of F, I and W that do not add up to 0; different latencies on one
 * occupied connection. O(operations). */
MUST_CHECK enum status pipeline_program(struct arena *a, const struct schedule *s,
                                        const struct pipeline *p, const int64_t *update_ns,
                                        enum link_sharing sharing, struct pipeline_program *out,
                                        struct error *err);

/* static_report by the cheapest exact method: sim/pipeline/static if links are FIFO and nothing contends (*events false), else
 * the event loop (*events true). With trace not NULL the event loop runs in any case and its trace of one step is kept. */
MUST_CHECK enum status pipeline_report(struct arena *a, const struct schedule *s,
                                       const struct pipeline *p, enum link_sharing sharing,
                                       struct static_report *out, bool *events,
                                       struct trace **trace, struct error *err);

#endif
