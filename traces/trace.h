/* traces/trace.h - the trace: one record of executed operations, written by simulator and executor alike (cf. Kineto).
 *
 * File: JSON lines. First the header {schema, kind "musher-trace", source, plan, plan_hash, profile_id, emulated,
 * real_time, clock, iteration_ns, steps, stages, spans, devices[{id, type, slowdown, peak_bytes}], plan_text}, then one
 * span per line, in order of (device, stream, begin, sequence). Times are whole ns; the two 64-bit hashes are strings of 16
 * hexadecimal digits. A device that represents others with the same timeline (simulate --fold) also has stands_for, their
 * number, and alike, their names as ranges; the header then has classes: "equal_times", or "equal_shape" if
 * members of a class execute the same operators and may differ in time by contention of links. With local SGD the header
 * has period, steps from one exchange to the next, and if a simulation has some of them only, period_times: how many each one stands for. A span omits peer -1, part 0, uneven_ppm 0, bytes 0 and key 0. `spans` is the number
 * of lines that follow, so that a file truncated at a line end is detected too.
 * routing: of a run of a model with experts, [{block, tokens: [...]}]: how many tokens chose each expert of each block, over all steps.
 * collective: the kind's name ("all_to_all"), omitted if there is none.
 * Schema 1; a run with kernel records of the devices' profiler (run --kernels) writes schema 2, which adds the header field
 * kernels_lost and spans of kind KERNEL on stream "kernel": one device activity inside the operator of the same
 * device, step, stage, phase, microbatch and op, or, with stage and op -1, between operators. Operator spans already contain
 * their time, so totals exclude them. Their instants are the profiler's, accurate to some us.
 * OFFLOAD, FETCH: a stage's activations of one microbatch are copied to host memory and back (core/program/offload.h); phase F or B of
 * the call that reads or waits for them.
 * SNAPSHOT, SAVE (run --save-every, asynchronous): a checkpoint is copied to host memory while the steps of all ranks wait, and is then written
 * by a thread while they go on (stream "save"; on rank 0 until all ranks have written it). stage, op and microbatch -1; step: the
 * step before; bytes: of the rank's snapshot.
 * TRAIN, RESTART, REPLAN, IDLE (a run whose ranks started again, stream "run" of device 0): the steps of a start, from the begin of its first one;
 * from the fork of its ranks to that begin; the search of another plan; no training while a failure is not yet detected or a node is awaited. name:
 * which steps and devices, or the reason; stage, op and microbatch -1, step 0. Times of the whole trace then count from the first step of the
 * first start, and all other spans are those of the last start.
 * clock: "simulated", "virtual" (emulated devices' own clock) or "wall". Spans of kind STEP mark the end of a step's
 * last update (stream "step"); in a run they are wall time for every `clock`, and iteration_ns is
 * the median of their differences after the first.
 */
#ifndef TRACES_TRACE_H
#define TRACES_TRACE_H

#include "core/base/error.h"
#include "core/graph/phase.h"
#include "core/program/program.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

#define SPAN_KINDS(X) X(COMPUTE) X(SEND) X(RECEIVE) X(REDUCE) X(STEP) X(KERNEL) X(OFFLOAD) X(FETCH) X(SNAPSHOT) X(SAVE) X(TRAIN) X(RESTART) X(REPLAN) X(IDLE)
enum span_kind {
#define X(name) SPAN_##name,
    SPAN_KINDS(X)
#undef X
        SPAN_KIND_COUNT
};
const char *span_kind_name(enum span_kind kind); /* "compute", … lower case, as in files */

struct span;
/* Whether the span is of one step of the run: not of a checkpoint, and not of the run's starts. */
bool span_in_step(const struct span *s);
/* Display name: "matmul", "all_gather", "send", "reduce" of a gradient all-reduce. */
const char *span_title(const struct span *s);

#define STREAMS(X) X(compute) X(send) X(receive) X(collective) X(step) X(kernel) X(offload) X(fetch) X(snapshot) X(save) X(run)
enum stream {
#define X(name) STREAM_##name,
    STREAMS(X)
#undef X
        STREAM_COUNT
};
const char *stream_name(enum stream s);

struct span {
    enum span_kind kind;
    enum stream stream;
    int32_t device;    /* into devices of the trace */
    int32_t peer;      /* SEND, RECEIVE: the other device; else -1 */
    int32_t stage;     /* into the program's stages; -1 STEP, and what is not in a step */
    enum phase phase; /* F B I W U of the call; 'S' for steps, checkpoints, and kernels between operators */
    int32_t step, microbatch; /* microbatch within the replica; -1 for U */
    int32_t
        op; /* COMPUTE, KERNEL: op of the stage; SEND, RECEIVE: channel; REDUCE: collective; OFFLOAD, FETCH: part; else -1 */
    int32_t part; /* REDUCE: step of the collective's algorithm; else 0 */
    /* COMPUTE of gating, run: variance ÷ mean² of its experts' row counts, in millionths */
    int32_t uneven_ppm;
    /* REDUCE: 1 + enum collective_kind for a collective of a sharded stage (core/collective/collective.h); 0: a gradient
     * all-reduce, and all other spans */
    int32_t collective;
    int64_t begin_ns, end_ns;
    int64_t bytes;
    uint64_t key; /* COMPUTE: op_key, joins with profiles */
    /* COMPUTE: operator kind ("matmul"); KERNEL: the activity's own name ("copy to host" and the like if it is no kernel); REDUCE:
     * collective; else the channel's or collective's link name */
    const char *name;
};

