/* exec/worker/kernel_spans.h - maps the profiler's kernel records to operators.
 *
 * The compute thread numbers the operators that it issues and passes the number to the device's profiler around each
 * of them. Operator spans complete later in the same order, so the n-th completed span has number n. Other work
 * (messages, collectives, inputs, losses) has no number and is recorded between operators. A record's instants are
 * relative to its operator, or to the last operator before it, because only the operator's span has an instant on the
 * run's clock: that clock stops while a checkpoint is written and runs slowdown times as fast on an emulated GPU.
 */
#ifndef EXEC_WORKER_KERNEL_SPANS_H
#define EXEC_WORKER_KERNEL_SPANS_H

#include "core/base/error.h"
#include "exec/host_transport/spans.h"

#include <stddef.h>
#include <stdint.h>

struct activity;
struct rank;

/* All fields belong to kernel_spans.c. */
struct kernel_spans {
    const struct activity *of; /* NULL: kernels are not kept, or the device has no profiler */
    uint64_t entered;          /* operators issued so far */
    size_t n_seen, capacity;
    struct kernel_spans_seen {
        size_t span;              /* index in the compute thread's spans */
        int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC, from its events */
    } * seen;                     /* (n_seen) number n at n - 1 */
    struct span_list spans;
    struct span_names names;
};

/* Before the device is opened; and after it is closed. */
MUST_CHECK enum status kernel_spans_open(struct kernel_spans *x, const struct rank *r,
                                         struct error *err);
void kernel_spans_close(struct kernel_spans *x);
/* Around an operator. */
MUST_CHECK enum status kernel_spans_enter(struct kernel_spans *x, struct error *err);
MUST_CHECK enum status kernel_spans_leave(struct kernel_spans *x, struct error *err);
/* Called just before an operator's span is added to `operators`. */
void kernel_spans_seen(struct kernel_spans *x, const struct span_list *operators, int64_t begin_ns,
                       int64_t end_ns);
/* Once the device is idle: spans and names of this rank's kernels. */
MUST_CHECK enum status kernel_spans_collect(struct kernel_spans *x, const struct rank *r,
                                            const struct span_list *operators, struct error *err);

#endif
