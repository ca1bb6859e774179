/* core/graph/op_work.h - the FLOPs, bytes and scratch rules of the operator table's rows.
 *
 * Private to core/graph/op.c; others call op_flops, op_bytes_read, op_bytes_written and op_scratch.
 */
#ifndef CORE_GRAPH_OP_WORK_H
#define CORE_GRAPH_OP_WORK_H

#include "core/graph/op.h"

typedef double flops_rule(const struct op_attrs *attrs, const struct op_shapes *shapes);
/* b: bytes of one element that is not int32 */
typedef void bytes_rule(const struct op_attrs *attrs, const struct op_shapes *shapes, int64_t b,
                        int64_t *read, int64_t *written);

/* Upper bound of a CUDA kernel's scratch bytes. t: dtype of every operand that is not wide */
typedef int64_t scratch_rule(const struct op_attrs *attrs, const struct op_shapes *shapes,
                             enum dtype t);

#define FLOPS(name) flops_rule flops_##name;
#define BYTES(name) bytes_rule bytes_##name;
#define SCRATCH(name) scratch_rule scratch_##name;
#include "core/graph/op_rows.inc"

/* attrs.window, or 0 if it covers the whole sequence. */
int64_t op_work_attention_window(const struct op_attrs *attrs, const struct op_shapes *shapes);

#endif
