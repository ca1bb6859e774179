/* exec/host_transport/collective_internal.h - shared by exec/host_transport/collective.c and
 * exec/host_transport/tensor_collective.c. */
#ifndef EXEC_HOST_TRANSPORT_COLLECTIVE_INTERNAL_H
#define EXEC_HOST_TRANSPORT_COLLECTIVE_INTERNAL_H

#include "exec/host_transport/collective.h"

const struct collective_order *collective_current(const struct collectives *c);
/* Begins a step of the running collective; then its sends and receives, each over a wire. */
void collective_begin_part(struct collectives *c, int32_t part, int64_t at_ns);
void collective_send(struct collectives *c, int32_t wire, char *data, int64_t bytes);
void collective_receive(struct collectives *c, int32_t wire, char *data, int64_t bytes);
int64_t collective_part_end_ns(const struct collectives *c);
void collective_report_part(struct collectives *c); /* records its span if it had a message */
void collective_finish(struct collectives *c, int64_t end_ns);

/* exec/host_transport/tensor_collective.c, for a collective inside calls: begin; end of a step; the member that it
 * waits for. */
void tensor_collective_begin(struct collectives *c, int64_t at_ns);
void tensor_collective_part_over(struct collectives *c);
int32_t tensor_collective_waits_for(const struct collectives *c);

#endif
