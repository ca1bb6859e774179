/* sim/explain/live.h - live memory of a device over one steady step, by class of slot, from a trace and its program.
 *
 * Resident classes (parameters, gradients, optimizer state, feedback of compression, scratch, staging of collectives, reserve) are constant. Buffer rings follow the
 * spans, by the rules of sim/engine/code.c and messages.c: a buffer is allocated when its call begins to compute, or when its
 * message starts; it is released when its call ends, or when its message has left. The changes of one step are repeated with
 * the period of the step, so a step that overlaps its neighbours needs no other one.
 * Messages inside a device have no spans and count from the end of the sender's call. So the peak of a steady predicted step is that
 * of the simulation, for a few devices with such messages within 3 %. In a run's trace times are measured, sizes are lowering's.
 *
 * The trace may be folded or reduced (sim/engine/fold.h, trace_one_step): devices are matched by name, stages and channels by
 * their order on the device.
 */
#ifndef SIM_EXPLAIN_LIVE_H
#define SIM_EXPLAIN_LIVE_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "traces/trace.h"

#include <stddef.h>
#include <stdint.h>

struct arena;

/* activations: buffer rings between two procedures, messages: those that a channel sends from or receives into */
#define LIVE_CLASSES(X)                                                                            \
    X(parameters, "parameters")                                                                    \
    X(gradients, "gradients")                                                                      \
    X(state, "optimizer state")                                                                    \
    X(feedback, "compression feedback")                                                            \
    X(scratch, "scratch")                                                                          \
    X(staging, "collective buffers")                                                               \
    X(reserve, "reserve")                                                                          \
    X(messages, "messages")                                                                        \
    X(activations, "activations")
enum live_class {
#define X(name, text) LIVE_##name,
    LIVE_CLASSES(X)
#undef X
        LIVE_CLASS_COUNT
};
const char *live_class_name(enum live_class c);

struct live_point { /* from at_ns, since the step began, up to the next point */
    int64_t at_ns;
    int64_t messages, activations;
};
struct live {
    int64_t bytes[LIVE_CLASS_COUNT]; /* of resident classes; 0 of the two others */
    size_t n;                        /* >= 1; the first point is at 0 */
    struct live_point *points;
    int64_t peak_bytes, memory_bytes; /* of all classes together; of the device */
};
/* Reduces the points to about `most`: of each of most ÷ 2 intervals of equal length the highest, at the instant of the first, and
 * the last remain. The peak stays the same. */
void live_thin(struct live *x, size_t most);
/* device: of the trace. The step is the window [begin_ns, end_ns) of the trace's clock; `step` its number. t is sorted (trace_sort).
 * ERR_INPUT: the program lacks a device of this name, or stages that the trace has. O(spans of the device). */
MUST_CHECK enum status live_memory(struct arena *a, const struct program *p, const struct trace *t,
                                   int32_t device, int32_t step, int64_t begin_ns, int64_t end_ns,
                                   struct live *out, struct error *err);

#endif
