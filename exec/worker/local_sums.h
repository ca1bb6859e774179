/* exec/worker/local_sums.h - gradient reductions between the chunks of one discrete device (ALGORITHM_LOCAL).
 *
 * They run as the device's own operators on its compute stream, in the order of members, so that the bits equal those
 * of a host lane. */
#ifndef EXEC_WORKER_LOCAL_SUMS_H
#define EXEC_WORKER_LOCAL_SUMS_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stdbool.h>
#include <stdint.h>

struct collective_end;
struct rank;

struct local_reduce {
    int32_t n; /* calls: first additions, then copies */
    struct local_piece {
        char *to, *from;
        int64_t elements;
        bool adds;
        struct op_shapes shapes;
    } * pieces; /* (n) */
};

/* All fields belong to local_sums.c. */
struct local_sums {
    struct local_reduce *at; /* (n_groups) */
};

void local_sums_open(struct local_sums *s, const struct rank *r);
/* first: this rank's first member of the group, with its segments. */
void local_sums_add(struct local_sums *s, const struct rank *r, int32_t group,
                    const struct collective_end *first);
MUST_CHECK enum status local_sums_run(const struct local_sums *s, struct rank *r, int32_t group,
                                      struct error *err);

#endif
