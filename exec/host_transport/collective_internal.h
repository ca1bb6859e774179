/* exec/host_transport/collective_internal.h - what sums and collectives share; for exec/host_transport/collective.c and exec/host_transport/tensor_collective.c alone. */
#ifndef EXEC_HOST_TRANSPORT_COLLECTIVE_INTERNAL_H
#define EXEC_HOST_TRANSPORT_COLLECTIVE_INTERNAL_H

#include "exec/host_transport/collective.h"

const struct collective_order *collective_current(const struct collectives *c);
/* A part of the running collective begins; then what it sends and receives, over which wire. */
void collective_begin_part(struct collectives *c, int32_t part, int64_t at_ns);
void collective_send(struct collectives *c, int32_t wire, char *data, int64_t bytes);
void collective_receive(struct collectives *c, int32_t wire, char *data, int64_t bytes);
int64_t collective_part_end_ns(const struct collectives *c);
void collective_report_part(struct collectives *c); /* its span, where it had a message */
void collective_finish(struct collectives *c, int64_t end_ns);

/* exec/host_transport/tensor_collective.c: the running collective is a collective. It begins; its part has ended; the member that it waits for. */
void tensor_collective_begin(struct collectives *c, int64_t at_ns);
void tensor_collective_part_over(struct collectives *c);
int32_t tensor_collective_waits_for(const struct collectives *c);

#endif
