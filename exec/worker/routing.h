/* exec/worker/routing.h - which experts the gating calls chose: their imbalance and their counts, for traces.
 *
 * No benchmark can predict the cost of experts if devices each hold a shard of them, because it follows the counts. Only runs with a
 * trace count. Imbalance of a call: variance ÷ mean² of the rows per expert, in ppm. Counts of a forward are added up over the run; those
 * of a forward that is repeated for the backward are not. Cost: one pass over the gates. */
#ifndef EXEC_WORKER_ROUTING_H
#define EXEC_WORKER_ROUTING_H

#include "exec/backend.h"
#include "traces/trace.h"

#include <stdint.h>

struct comm;
struct program;

struct routing_count; /* of one block on one stage; routing.c */
struct routing { /* of one rank */
    struct arena *a; /* NULL: the run has no trace, or the model no experts */
    const struct program *p;
    struct routing_count *counts;
    size_t n, capacity;
};

void routing_open(struct routing *r, struct arena *a, const struct program *p);
/* Counts a completed gating call of span s (its stage and phase) and returns its imbalance. gates: the call's output, in host memory. */
int32_t routing_count_call(struct routing *r, const struct span *s, const struct op_call *c, const void *gates);
/* The same; copies the gates from the device. */
MUST_CHECK enum status routing_measure(struct routing *r, struct backend *b, const struct span *s, const struct op_call *c,
                                       int32_t *out_ppm, struct error *err);
/* All ranks together, if any has a trace: the sums of all ranks, into t on rank 0 (NULL elsewhere). Devices that compute the same gates
 * count once. */
void routing_gather(const struct routing *r, struct arena *a, struct comm *c, int64_t steps, struct trace *t);

#endif
