/* exec/host_transport/spans.h - this rank's spans, and their gathering on rank 0. */
#ifndef EXEC_HOST_TRANSPORT_SPANS_H
#define EXEC_HOST_TRANSPORT_SPANS_H

#include "core/base/arena.h"
#include "core/program/program.h"
#include "exec/comm/comm.h"
#include "traces/trace.h"

#include <stddef.h>
#include <stdint.h>

struct span_list {   /* of one thread */
    struct arena *a; /* NULL: spans are not kept */
    struct span *spans;
    size_t n, capacity;
};

static inline void span_list_add(struct span_list *l, struct span s)
{
    if (!l->a) return;
    l->spans = arena_grow(l->a, l->spans, l->n, &l->capacity, sizeof *l->spans);
    l->spans[l->n++] = s;
}

/* Names of kernel spans as C strings; until rank 0 has them, a span's key is the offset of its name. lost: activities
 * without a span. */
struct span_names {
    const char *text; /* (bytes) */
    int64_t bytes, lost;
};

/* All ranks together. On rank 0 the trace with the spans of all ranks (of the n lists) and the ends of steps;
 * elsewhere NULL. step_end_ns: (steps) end of this rank's last update of each step, wall time. names: NULL if no
 * kernels were recorded, on all ranks alike. */
struct trace *spans_gather(struct arena *a, struct comm *c, const struct program *p,
                           const struct span_list *lists, int n, const struct span_names *names,
                           const int64_t *step_end_ns, int64_t steps);

#endif
