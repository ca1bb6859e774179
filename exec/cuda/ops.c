/* exec/cuda/ops.c - the operator table of the device, from the rows of core/graph/op_rows.inc.
 *
 * A supported kind has a function cuda_op_NAME in one of the ops_*.c files; without it the plugin does not link. An
 * unsupported kind has a reason, which becomes the error.
 */
#include "exec/cuda/ops.h"

#include "exec/cuda/operands.h"

#define OP(name, ...) cuda_op cuda_op_##name;
#include "core/graph/op_rows.inc"

cuda_op *const cuda_ops[OP_KIND_COUNT] = {
#define OP(name, ...) [OP_##name] = cuda_op_##name,
#include "core/graph/op_rows.inc"
};

const char *const cuda_ops_why_not[OP_KIND_COUNT] = {
#define OP_MEASURED(name, ...) [OP_##name] = "a measured layer has no operators to run",
#define OP_GROUP(name, ...) [OP_##name] = "this operator is a collective of several devices",
#include "core/graph/op_rows.inc"
};

enum status cuda_major_dtype(const struct op_call *c, uint32_t in, uint32_t out,
                              enum cuda_dtype *dtype, struct error *err)
{
    int32_t n_in = c->shapes->n_inputs, n_out = c->shapes->n_outputs;
    int32_t wide = 0, narrow = 0, minor_narrow = 0;
    for (int32_t i = 0; i < n_in; i++) {
        if (op_input_is_int32(c->kind, i)) continue;
        bool is_wide = cuda_input_is_wide(c, i), major = in >> i & 1;
        wide += major && is_wide, narrow += major && !is_wide, minor_narrow += !major && !is_wide;
    }
    for (int32_t i = 0; i < n_out; i++) {
        bool is_wide = cuda_output_is_wide(c, i), major = out >> i & 1;
        wide += major && is_wide, narrow += major && !is_wide, minor_narrow += !major && !is_wide;
    }
    *dtype = cuda_dtype_of(wide ? DTYPE_fp32 : c->dtype);
    if (!wide || (!narrow && !minor_narrow)) return OK;
    return error_set(err, ERR_INPUT,
                     "%s in %s: no kernel where operands of inputs %x and outputs %x are fp32",
                     op_kind_name(c->kind), dtype_name(c->dtype), (unsigned)c->wide_input,
                     (unsigned)c->wide_output);
}
