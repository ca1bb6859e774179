/* exec/bench/bench.h - micro-benchmarks as programs: what they time is what the worker runs.
 *
 * bench_ops makes a one-lane program whose every microbatch runs each given operator once (`repeats` microbatches, so
 * samples are interleaved and drift shows as spread); bench_link a two-lane program that sends messages of each size
 * `repeats` times. worker_run's trace of them holds the samples.
 * In half precision an operator's operands are as wide as in the program that it comes from (program_op.wide_input); updates
 * have fp32 beside them. Other mixtures are ERR_INPUT.
 */
#ifndef EXEC_BENCH_BENCH_H
#define EXEC_BENCH_BENCH_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"

MUST_CHECK enum status bench_ops(struct arena *a, const struct program_op *ops, int32_t n,
                                 const struct program_device *device, int32_t repeats,
                                 int64_t vocabulary, struct program *out, struct error *err);
MUST_CHECK enum status bench_link(struct arena *a, const struct cluster *c, int32_t from,
                                  int32_t to, const int64_t *bytes, int32_t n, int32_t repeats,
                                  struct program *out, struct error *err);

#endif
