/* traces/compare.h - prediction error of a simulation: a simulated and a measured trace, joined span by span. */
#ifndef TRACES_COMPARE_H
#define TRACES_COMPARE_H

#include "core/base/error.h"
#include "traces/trace.h"

struct compare_kind { /* one operator kind, or collective kind, or "send", "receive", "reduce" */
    const char *kind;
    double median, p95; /* of |sim − run| ÷ run over joined spans' durations */
    double bias;        /* median of (sim − run) ÷ run, signed */
    int64_t joined;
    int64_t sim_ns, run_ns; /* total joined duration of one step */
};
struct comparison {
    double iteration_error; /* |sim − run| ÷ run of iteration_ns */
    double iteration_bias;  /* signed */
    int64_t sim_iteration_ns, run_iteration_ns;
    int64_t joined, only_sim, only_run;
    size_t n_kinds;
    struct compare_kind *kinds; /* by descending run_ns */
};
/* Joins by (device, stage, phase, microbatch, stream, op, part); each run duration is the median over its steps after the
 * first (over all if there is only one). ERR_INPUT if the traces are of different plans (plan_hash). */
MUST_CHECK enum status compare_traces(struct arena *a, const struct trace *sim,
                                      const struct trace *run, struct comparison *out,
                                      struct error *err);

#endif
