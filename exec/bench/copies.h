/* exec/bench/copies.h - times copies between pinned host memory and a device. */
#ifndef EXEC_BENCH_COPIES_H
#define EXEC_BENCH_COPIES_H

#include "core/base/error.h"
#include "exec/backend.h"

#include <stdint.h>

struct arena;

struct copy_sample {
    int64_t bytes;
    double up_s, down_s;           /* median seconds */
    double up_spread, down_spread; /* half of the interquartile range ÷ median */
};

/* Copies each of n sizes `repeats` times in each direction, between events of an open backend, after an untimed
 * warm-up round; sizes are interleaved, so that drift shows as spread. out: (n). Needs memory of 2 · the largest
 * size. */
MUST_CHECK enum status bench_copies(struct arena *a, struct backend *b, const int64_t *bytes,
                                    int32_t n, int32_t repeats, struct copy_sample *out,
                                    struct error *err);

#endif
