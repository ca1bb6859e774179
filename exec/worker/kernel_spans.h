/* exec/worker/kernel_spans.h - kernels below operators: numbers go out with what is asked, records come back under them.
 *
 * The compute thread counts the operators that it issues, and the device's profiler gets that number around each of
 * them. Spans are seen later, in the same order, so the n-th span of an operator that is seen is number n's. What is issued
 * for anything else (messages, collectives, inputs, losses) has no number and is recorded as what ran between operators.
 * Instants of a record are relative to those of its operator, or of the last one before it: the operator's span states where that lies on
 * the run's clock, which stands still while a checkpoint is written and goes slowdown times as fast on an emulated GPU.
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
    const struct activity *of; /* NULL: not kept, or this device has none */
    uint64_t entered;          /* operators issued so far */
    size_t n_seen, capacity;
    struct kernel_spans_seen {
        size_t span;              /* of the compute thread's */
        int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC, by its events */
    } * seen;                     /* (n_seen) number n at n - 1 */
    struct span_list spans;
    struct span_names names;
};

/* Before the device is opened, and the end of it. */
MUST_CHECK enum status kernel_spans_open(struct kernel_spans *x, const struct rank *r,
                                         struct error *err);
void kernel_spans_close(struct kernel_spans *x);
/* Around an operator. */
MUST_CHECK enum status kernel_spans_enter(struct kernel_spans *x, struct error *err);
MUST_CHECK enum status kernel_spans_leave(struct kernel_spans *x, struct error *err);
/* An operator's span is about to be added to `operators`. */
void kernel_spans_seen(struct kernel_spans *x, const struct span_list *operators, int64_t begin_ns,
                       int64_t end_ns);
/* Once no device has anything to do: spans and names of this rank's kernels. */
MUST_CHECK enum status kernel_spans_collect(struct kernel_spans *x, const struct rank *r,
                                            const struct span_list *operators, struct error *err);

#endif
