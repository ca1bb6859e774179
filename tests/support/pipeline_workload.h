/* tests/support/pipeline_workload.h - strict 1F1B to time simulators on, with makespans that are known.
 *
 * One device a stage. Stage s of P (from 0) begins with min(M, P−s−1) forwards, then takes forwards and backwards in turn, then
 * the remaining backwards. Forward 1 ms, backward 2 ms; a message occupies its link for 400 us and arrives 10 us later; a FIFO link
 * per direction and pair of neighbours; receives are posted from the start.
 * Mixed (W1h): stage s takes {1, 1.25, 1.5, 2}[s mod 4] times as long, and every link with s mod 8 = 7 is ten times as slow
 * (4 ms, 50 us).
 */
#ifndef TESTS_SUPPORT_PIPELINE_WORKLOAD_H
#define TESTS_SUPPORT_PIPELINE_WORKLOAD_H

#include "tests/support/pipelines.h"

static const struct {
    int32_t stages, microbatches;
    bool mixed;
    int64_t makespan_ns;
} w1_known[] = {
    {4, 8, false, 39560000},         {64, 64, false, 483500000}, {64, 1024, false, 4138400000},
    {64, 16384, false, 62616800000}, {4, 8, true, 61710000},     {64, 1024, true, 9102660000},
};
enum { W1_KNOWN = sizeof w1_known / sizeof *w1_known };

static inline void pipeline_workload_run(struct order *o, struct arena *a, int64_t repeat,
                                         int32_t n, struct call first, struct call second)
{
    if (repeat < 1) return;
    struct order_run *r = &o->runs[o->n_runs++];
    *r = (struct order_run){(int32_t)repeat, n, ARENA_ARRAY(a, struct call, 2)};
    r->calls[0] = first, r->calls[1] = second;
    o->n_calls += repeat * n;
}

/* Orders are coded as they are counted, so that microbatches cost nothing to make. */
static inline struct pipes_made *pipeline_workload_make(struct arena *a, int32_t stages,
                                                        int32_t microbatches, bool mixed)
{
    static const double slow[4] = {1, 1.25, 1.5, 2};
    /* As many receives ahead and buffers as never matter here (the makespans are those of any number). */
    struct pipes in = {.n_stages = stages, .microbatches = 1, .ahead = 4, .buffers = 4};
    for (int32_t s = 0; s < stages; s++) {
        double times = mixed ? slow[s % 4] : 1;
        bool far = mixed && s % 8 == 7;
        in.forward_ns[s] = (int64_t)(1000000 * times),
        in.backward_ns[s] = (int64_t)(2000000 * times);
        in.transfer_ns[s] = far ? 4000000 : 400000, in.latency_ns[s] = far ? 50000 : 10000;
    }
    struct pipes_made *m = pipes_make(a, &in);
    const struct call none = {0};
    for (int32_t s = 0; s < stages; s++) {
        int32_t w = microbatches < stages - s - 1 ? microbatches : stages - s - 1;
        struct order *o = &m->program.orders[s];
        *o = (struct order){.runs = ARENA_ARRAY(a, struct order_run, 4)};
        pipeline_workload_run(o, a, w, 1, (struct call){0, 0, 0}, none);
        pipeline_workload_run(o, a, microbatches - w, 2, (struct call){0, w, 0},
                              (struct call){1, 0, 0});
        pipeline_workload_run(o, a, w, 1, (struct call){1, microbatches - w, 0}, none);
        pipeline_workload_run(o, a, 1, 1, (struct call){2, -1, 0}, none);
        m->program.stages[s].microbatches = microbatches;
    }
    return m;
}

#endif
