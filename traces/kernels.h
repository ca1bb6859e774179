/* traces/kernels.h - of each kind of operator: how much of its time kernels ran, how much none did, and which they were.
 *
 * An operator lasts from the event behind the one before it to its own, so what no kernel fills is the device waiting for launches
 * (or, of an operator that waits for a message, for that). Steps that count alone (trace_first_counted_step). Of a trace with kernels
 * only operators of devices that told any: a host's run none, and are no gaps. A device that stands
 * for others counts as all of them.
 */
#ifndef TRACES_KERNELS_H
#define TRACES_KERNELS_H

#include "traces/trace.h"

struct arena;

struct kernels_named {
    const char *name;
    int64_t n, ns; /* how often, and all their time */
};
struct kernels_kind {
    const char *kind;      /* the operators'; NULL: between operators */
    int64_t operators, ns; /* how many spans, and their time; 0 of none */
    int64_t kernels;       /* what ran in them: kernels, copies, fills */
    int64_t busy_ns;       /* how long any of them ran: of ns, or of NULL all in all */
    size_t n_named;
    struct kernels_named *named; /* (n_named) by falling time */
};
struct kernels {
    int64_t lost; /* of the whole trace */
    size_t n_kinds;
    struct kernels_kind *kinds; /* (n_kinds) by falling time, NULL last */
};

/* Names are the trace's. Kinds without kernels are there as well. O(n log n) of the spans. */
void kernels_of_trace(struct arena *a, const struct trace *t, struct kernels *out);

#endif
