/* exec/host_transport/collective_internal.h - shared by exec/host_transport/collective.c, segment_rounds.c and tensor_collective.c. */
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

/* Elements [first, last) of the running collective's list of segments, in the memory dtype, and `staging`, in the wire dtype: rounded
 * in flight, added in fp32. */
enum copy { COPY_OUT, COPY_IN, ADD_IN };
void collective_pass(const struct collectives *c, int64_t first, int64_t last, char *staging, enum copy how);
/* The address of these elements if they are contiguous, of a wire dtype that is the memory's; else NULL. */
char *collective_contiguous(const struct collectives *c, int64_t first, int64_t last);

/* exec/host_transport/segment_rounds.c, for an all-reduce in rounds: begin; end of a round. */
void segment_rounds_begin(struct collectives *c, int64_t at_ns);
void segment_rounds_part_over(struct collectives *c);

/* exec/host_transport/tensor_collective.c, for a collective inside calls: begin; end of a step. */
void tensor_collective_begin(struct collectives *c, int64_t at_ns);
void tensor_collective_part_over(struct collectives *c);

#endif
