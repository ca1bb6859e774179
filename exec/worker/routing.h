/* exec/worker/routing.h - how unevenly a call of gating chose its experts, for traces: no benchmark can know what that costs
 * devices that have a shard of the experts each.
 *
 * A result is variance ÷ mean² of the rows of the experts, in millionths. */
#ifndef EXEC_WORKER_ROUTING_H
#define EXEC_WORKER_ROUTING_H

#include "exec/backend.h"

#include <stdint.h>

/* gates: the call's output, in the host's memory. */
int32_t routing_uneven_ppm(const struct op_call *c, const void *gates);
/* Of a call that has ended; its gates are read from the device. */
MUST_CHECK enum status routing_measure(struct backend *b, const struct op_call *c, int32_t *out_ppm,
                                       struct error *err);

#endif
