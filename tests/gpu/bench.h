/* tests/gpu/bench.h - results of gpu-bench, in memory shared with its forked ranks. */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

enum { BENCH_ROWS_MAX = 256, BENCH_ROUNDS_MAX = 8, BENCH_TRAINED_MAX = 8, BENCH_NAME = 64 };

/* Sizes. GPU_SMALL=1: small enough for a CPU; the results are then no measurements. */
struct bench_size {
    int64_t copy_bytes, product_rows;
    int32_t repeats, copies, steps;
};

struct bench_row { /* operators of one key */
    char key[200];
    enum op_kind kind;
    int32_t times; /* in the program's procedures: a step of one microbatch */
    double median_s, spread, floor_s;
    bool by_flops; /* the floor is the product's */
};

struct bench_kernels {
    char device[64], version[120];
    double copy_Bps, product_flops; /* what the GPU can do, measured; product in bf16; 0: not measured */
    int32_t n_ops, n_rows;          /* operators of the program; measured so far */
    struct bench_row rows[BENCH_ROWS_MAX];
};

struct bench_trained { /* rounds without a trace and with one, in turn */
    char name[BENCH_NAME];
    int32_t rounds, done;
    double plain[BENCH_ROUNDS_MAX], traced[BENCH_ROUNDS_MAX]; /* tokens/s, of the median step */
    double loss;                                                /* after the last step */
    double kernels; /* tokens/s of further steps whose trace has kernels; 0: not available */
    char why_not[160];
    int64_t memory_bytes; /* that the program has on the GPU */
};

struct bench_results {
    struct bench_size size;
    struct bench_kernels kernels;
    int32_t n_trained;
    struct bench_trained trained[BENCH_TRAINED_MAX];
};

/* The first stage's operators of a program, each key once, with their lower bounds: bytes that they must move
 * (core/graph/op.h) ÷ the bandwidth of a large copy, or FLOPs ÷ the rate of a large product, whichever is longer.
 * Runs in a rank of its own; what is measured is in `out` at once, so that it outlives the rank. */
MUST_CHECK enum status bench_measure_kernels(struct arena *a, const char *program,
                                             const struct bench_size *size,
                                             struct bench_kernels *out, struct error *err);
void bench_sort_rows(struct bench_kernels *k); /* by total time, descending */
/* Least share of the copy's bandwidth among operators that memory bounds and whose floor is 20 us and more (what takes less may
 * find its operands in caches); NaN where there is none. */
double bench_least_share(const struct bench_kernels *k);

#endif