struct trace_device {
    const char *name, *type;
    double slowdown; /* 0 where real */
    int64_t peak_bytes;
    int32_t
        stands_for; /* > 1: number of devices with this timeline (equal_shape: with these operators), this one included */
    const char *alike; /* their names (core/base/ranges.h); NULL if it represents itself only */
};

/* Routed tokens of the experts of one transformer block, over all steps of a run: each token counts once for every expert it chose. */
struct trace_routing {
    int32_t block, n_experts;
    const int64_t *tokens; /* (n_experts) by expert, whatever their order in the plan */
};

struct trace {
    struct arena *arena;
    const char *source;   /* "sim": predicted; else the backend that ran it: "host", "cuda" */
    const char *plan; /* plan's name */
    /* full text of plan.yaml, so that a trace is self-contained; NULL for a run from a program file */
    const char *plan_text;
    uint64_t plan_hash;
    int64_t profile_id;
    bool emulated, real_time; /* real_time: the emulated run had real-time priority */
    const char *clock;
    bool equal_shape;     /* times of devices that are represented may differ by contention */
    bool kernels;         /* kernel records were requested */
    int64_t kernels_lost; /* device activities without a record */
    int64_t iteration_ns;
    int32_t period; /* steps from one exchange of local SGD to the next; 0: all steps are alike */
    /* (period) of a simulation of some steps: how many each one stands for; NULL: itself */
    const int32_t *period_times;
    int32_t steps, n_devices, n_stages;
    struct trace_device *devices;
    int32_t n_routings; /* 0: no experts, or predicted */
    const struct trace_routing *routings; /* ascending blocks */
    size_t n_spans, capacity;
    struct span *spans;
    struct spill *spill; /* trace_stream; NULL: all spans are in memory */
};

#define TRACE_SIM "sim"
bool trace_is_predicted(const struct trace *t);
struct trace *trace_new(struct arena *a, const char *source, const struct program *p);
/* Allocates n spans in one piece; without it the array grows by doubling, which takes up to four times as much memory. */
void trace_reserve(struct trace *t, size_t n);
/* From now on at most n spans are in memory, those added last; the others go to an unnamed file beside `path` (traces/spill.h).
 * trace_write then gives the same bytes as without; all else but trace_keep_devices sees the spans in memory alone. Failures
 * are trace_write's. trace_stream_end closes the file, at the end of the trace's life. */
void trace_stream(struct trace *t, const char *path, size_t n);
void trace_stream_end(struct trace *t);
void trace_add(struct trace *t, struct span s);
/* Order of the file: device, stream, begin; 0 if these are equal and the order of addition decides. */
int trace_compare_spans(const struct span *x, const struct span *y);
void trace_sort(struct trace *t); /* into the file's order; stable, O(n) if already sorted */
bool trace_sorted(const struct trace *t);
size_t *trace_order(struct arena *a,
                    const struct trace *t); /* (n_spans) indices in the file's order */
/* iteration_ns from the ends of steps: median of the differences of consecutive STEP ends after the first; with a single step,
 * its end. With a period the median over all differences of a period's ends, per step; of fewer steps the mean of all after the first. An iteration is the time from the end of the last U of step n to the end of the last U of step n+1. */
int64_t trace_iteration(const struct trace *t);
/* The first step of the statistics: the first step of a run warms caches and connections and is excluded if there are others.
 * Common rule of calibration, comparison and trace_iteration; 0 for a trace without spans. O(spans): call once per trace. */
int32_t trace_first_counted_step(const struct trace *t);
/* Adds ns to all times. */
void trace_shift(struct trace *t, int64_t ns);
/* Keeps only the devices of `keep` (n_devices) and their spans, renumbered; ends of steps go to the first. O(spans). */
void trace_keep_devices(struct trace *t, const bool *keep);
bool trace_folded(const struct trace *t); /* whether a device represents others */
/* Number of devices that this one represents, itself included: >= 1. */
int32_t trace_weight(const struct trace *t, int32_t device);
/* Writes atomically (core/base/file.h); gzip if path ends in ".gz". Equal traces give equal bytes. ERR_RESOURCE. */
MUST_CHECK enum status trace_write(const struct trace *t, const char *path, struct error *err);
/* Streaming reader, plain or gzip by content; memory is the spans'. ERR_INPUT with file:line: no trace, another schema,
 * malformed or missing fields, indices out of range, negative or reversed times, a second header, a truncated file. path "-" is
 * standard input. */
MUST_CHECK enum status trace_read(struct arena *a, const char *path, struct trace **out,
                                  struct error *err);

#endif
