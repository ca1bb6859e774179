/* exec/cuda/operands.h - dtypes of a call's operands, for the files that turn calls into launches. */
#ifndef EXEC_CUDA_OPERANDS_H
#define EXEC_CUDA_OPERANDS_H

#include "exec/backend.h"
#include "exec/cuda/dtype.h"

/* Not for int32 operands (ids). */
static inline enum cuda_dtype cuda_dtype_of(enum dtype t)
{
    switch (t) {
    case DTYPE_fp64:
        return CUDA_fp64;
    case DTYPE_bf16:
        return CUDA_bf16;
    case DTYPE_fp16:
        return CUDA_fp16;
    default:
        return CUDA_fp32;
    }
}

static inline bool cuda_input_is_wide(const struct op_call *c, int32_t i)
{
    return dtype_is_half(c->dtype) && c->wide_input >> i & 1;
}
static inline bool cuda_output_is_wide(const struct op_call *c, int32_t i)
{
    return dtype_is_half(c->dtype) && c->wide_output >> i & 1;
}
static inline enum dtype cuda_input_dtype(const struct op_call *c, int32_t i)
{
    return cuda_input_is_wide(c, i) ? DTYPE_fp32 : c->dtype;
}
static inline enum dtype cuda_output_dtype(const struct op_call *c, int32_t i)
{
    return cuda_output_is_wide(c, i) ? DTYPE_fp32 : c->dtype;
}

/* The kernel dtype of a call: that of its major operands (bits `in` and `out`), which must all be equal; others may
 * be wider. ERR_INPUT for a mixture that no kernel supports. */
MUST_CHECK enum status cuda_major_dtype(const struct op_call *c, uint32_t in, uint32_t out,
                                        enum cuda_dtype *dtype, struct error *err);

/* A shape as (outer, middle, inner); `middle` is `dims` dimensions from dim on. */
struct cuda_dims {
    int64_t outer, middle, inner;
};
static inline struct cuda_dims cuda_dims_of(const struct shape *x, int32_t dim, int32_t dims)
{
    struct cuda_dims d = {1, 1, 1};
    for (int32_t i = 0; i < x->rank; i++)
        *(i < dim ? &d.outer : i < dim + dims ? &d.middle : &d.inner) *= x->dim[i];
    return d;
}

#endif
