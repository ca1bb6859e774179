/* tests/support/traces.h - traces made by hand for the suites of traces. */
#ifndef TESTS_SUPPORT_TRACES_H
#define TESTS_SUPPORT_TRACES_H

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "traces/trace.h"

/* Two devices, one stage each. */
static inline struct trace *traces_empty(struct arena *a, const char *source)
{
    static struct program_device devices[] = {{.name = "a.0", .type = "fast", .slowdown = 1.5},
                                              {.name = "b.0", .type = "slow", .slowdown = 3}};
    struct program p = {.name = "a \"plan\"",
                        .plan_hash = 0xfedcba9876543210,
                        .emulated = true,
                        .steps = 3,
                        .n_devices = 2,
                        .devices = devices,
                        .n_stages = 2};
    return trace_new(a, source, &p);
}

static inline struct span traces_compute(int32_t device, enum phase phase, int32_t step,
                                         int32_t microbatch, int64_t begin, int64_t end)
{
    return (struct span){.kind = SPAN_COMPUTE,
                         .stream = STREAM_compute,
                         .device = device,
                         .peer = -1,
                         .stage = device,
                         .phase = phase,
                         .step = step,
                         .microbatch = microbatch,
                         .op = 1,
                         .begin_ns = begin,
                         .end_ns = end,
                         .bytes = 100,
                         .key = 0xabcdef,
                         .name = "matmul"};
}

static inline struct span traces_step_end(int32_t step, int64_t end)
{
    return (struct span){.kind = SPAN_STEP,
                         .stream = STREAM_step,
                         .peer = -1,
                         .stage = -1,
                         .phase = PHASE_SEND,
                         .step = step,
                         .microbatch = -1,
                         .op = -1,
                         .end_ns = end,
                         .name = "step"};
}

/* Both ends of a message from device 0 to device 1. */
static inline void traces_add_message(struct trace *t, int32_t microbatch, int64_t begin,
                                      int64_t left, int64_t arrived)
{
    struct span s = {.kind = SPAN_SEND,
                     .stream = STREAM_send,
                     .device = 0,
                     .peer = 1,
                     .stage = 0,
                     .phase = PHASE_F,
                     .microbatch = microbatch,
                     .begin_ns = begin,
                     .end_ns = left,
                     .bytes = 64,
                     .name = "lan"};
    trace_add(t, s);
    s.kind = SPAN_RECEIVE;
    s.stream = STREAM_receive;
    s.device = 1;
    s.peer = 0;
    s.stage = 1;
    s.end_ns = arrived;
    trace_add(t, s);
}

/* Of schema 1: without kernels. */
static inline struct trace *traces_random(struct arena *a, uint64_t seed, size_t n)
{
    static const char *const names[] = {"matmul",       "lan",       "a \"quoted\\\" link",
                                        "half \\there", "Gänge → 𝄞", ""};
    struct trace *t = traces_empty(a, "host");
    for (size_t i = 0; i < n; i++) {
        uint64_t at = i * 16;
        struct span s = {.kind = (enum span_kind)rng_below(seed, 0, at, SPAN_KERNEL),
                         .stream = (enum stream)rng_below(seed, 0, at + 1, STREAM_kernel),
                         .device = (int32_t)rng_below(seed, 0, at + 2, 2),
                         .peer = (int32_t)rng_below(seed, 0, at + 3, 3) - 1,
                         .stage = (int32_t)rng_below(seed, 0, at + 4, 2),
                         .phase = "FBIWUS"[rng_below(seed, 0, at + 5, 6)],
                         .step = (int32_t)rng_below(seed, 0, at + 6, 5),
                         .microbatch = (int32_t)rng_below(seed, 0, at + 7, 9) - 1,
                         .op = (int32_t)rng_below(seed, 0, at + 8, 50) - 1,
                         .part = (int32_t)rng_below(seed, 0, at + 9, 3),
                         .begin_ns = (int64_t)rng_below(seed, 0, at + 10, 1000),
                         .bytes = (int64_t)rng_below(seed, 0, at + 11, 3),
                         .key = rng_below(seed, 0, at + 12, 2) ? rng_u64(seed, 0, at + 13) : 0,
                         .name = names[rng_below(seed, 0, at + 14, 6)]};
        s.end_ns = s.begin_ns + (int64_t)(rng_u64(seed, 0, at + 15) >> 2);
        trace_add(t, s);
    }
    return t;
}

#endif
