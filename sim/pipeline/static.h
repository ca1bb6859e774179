/* sim/pipeline/static.h - exact makespan of a pipeline schedule if no link direction is shared (max-plus recurrence).
 *
 * With the order on every device given, a pipeline's times are a max-plus recurrence: an operation starts when its device is
 * free and its input has arrived; a message enters its link when it is ready and the link is free of the previous one.
 * No event queue is needed as long as each direction of a link carries the messages of one pair of virtual stages, because
 * these become ready in the order in which their producer computes them. A schedule is checked and sorted once (static_new) and
 * timed many times (static_time): one pass over an array of indices, some nanoseconds an operation. The event loop
 * (sim/engine/sim through sim/pipeline/program) gives the same nanoseconds if both apply.
 *
 * If several chunks send through one occupied direction, their order depends on the times: static_time returns false, and
 * the event loop is required. Pure latency (occupancy 0) never contends.
 *
 * Discarded: lookup of times by (stage, microbatch) (two multiplications and random access an operation); the order of
 * schedule_check, device after device, because every operation then waits for the one before it, while operations of one level
 * of the graph, side by side, overlap in the processor.
 */
#ifndef SIM_PIPELINE_STATIC_H
#define SIM_PIPELINE_STATIC_H

#include "core/base/error.h"
#include "core/plan/schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

#define PIPELINE_NO_LIMIT INT64_MAX
/* Upper bound of a time or an occupancy (about 11 days); pipeline_check ensures that sums over a schedule stay far
 * inside int64. */
#define PIPELINE_MAX_NS (INT64_C(1000000) * 1000000000)

struct pipeline_stage {
    int64_t forward_ns, input_ns, weight_ns; /* F, I, W of one microbatch */
    int64_t fused_ns;                        /* B; 0: I + W */
    /* Signed changes of the device's memory: at the start of F, at the end of I and of W; B applies both at its end. */
    int64_t forward_bytes, input_bytes, weight_bytes;
};
/* between virtual stages v and v+1; [0] activations forward, [1] gradients backward */
struct pipeline_link {
    int64_t occupancy_ns[2], latency_ns[2];
};
struct pipeline_device {
    int64_t resident_bytes; /* allocated at all times */
    int64_t limit_bytes;    /* PIPELINE_NO_LIMIT: none */
};
/* Costs of a schedule's operations. Links are serial, FIFO and full duplex: a message occupies its direction for
 * occupancy_ns and arrives latency_ns after that. The link between two stages of one device (the turn of a V) is not used. */
struct pipeline {
    int32_t n_devices, n_stages;
    struct pipeline_stage *stages;   /* (n_stages) virtual stages */
    struct pipeline_link *links;     /* (n_stages - 1); NULL: transfers take no time */
    struct pipeline_device *devices; /* (n_devices); NULL: no resident bytes, no limits */
};
/* ERR_INPUT: a shape other than the schedule's; a time that is negative or beyond PIPELINE_MAX_NS; times of all microbatches
 * above 4e18 ns in total, or bytes of a device above 4e18. */
MUST_CHECK enum status pipeline_check(const struct pipeline *p, const struct schedule *s,
                                      struct error *err);

struct static_timer; /* opaque: a checked and sorted schedule; the times of the last run */

/* ERR_INPUT: as schedule_check. O(operations). Keeps a pointer to the schedule. */
MUST_CHECK enum status static_new(struct arena *a, const struct schedule *s,
                                  struct static_timer **out, struct error *err);
/* The end of the last operation. false: several pairs of stages occupy one direction of a link. Requires pipeline_check.
 * O(operations). */
MUST_CHECK bool static_time(struct static_timer *t, const struct pipeline *p, int64_t *makespan_ns);

struct static_device {
    int64_t begin_ns, end_ns; /* of its first and last operation */
    int64_t busy_ns, idle_ns; /* of the makespan */
    double bubble_rate;       /* idle ÷ makespan */
    /* peak memory, resident bytes included, and its first instant; known from the order alone */
    int64_t peak_bytes, peak_ns;
    bool fits; /* peak <= limit */
};
struct static_span {
    int64_t begin_ns, end_ns;
};
struct static_report {
    int64_t makespan_ns;
    int64_t bubble_ns;  /* longest idle time of one device between its first and last operation */
    double bubble_rate; /* idle ÷ makespan of all devices together */
    bool fits;          /* every device */
    /* device with the highest ratio of peak to limit; -1 without limits */
    int32_t tightest;
    struct static_device *devices; /* (n_devices) */
    struct static_span *spans;     /* (operations, device-major as in the schedule) */
};
/* static_time with the full report. Returns false like static_time. Allocates in the arena. O(operations). */
MUST_CHECK bool static_report(struct static_timer *t, const struct pipeline *p, struct arena *a,
                              struct static_report *out);
/* The same report from the spans of another method (the event loop). */
void static_summarize(const struct static_timer *t, const struct pipeline *p, struct arena *a,
                      int64_t makespan_ns, struct static_span *spans, struct static_report *out);
/* Peak memory of each device from the order alone: fills peak_bytes (n_devices); returns whether all fit. O(operations). */
bool static_memory(const struct static_timer *t, const struct pipeline *p, int64_t *peak_bytes);

#endif
