/* traces/trace.h - what happened when: the one record that both machines write.
 *
 * File: JSON lines. First the header {schema, kind "musher-trace", source, plan, plan_hash, profile_id, emulated,
 * real_time, clock, iteration_ns, steps, stages, spans, devices[{id, type, slowdown, peak_bytes}], plan_text}, then one
 * span a line, in order of (device, stream, begin, sequence). Times are whole ns; the two 64-bit hashes are texts of 16
 * hexadecimal digits. A device that stands for others, which did
 * the same at the same times (simulate --fold), has also stands_for, their number, and alike, their names as ranges; the header then has classes: "equal_times", or "equal_shape" where
 * members of a class execute the same operators and may differ in time, because contention of links is not the same for all. A span leaves out peer -1, part 0, uneven_ppm 0, bytes 0 and key 0. `spans` counts the lines to come, so that
 * a file cut at the end of a line is noticed too.
 * collective: the kind's name ("all_to_all"), left out where there is none.
 * Schema 1; a run whose devices' own profiler told what they ran (run --kernels) writes schema 2, which has one field more in the
 * header, kernels_lost, and spans of kind KERNEL on stream "kernel": one thing that a device did, below the operator of the same
 * device, step, stage, phase, microbatch and op, or, with stage and op -1, between operators. They say nothing that others do not
 * sum up already, so who adds up time leaves them out. Their instants are the profiler's: true to some us.
 * clock: "simulated", "virtual" (emulated devices' own clock) or "wall". Spans of kind STEP say when a step's
 * last update ended (stream "step"); for a run they are wall time whatever `clock` says, and iteration_ns is
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

#define SPAN_KINDS(X) X(COMPUTE) X(SEND) X(RECEIVE) X(REDUCE) X(STEP) X(KERNEL)
enum span_kind {
#define X(name) SPAN_##name,
    SPAN_KINDS(X)
#undef X
        SPAN_KIND_COUNT
};
const char *span_kind_name(enum span_kind kind); /* "compute", … lower case, as in files */

struct span;
/* What it is to people: "matmul", "all_gather", "send", "reduce" of a sum. */
const char *span_title(const struct span *s);

#define STREAMS(X) X(compute) X(send) X(receive) X(collective) X(step) X(kernel)
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
    int32_t stage;     /* into the program's stages; -1 STEP */
    enum phase phase; /* F B I W U of the call; 'S' for steps, and kernels between operators */
    int32_t step, microbatch; /* microbatch within the replica; -1 for U */
    int32_t
        op; /* COMPUTE, KERNEL: op of the stage; SEND, RECEIVE: channel; REDUCE: group; STEP: -1 */
    int32_t part; /* REDUCE: ring step of this span; else 0 */
    /* COMPUTE of gating, run: variance ÷ mean² of the rows that its experts get, in millionths */
    int32_t uneven_ppm;
    /* REDUCE: 1 + enum collective_kind where devices of a sharded stage meet (core/collective/collective.h); 0: a sum over those that hold
     * the same, and all else */
    int32_t collective;
    int64_t begin_ns, end_ns;
    int64_t bytes;
    uint64_t key; /* COMPUTE: op_key, joins with profiles */
    /* operator's kind for COMPUTE ("matmul"), of a KERNEL its own ("copy to host" and the like of what is none), the group of a collective, else channel's or group's link name */
    const char *name;
};

struct trace_device {
    const char *name, *type;
    double slowdown; /* 0 where real */
    int64_t peak_bytes;
    /* > 1: so many devices did the same, this one among them, at the same times but where equal_shape is set */
    int32_t stands_for;
    const char *alike; /* their names (core/base/ranges.h); NULL where it stands for itself */
};

struct trace {
    struct arena *arena;
    const char *source;   /* "sim": predicted; else the backend of the devices that ran it, "host", "cuda" */
    const char *plan; /* plan's name */
    /* plan.yaml whole, so that a trace stands alone; NULL where run from a program file */
    const char *plan_text;
    uint64_t plan_hash;
    int64_t profile_id;
    bool emulated, real_time; /* real_time: the emulated run had real-time priority */
    const char *clock;
    bool equal_shape; /* of devices that stand for others: their times may differ by contention */
    bool kernels;         /* spans of them were asked for */
    int64_t kernels_lost; /* things that ran and are not among them */
    int64_t iteration_ns;
    int32_t steps, n_devices, n_stages;
    struct trace_device *devices;
    size_t n_spans, capacity;
    struct span *spans;
    struct spill *spill; /* trace_stream; NULL: all spans are in memory */
};

#define TRACE_SIM "sim"
bool trace_is_predicted(const struct trace *t);
struct trace *trace_new(struct arena *a, const char *source, const struct program *p);
/* Room for n spans in one piece: without it the array grows by doubling, which takes up to four times as much. */
void trace_reserve(struct trace *t, size_t n);
/* From now on at most n spans are in memory, those added last; the others go to an unnamed file beside `path` (traces/spill.h).
 * trace_write then gives the same bytes as without; all else but trace_keep_devices sees the spans in memory alone. Failures
 * are trace_write's. trace_stream_end closes the file, at the end of the trace's life. */
void trace_stream(struct trace *t, const char *path, size_t n);
void trace_stream_end(struct trace *t);
void trace_add(struct trace *t, struct span s);
/* Order of the file: device, stream, begin; 0 where these are equal and the order of adding decides. */
int trace_compare_spans(const struct span *x, const struct span *y);
void trace_sort(struct trace *t); /* into the file's order; stable, O(n) where it is already so */
bool trace_sorted(const struct trace *t);
size_t *trace_order(struct arena *a,
                    const struct trace *t); /* (n_spans) indices in the file's order */
/* Steps' ends → iteration_ns: median of differences of consecutive STEP ends after the first; the end of the only
 * one where there is one. Iteration = end of the last U of step n to the end of the last U of step n+1. */
int64_t trace_iteration(const struct trace *t);
/* The first step that counts: the first one warms caches and connections and does not where there are others. The one
 * rule of calibration, comparison and trace_iteration; 0 of a trace without spans. O(spans): ask once a trace. */
int32_t trace_first_counted_step(const struct trace *t);
/* Whole or not at all (core/base/file.h); compressed by gzip where path ends in ".gz". The same trace gives the same bytes.
 * ERR_RESOURCE. */
/* Leaves the devices of `keep` (n_devices) and their spans, renumbered; ends of steps go to the first. O(spans). */
void trace_keep_devices(struct trace *t, const bool *keep);
bool trace_folded(const struct trace *t); /* does a device stand for others? */
/* How many devices this one stands for, itself among them: >= 1. */
int32_t trace_weight(const struct trace *t, int32_t device);
MUST_CHECK enum status trace_write(const struct trace *t, const char *path, struct error *err);
/* Streams, plain or gzip whatever its name: memory is the spans'. ERR_INPUT with file:line: no trace, another schema, malformed or missing fields, indices
 * out of range, negative or reversed times, a second header, a truncated file. path "-" is standard input. */
MUST_CHECK enum status trace_read(struct arena *a, const char *path, struct trace **out,
                                  struct error *err);

#endif
