/* sim/uncertainty/montecarlo.h - prediction intervals by Monte Carlo: many simulations with jitter, on several threads.
 *
 * Sample i is a function of (program, costs, jitter, i) alone. Each thread has its own arena and its own cost cache; results
 * are stored and reduced in order of index. The output is therefore the same for any number of threads.
 * The interval is that of one steady step's time; error_ns is the standard error of the mean.
 * Percentiles are order statistics (nearest rank); `low` and `high` are their 95 % confidence bounds by the binomial law of
 * the number of samples below, exact for any distribution (e.g. David and Nagaraja, Order Statistics, 7.1).
 * Cost: samples × sim_run ÷ threads.
 */
#ifndef SIM_UNCERTAINTY_MONTECARLO_H
#define SIM_UNCERTAINTY_MONTECARLO_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "profiles/profile.h"
#include "sim/jitter.h"

#include <stdbool.h>
#include <stdint.h>

struct montecarlo_end {
    double value, low, high; /* 95 % confidence bounds, both of them samples if bounded */
    bool bounded;            /* false: too few samples to bound it on both sides */
};
struct montecarlo_summary {
    double mean, error; /* error: standard error of the mean, 0 of one sample */
    struct montecarlo_end p5, p50, p95;
};
/* Summary of n >= 1 values. The mean is taken in their order; then they are sorted in place. */
void montecarlo_summarise(double *values, int64_t n, struct montecarlo_summary *out);

struct montecarlo_options {
    int32_t samples, threads; /* >= 1 */
    int32_t steps;            /* as in sim_options */
};
struct montecarlo_device {
    struct montecarlo_summary busy_ns, idle_ns; /* of the compute stream in that step */
    int64_t peak_bytes;                         /* maximum over all samples */
};
struct montecarlo_result {
    int32_t samples;
    double *iteration_ns; /* (samples), by sample */
    struct montecarlo_summary iteration;
    struct montecarlo_device *devices; /* (n_devices) */
};
/* Errors: as sim_run and jitter_new; if several samples fail, the error of the lowest index. */
MUST_CHECK enum status montecarlo_run(struct arena *a, const struct program *p,
                                      const struct profile *f, const struct cluster *c,
                                      const struct jitter_model *m, uint64_t seed,
                                      const struct montecarlo_options *o,
                                      struct montecarlo_result *out, struct error *err);

#endif
