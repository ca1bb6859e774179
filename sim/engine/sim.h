/* sim/engine/sim.h - runs a program in predicted time.
 *
 * A discrete-event simulation in int64 nanoseconds with a total order of events (time, sequence of push), of exactly the
 * program that exec runs, by the meaning of instructions in core/program/program.h: devices with compute, send, receive and
 * collective streams, links with latency, bandwidth, duplex and sharing, buffers that must be free. Same program and costs,
 * same bytes out. A program that cannot go on ends with ERR_INPUT "no progress: blocked set: …".
 * Cost: O(events log events); memory O(lanes + messages in flight) without a trace.
 */
#ifndef SIM_ENGINE_SIM_H
#define SIM_ENGINE_SIM_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "sim/cost.h"
#include "sim/jitter.h"
#include "traces/trace.h"

/* Factors on durations, to ask what if: by program device, by program link (occupancy and latency), by kind of operator.
 * NULL: 1. Finite and >= 0; 0: it takes no time. Each product is rounded once to whole nanoseconds. */
struct sim_scale {
    const double *device; /* (n_devices) */
    const double *link;   /* (n_links) */
    const double *kind;   /* (OP_KIND_COUNT) by enum op_kind */
};
/* Two levels of detail over one program, equal to the nanosecond. OPERATOR: every operator and collective in turn. STAGE: what
 * a procedure does between its messages is one duration: operators are added up, and collectives inside a call become one,
 * from the longest way to the first through the longest ways between them to the last; its inside is timed once.
 * (Not equal under a link's compute_slowdown, where each operator's end is rounded to a nanosecond; nor is there a run with a
 * trace, that takes operators one by one, to one without.) */
enum sim_detail { SIM_OPERATOR, SIM_STAGE };

/* The same on every machine, so that a plan is refused everywhere or nowhere. */
#define SIM_TRACE_MAX_BYTES (INT64_C(4) << 30)
enum { SIM_TRACE_WINDOW = 1 << 20 }; /* spans */

struct sim_options {
    /* >= 1: exactly so many; 0 means the program's, at least 4, so that there is a steady step between the ends */
    int32_t steps;
    bool keep_trace;
    /* With keep_trace: bytes that the caller will take beside a trace of so many spans, e.g. explain_bytes; NULL: none */
    double (*beside_trace)(const struct program *p, int32_t steps, double spans);
    /* The file that the trace is for: of more than trace_window spans the others wait on disk (trace_stream), and the caller only
     * writes it. NULL: all are in memory. trace_window 0: SIM_TRACE_WINDOW. */
    const char *trace_path;
    size_t trace_window;
    /* A trace that would take its readers more is refused before anything of it is allocated (ERR_RESOURCE); 0: SIM_TRACE_MAX_BYTES */
    int64_t trace_most_bytes;
    enum sim_detail detail;
    /* devices that do the same at the same times are simulated once (sim/engine/fold); a trace has one device of each class,
     * and says for which it stands */
    bool fold;
    /* (replicas of the plan) whose spans are kept; NULL: all. Where devices fall together (fold) one of each class is kept all the same. */
    const bool *trace_replicas;
    bool
        trace_one_step; /* of a trace: spans of the last step but one alone, which is steady, and each step's end */
    const struct sim_scale *scale; /* NULL: none */
    /* > 0: give up when the run's time exceeds it: iteration_ns and makespan_ns are INT64_MAX */
    int64_t limit_ns;
    /* Of one sample (sim/jitter.h); NULL: costs as they are. Then every operator is drawn by itself and no step or device stands
     * for another, whatever detail and fold say. */
    const struct jitter *jitter;
};
struct sim_device {
    int64_t busy_ns, idle_ns;    /* compute stream, over one steady iteration */
    int64_t worked_ns;           /* end of the first step's last call but updates */
    int64_t peak_bytes, peak_ns; /* of what is live; peak_ns: when first */
    int64_t reserved_bytes;      /* what lowering laid out, program_stage_bytes */
};
struct sim_result {
    /* Duration of a steady step: the first that moves all lanes' ends alike, else the last but one; of one or two
     * steps: of the last. × pace. (The last step of a run is often a little shorter than the others: nothing follows
     * it whose messages share its links.) */
    int64_t iteration_ns;
    /* all steps: end of the last update, without pace; steps not simulated count as steady ones */
    int64_t makespan_ns;
    int64_t events;    /* taken from the event queue */
    int64_t operators; /* executed COMPUTE instructions */
    /* simulated; fewer than asked for where a steady step was seen and no trace is kept */
    int32_t steps;
    struct sim_device *devices; /* (n_devices) */
    struct trace *trace;        /* NULL unless kept */
    /* With fold and a trace: the program of the devices that stand for others, which the trace is of, and their results; else NULL:
     * the whole program and `devices`. */
    const struct program *traced;
    struct sim_device *traced_devices; /* (traced->n_devices) */
};
MUST_CHECK enum status sim_run(struct arena *a, const struct program *p, struct cost *k,
                               const struct sim_options *o, struct sim_result *out,
                               struct error *err);

#endif
