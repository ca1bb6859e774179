/* exec/bench/collectives.h - collectives as a program of nothing else, so that the benchmark times what the worker
 * runs.
 *
 * Every microbatch runs each requested collective once, so samples are interleaved and drift shows as spread. Group k
 * of the program is collective k of the list; its spans are the samples.
 */
#ifndef EXEC_BENCH_COLLECTIVES_H
#define EXEC_BENCH_COLLECTIVES_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"

struct bench_collective {
    enum collective_kind kind; /* not all_to_all */
    enum collective_algorithm
        algorithm; /* determines the form: exec/device_transport/device_transport.h */
    int64_t
        bytes; /* of the unsharded tensor; rounded up slightly if the shards require it (see the group's elements) */
    int64_t
        first_share; /* shards are first_share : 1 : 1 …; 1: even; all_reduce has none */
};

/* Among n devices of the cluster, with a link between every two. ERR_INPUT: two of them have none. */
MUST_CHECK enum status bench_collectives(struct arena *a, const struct cluster *c,
                                         const int32_t *device, int32_t n,
                                         const struct bench_collective *what, int32_t count,
                                         int32_t repeats, struct program *out, struct error *err);

#endif
