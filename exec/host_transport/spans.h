/* exec/host_transport/spans.h - what this rank did when, and how rank 0 gets to know. */
#ifndef EXEC_HOST_TRANSPORT_SPANS_H
#define EXEC_HOST_TRANSPORT_SPANS_H

#include "core/base/arena.h"
#include "core/program/program.h"
#include "exec/comm/comm.h"
#include "traces/trace.h"

#include <stddef.h>
#include <stdint.h>

struct span_list {   /* one thread's */
    struct arena *a; /* NULL: nothing is kept */
    struct span *spans;
    size_t n, capacity;
};

static inline void span_list_add(struct span_list *l, struct span s)
{
    if (!l->a) return;
    l->spans = arena_grow(l->a, l->spans, l->n, &l->capacity, sizeof *l->spans);
    l->spans[l->n++] = s;
}

/* Of kernels' spans: what they are called, each a C string of which a span's key says where it begins until rank 0 has it; how many
 * things ran that are not among them. */
struct span_names {
    const char *text; /* (bytes) */
    int64_t bytes, lost;
};

/* All ranks together. On rank 0 the trace with everybody's spans (of the n lists) and the steps'
 * ends, elsewhere NULL. step_end_ns: (steps) when this rank ended its last update of each step,
 * wall time. names: NULL where nobody asked for kernels, alike on all ranks. */
struct trace *spans_gather(struct arena *a, struct comm *c, const struct program *p,
                           const struct span_list *lists, int n, const struct span_names *names,
                           const int64_t *step_end_ns, int64_t steps);

#endif
