/* exec/bench/bench.h - micro-benchmarks as programs, so that they time what the worker runs.
 *
 * bench_ops makes a one-lane program whose every microbatch runs each given operator once (`repeats` microbatches:
 * samples are interleaved, and drift shows as spread). bench_link makes a two-lane program that sends messages of
 * each size `repeats` times. The samples are the spans of worker_run's trace. In half precision an operator's fp32
 * operands are those of the program it comes from (program_op.wide_input); updates have fp32 operands. ERR_INPUT for
 * other mixtures.
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
