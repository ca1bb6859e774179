/* exec/worker/routing.h - the imbalance of a gating call's expert choice, for traces.
 *
 * No benchmark can predict its cost if devices each hold a shard of the experts. Unit: variance ÷ mean² of the rows
 * per expert, in ppm. */
#ifndef EXEC_WORKER_ROUTING_H
#define EXEC_WORKER_ROUTING_H

#include "exec/backend.h"

#include <stdint.h>

/* gates: the call's output, in host memory. */
int32_t routing_uneven_ppm(const struct op_call *c, const void *gates);
/* Of a completed call; copies its gates from the device. */
MUST_CHECK enum status routing_measure(struct backend *b, const struct op_call *c, int32_t *out_ppm,
                                       struct error *err);

#endif
