/* sim/pipeline/static.h - how long a schedule takes where nobody has to be asked who goes first.
 *
 * Given the order on every device, a pipeline's times are a max-plus recurrence: an operation starts when its device is
 * free and its input has arrived; a message enters its link when it is ready and the link is free of the one before it.
 * No event queue is needed as long as each direction of a link carries the messages of one pair of virtual stages: they
 * are ready in the order in which their producer computes them. So a schedule is checked and sorted once (static_new) and
 * timed many times (static_time), one pass over an array of indices, some nanoseconds an operation. The event loop
 * (sim/engine/sim by sim/pipeline/program) gives the same nanoseconds where both apply.
 *
 * Where several chunks send through one occupied direction, who is first depends on the times: static_time says so by
 * false, and the event loop has to be asked. Pure latency (occupancy 0) never contends.
 *
 * Discarded: times looked up by (stage, microbatch) (two multiplications and random access an operation), and the order in
 * which schedule_check takes operations (one device after the other: every operation waits for the one before it, while
 * operations of one level of the graph, side by side, overlap in the processor).
 */
#ifndef SIM_PIPELINE_STATIC_H
#define SIM_PIPELINE_STATIC_H

#include "core/base/error.h"
#include "core/plan/schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define PIPELINE_NO_LIMIT INT64_MAX
/* No time or occupancy is longer than this (about 11 days); pipeline_check sees to it that sums over a schedule stay far
 * inside int64. */
#define PIPELINE_MAX_NS (INT64_C(1000000) * 1000000000)

struct pipeline_stage {
    int64_t forward_ns, input_ns, weight_ns; /* F, I, W of one microbatch */
    int64_t fused_ns;                        /* B; 0: I + W */
    /* Signed changes of the device's memory: at the start of F, at the end of I and of W; B makes both at its end. */
    int64_t forward_bytes, input_bytes, weight_bytes;
};
/* between virtual stages v and v+1; [0] activations forward, [1] gradients back */
struct pipeline_link {
    int64_t occupancy_ns[2], latency_ns[2];
};
struct pipeline_device {
    int64_t resident_bytes; /* always there */
    int64_t limit_bytes;    /* PIPELINE_NO_LIMIT: none */
};
/* What a schedule's operations cost. Links are serial, FIFO and full duplex: a message occupies its direction for
 * occupancy_ns and arrives latency_ns after that. The link between two stages of one device (the turn of a V) is not used. */
struct pipeline {
    int32_t n_devices, n_stages;
    struct pipeline_stage *stages;   /* (n_stages) virtual stages */
    struct pipeline_link *links;     /* (n_stages - 1); NULL: transfers take no time */
    struct pipeline_device *devices; /* (n_devices); NULL: nothing resident, no limits */
};
/* ERR_INPUT: shape unlike the schedule's; a time that is negative or beyond PIPELINE_MAX_NS; times of all microbatches that
 * add up to more than 4e18 ns, or bytes of a device to more than 4e18. */
MUST_CHECK enum status pipeline_check(const struct pipeline *p, const struct schedule *s,
                                      struct error *err);

struct static_timer; /* opaque: a schedule, checked and sorted; the times of the last run */

/* ERR_INPUT: what schedule_check says. O(operations). Keeps a pointer to the schedule. */
MUST_CHECK enum status static_new(struct arena *a, const struct schedule *s,
                                  struct static_timer **out, struct error *err);
/* The end of the last operation. false: some direction of a link is occupied by several pairs of stages. The pipeline has
 * passed pipeline_check. O(operations). */
MUST_CHECK bool static_time(struct static_timer *t, const struct pipeline *p, int64_t *makespan_ns);

struct static_device {
    int64_t begin_ns, end_ns; /* of its first and last operation */
    int64_t busy_ns, idle_ns; /* of the makespan */
    double bubble_rate;       /* idle ÷ makespan */
    /* most at once, resident bytes in it, and when first; known from the order alone */
    int64_t peak_bytes, peak_ns;
    bool fits; /* peak <= limit */
};
struct static_span {
    int64_t begin_ns, end_ns;
};
struct static_report {
    int64_t makespan_ns;
    int64_t bubble_ns;  /* longest idle time of a device between its first and last operation */
    double bubble_rate; /* idle ÷ makespan of all devices together */
    bool fits;          /* every device */
    /* device that comes nearest to its limit, or exceeds it most; -1 without limits */
    int32_t tightest;
    struct static_device *devices; /* (n_devices) */
    struct static_span *spans;     /* (operations, device-major as in the schedule) */
};
/* static_time with all that is known besides. false like static_time. Memory of the arena. O(operations). */
MUST_CHECK bool static_report(struct static_timer *t, const struct pipeline *p, struct arena *a,
                              struct static_report *out);
/* The same from spans that somebody else has found (the event loop). */
void static_summarize(const struct static_timer *t, const struct pipeline *p, struct arena *a,
                      int64_t makespan_ns, struct static_span *spans, struct static_report *out);
/* What lives on each device, without times: fills peak_bytes (n_devices), and returns whether all fit. O(operations). */
bool static_memory(const struct static_timer *t, const struct pipeline *p, int64_t *peak_bytes);

#endif
