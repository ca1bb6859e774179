/* sim/uncertainty/montecarlo.h - a prediction with its uncertainty: many simulations with jitter, on several threads.
 *
 * Sample i is a function of (program, costs, jitter, i) alone. Each thread has its own arena and its own cost cache, results
 * are stored by index and reduced in order of index: the same bytes for any number of threads.
 * The interval is of one steady step's time, as somebody would meet it; error_ns is the standard error of the mean.
 * Order statistics (nearest rank); `low` and `high` bound an end with 95 % confidence by the binomial law of how many samples
 * lie below it, exact for any distribution (e.g. David and Nagaraja, Order Statistics, 7.1).
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

/* work(user, index, thread) for every index 0 … n-1, each once, in any order, on `threads` threads numbered from 0 (the
 * caller's is one of them; threads that the system refuses are done without). It returns when all are done. */
void montecarlo_each(int64_t n, int32_t threads,
                     void (*work)(void *user, int64_t index, int32_t thread), void *user);

struct montecarlo_end {
    double value, low, high; /* 95 % confidence, within the samples; bounded: both ends are ranks */
    bool bounded;            /* false: too few samples to bound it on both sides */
};
struct montecarlo_summary {
    double mean, error; /* error: standard error of the mean, 0 of one sample */
    struct montecarlo_end p5, p50, p95;
};
/* Of n >= 1 values, which are sorted in place after the mean was taken in their order. */
void montecarlo_summarise(double *values, int64_t n, struct montecarlo_summary *out);

struct montecarlo_options {
    int32_t samples, threads; /* >= 1 */
    int32_t steps;            /* as in sim_options */
};
struct montecarlo_device {
    struct montecarlo_summary busy_ns, idle_ns; /* of the compute stream in that step */
    int64_t peak_bytes;                         /* the most of all samples */
};
struct montecarlo_result {
    int32_t samples;
    double *iteration_ns; /* (samples), by sample */
    struct montecarlo_summary iteration;
    struct montecarlo_device *devices; /* (n_devices) */
};
/* Errors are those of sim_run and jitter_new; of several samples that fail the first by index speaks. */
MUST_CHECK enum status montecarlo_run(struct arena *a, const struct program *p,
                                      const struct profile *f, const struct cluster *c,
                                      const struct jitter_model *m, uint64_t seed,
                                      const struct montecarlo_options *o,
                                      struct montecarlo_result *out, struct error *err);

#endif
