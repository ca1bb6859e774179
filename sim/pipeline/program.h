/* sim/pipeline/program.h - a schedule with its prices as a program, for the event loop.
 *
 * What sim/pipeline/static cannot time (several chunks on one occupied link, links shared fairly) runs in sim_run: each virtual
 * stage becomes a stage of core/program/program with the procedures F, I and W (or B) and U of one operator each, whose times are
 * rows of a profile made for the purpose. Each way from device to device is a link of 1 GB/s, so that a message of n bytes
 * occupies it for n nanoseconds; a message without occupancy has a link of its own. Receives are posted and buffers
 * counted so generously that they never matter. Activations are buffer rings: what F takes, I and W give back; messages weigh
 * nothing. So sim_run and static_report agree in times and in peaks.
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

/* update_ns: (n_stages) of the update that follows a device's last operation, NULL: 0; sharing: of occupied links. Runs in
 * sim_run(a, &out->program, out->cost, …): keep *out where it is. ERR_INPUT: what schedule_check and pipeline_check say;
 * a stage with B for some microbatches and I for others; changes of memory that F, I and W do not balance; latencies that
 * differ on one occupied way. O(operations). */
MUST_CHECK enum status pipeline_program(struct arena *a, const struct schedule *s,
                                        const struct pipeline *p, const int64_t *update_ns,
                                        enum link_sharing sharing, struct pipeline_program *out,
                                        struct error *err);

/* static_report by whatever applies: sim/pipeline/static where links are FIFO and nothing contends (*events false), else the event
 * loop (*events true), whose trace of one step is kept where trace is not NULL (then it runs in any case). */
MUST_CHECK enum status pipeline_report(struct arena *a, const struct schedule *s,
                                       const struct pipeline *p, enum link_sharing sharing,
                                       struct static_report *out, bool *events,
                                       struct trace **trace, struct error *err);

#endif
