/* traces/kernels.h - device utilisation inside operators: kernel time, launch gaps and the most expensive kernels, by operator kind.
 *
 * An operator's span reaches from the previous operator's completion event to its own, so time without a kernel is the device
 * waiting for a launch (or, in an operator that waits for a message, for the message). Only counted steps are included
 * (trace_first_counted_step), and only operators of devices with kernel records, because host operators have no kernels and
 * are not gaps.
 */
#ifndef TRACES_KERNELS_H
#define TRACES_KERNELS_H

#include "traces/trace.h"

struct arena;

struct kernels_named {
    const char *name;
    int64_t n, ns; /* launches, and their total time */
};
struct kernels_kind {
    const char *kind;      /* operator kind; NULL: between operators */
    int64_t operators, ns; /* number of spans, and their time; 0 for NULL */
    int64_t kernels;       /* device activities inside them: kernels, copies, memsets */
    int64_t busy_ns;       /* time with at least one activity: share of ns, for NULL a total */
    size_t n_named;
    struct kernels_named *named; /* (n_named) by descending time */
};
struct kernels {
    int64_t lost; /* kernel records lost, of the full trace */
    size_t n_kinds;
    struct kernels_kind *kinds; /* (n_kinds) by descending time, NULL last */
};

/* Names point into the trace. Kinds without kernels are included. O(n log n) of the spans. */
void kernels_of_trace(struct arena *a, const struct trace *t, struct kernels *out);

#endif
