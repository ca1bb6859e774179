/* sim/engine/sim.h - runs a program in predicted time.
 *
 * A discrete-event simulation of exactly the program that exec/ runs, with the instruction semantics of core/program/program.h:
 * devices with compute, send, receive and collective streams; links with latency, bandwidth, duplex and sharing; buffers that
 * must be free before they are written. Times are int64 nanoseconds. Events have a total order (sim/event_queue.h), so equal
 * programs and costs give equal bytes of output. A program that deadlocks ends with ERR_INPUT "deadlock: …".
 * Cost: O(events log events); memory O(lanes + messages in flight) without a trace.
 */
#ifndef SIM_ENGINE_SIM_H
#define SIM_ENGINE_SIM_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "core/program/server_order.h"
#include "sim/cost.h"
#include "sim/jitter.h"
#include "traces/trace.h"

/* What-if factors on durations: by program device, by program link (occupancy and latency) and by operator kind.
 * NULL: 1. Each factor is finite and >= 0; 0 removes the duration. Each product is rounded once to whole nanoseconds. */
struct sim_scale {
    const double *device; /* (n_devices) */
    const double *link;   /* (n_links) */
    const double *kind;   /* (OP_KIND_COUNT) by enum op_kind */
};
/* Two levels of detail of one program, equal to the nanosecond. OPERATOR: every operator and every collective is an event.
 * STAGE: the work of a procedure between two messages is one duration. Its operators are added up; the collectives of one call
 * become one, timed once, which spans from the first to the last of them.
 * (Two cases are not equal: links with compute_slowdown, because each operator's end is rounded to a nanosecond, and a run with
 * a trace against one without, because a trace needs each operator.) */
enum sim_detail { SIM_OPERATOR, SIM_STAGE };

/* A constant and not this machine's memory, so that a plan is rejected on every machine or on none. */
#define SIM_TRACE_MAX_BYTES (INT64_C(4) << 30)
enum { SIM_TRACE_WINDOW = 1 << 20 }; /* spans */

struct sim_options {
    /* >= 1: exact count; 0: the program's own count, but at least 4, so that a steady step lies between the ends */
    int32_t steps;
    bool keep_trace;
    /* With keep_trace: bytes that the caller allocates in addition to a trace of `spans` spans, e.g. explain_bytes; NULL: none */
    double (*beside_trace)(const struct program *p, int32_t steps, double spans);
    /* Path of the trace file. Spans beyond trace_window are kept on disk (trace_stream), and the caller may only write the trace.
     * NULL: all spans are in memory. trace_window 0: SIM_TRACE_WINDOW. */
    const char *trace_path;
    size_t trace_window;
    /* A trace whose readers would need more memory is rejected before allocation (ERR_RESOURCE); 0: SIM_TRACE_MAX_BYTES */
    int64_t trace_most_bytes;
    enum sim_detail detail;
    /* simulate devices with equal timelines once (sim/engine/fold); the trace then has one device of each class and the names of
     * the devices it represents */
    bool fold;
    bool each_message; /* rings of many ranks message by message too (sim/engine/ring_flow.h) */
    /* (replicas of the plan) whose spans are kept; NULL: all. With fold, one device of each class is kept in any case. */
    const bool *trace_replicas;
    bool
        trace_one_step; /* trace: spans of the last step but one only, which is steady, and the end of each step */
    const struct sim_scale *scale; /* NULL: none */
    /* > 0: give up when the run's time exceeds it: iteration_ns and makespan_ns are INT64_MAX */
    int64_t limit_ns;
    /* > 0: ERR_RESOURCE at more counted work (work_ns of the result), in steps of a thousand events; 0: no limit */
    int64_t most_work_ns;
    /* One sample of random durations (sim/jitter.h); NULL: none. With jitter every operator is drawn separately, and detail and
     * fold are ignored, because no two steps or devices are equal. */
    const struct jitter *jitter;
};
/* What a compute stream waits for, in a steady iteration. Communication is exposed while it is under way and the stream waits for it:
 * messages     a message that its sender has issued: queueing for the link, transfer, latency; a send buffer that has not left; a copy of
 *              activations to or from host memory
 * collectives  a collective that all its members have launched
 * A stream that waits for what has not been issued or launched is idle:
 * bubble       the pipeline fills or drains: before the device's first backward of the step, and after its last forward
 * imbalance    another device is later: the neighbour of a full pipeline, the last member of a collective, or, with nothing left to
 *              do, the last device of the step
 */
#define SIM_WAITS(X) X(messages) X(collectives) X(bubble) X(imbalance)
enum sim_wait {
#define X(name) SIM_WAIT_##name,
    SIM_WAITS(X)
#undef X
        SIM_WAIT_COUNT
};
const char *sim_wait_name(enum sim_wait wait);

struct sim_device {
    int64_t busy_ns, idle_ns;    /* compute stream, over one steady iteration */
    /* by enum sim_wait. carried_ns: the part of busy_ns that is communication on the compute stream itself, counted in wait_ns
     * too; busy_ns - carried_ns and all of wait_ns add up to iteration_ns */
    int64_t carried_ns, wait_ns[SIM_WAIT_COUNT];
    int64_t worked_ns;           /* end of the first step's last call, updates excluded */
    int64_t peak_bytes, peak_ns; /* of live memory; peak_ns: its first instant */
    int64_t reserved_bytes;      /* allocated by lowering, program_stage_bytes */
};
struct sim_result {
    /* Duration of a steady step × pace. Steady: the first step in which the ends of all lanes move by the same amount, else the
     * last but one, or the last of one or two steps. (The last step is often slightly shorter, because no messages of a later step
     * share its links.) */
    int64_t iteration_ns;
    /* all steps: end of the last update, without pace; steps that were not simulated count as steady ones */
    int64_t makespan_ns;
    int64_t events;    /* taken from the event queue */
    int64_t operators; /* executed COMPUTE instructions */
    int64_t work_ns;   /* counted CPU time of the simulation (sim/engine/work.h) */
    struct server_counts staleness; /* of parameter servers that handle pushes by arrival: of all of them */
    double applied; /* by them: share of the samples whose gradients were not dropped; 1 without such servers */
    int32_t period; /* of local SGD's exchanges, in simulated steps (core/program/period.h); 0: none */
    /* simulated; fewer than requested if a steady step was found and no trace is kept */
    int32_t steps;
    struct sim_device *devices; /* (n_devices) */
    struct trace *trace;        /* NULL unless kept */
    /* With fold and a trace: the folded program, to which the trace belongs, and its devices' results. Otherwise NULL: the trace
     * belongs to the full program and `devices`. */
    const struct program *traced;
    struct sim_device *traced_devices; /* (traced->n_devices) */
};
MUST_CHECK enum status sim_run(struct arena *a, const struct program *p, struct cost *k,
                               const struct sim_options *o, struct sim_result *out,
                               struct error *err);

#endif
