/* exec/bench/copies.h - what copies between the host's pinned memory and a device take. */
#ifndef EXEC_BENCH_COPIES_H
#define EXEC_BENCH_COPIES_H

#include "core/base/error.h"
#include "exec/backend.h"

#include <stdint.h>

struct arena;

struct copy_sample {
    int64_t bytes;
    double up_s, down_s;           /* medians */
    double up_spread, down_spread; /* half of the middle half ÷ median */
};

/* Each of n sizes `repeats` times in each direction, between events of an open backend, after a round that nobody counts; sizes
 * take turns, so that drift shows as spread. out: (n). Needs 2 · the largest size. */
MUST_CHECK enum status bench_copies(struct arena *a, struct backend *b, const int64_t *bytes,
                                    int32_t n, int32_t repeats, struct copy_sample *out,
                                    struct error *err);

#endif
