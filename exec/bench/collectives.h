/* exec/bench/collectives.h - collectives as a program that does nothing else: what is timed is what the worker runs.
 *
 * Every microbatch of the program meets once for each that is asked for, so that all of them take turns and drift shows as
 * spread; group k of the program is collective k of the list, and its spans are the samples.
 */
#ifndef EXEC_BENCH_COLLECTIVES_H
#define EXEC_BENCH_COLLECTIVES_H

#include "core/base/error.h"
#include "core/cluster/cluster.h"
#include "core/program/program.h"

struct bench_collective {
    enum collective_kind kind; /* not all_to_all */
    enum collective_algorithm
        algorithm; /* and so the form: exec/device_transport/device_transport.h */
    int64_t
        bytes; /* of the whole tensor; made a little larger where shares want it: the group's elements tell */
    int64_t
        first_share; /* parts are first_share : 1 : 1 …, evenly for 1; all_reduce has no parts */
};

/* Among n devices of the cluster, each joined to each by one link. ERR_INPUT: two of them are not. */
MUST_CHECK enum status bench_collectives(struct arena *a, const struct cluster *c,
                                         const int32_t *device, int32_t n,
                                         const struct bench_collective *what, int32_t count,
                                         int32_t repeats, struct program *out, struct error *err);

#endif
