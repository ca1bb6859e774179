/* exec/cuda/ops_elementwise.c - elementwise operators and bias gradients by exec/cuda/kernels_elementwise.h and
 * kernels_sums.h. */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_elementwise.h"
#include "exec/cuda/kernels_sums.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_add, cuda_op_multiply, cuda_op_gelu, cuda_op_gelu_grad, cuda_op_silu,
    cuda_op_silu_grad, cuda_op_relu, cuda_op_relu_grad, cuda_op_swiglu, cuda_op_swiglu_grad,
    cuda_op_scale, cuda_op_softcap, cuda_op_softcap_grad,
    cuda_op_bias, cuda_op_bias_gelu, cuda_op_bias_gelu_grad, cuda_op_bias_grad, cuda_op_accumulate,
    cuda_op_zero;

static enum status flat(struct cuda_context *x, const struct op_call *c, enum cuda_flat_kind kind,
                        struct error *err)
{
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, ~0u, ~0u, &dtype, err));
    return cuda_failed(cuda_flat(kind, dtype, c->input[0], c->input[1], c->input[2], c->attrs->scale, c->output[0],
                                 c->output[1], shape_elements(&c->shapes->input[0]), x->stream),
                       op_kind_name(c->kind), err);
}

#define FLAT(kind, which)                                                                          \
    enum status cuda_op_##kind(struct cuda_context *x, const struct op_call *c, struct error *err) \
    {                                                                                              \
        return flat(x, c, which, err);                                                             \
    }
#define TANH_OR_ERF(tanh, erf) (c->attrs->gelu_erf ? (erf) : (tanh))
FLAT(add, CUDA_FLAT_add)
FLAT(multiply, CUDA_FLAT_multiply)
FLAT(gelu, TANH_OR_ERF(CUDA_FLAT_gelu_tanh, CUDA_FLAT_gelu_erf))
FLAT(gelu_grad, TANH_OR_ERF(CUDA_FLAT_gelu_tanh_grad, CUDA_FLAT_gelu_erf_grad))
FLAT(silu, CUDA_FLAT_silu)
FLAT(silu_grad, CUDA_FLAT_silu_grad)
FLAT(relu, CUDA_FLAT_relu)
FLAT(relu_grad, CUDA_FLAT_relu_grad)
FLAT(swiglu, CUDA_FLAT_swiglu)
FLAT(swiglu_grad, CUDA_FLAT_swiglu_grad)
FLAT(scale, CUDA_FLAT_scale)
FLAT(softcap, CUDA_FLAT_softcap)
FLAT(softcap_grad, CUDA_FLAT_softcap_grad)
#undef FLAT

/* Rows of n with a shared row, input 1, which alone may be fp32. */
static enum status by_rows(struct cuda_context *x, const struct op_call *c, enum cuda_row_kind kind,
                           int64_t rows, int64_t n, struct error *err)
{
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, ~2u, ~0u, &dtype, err));
    bool wide = dtype != CUDA_fp32 && cuda_input_is_wide(c, 1);
    return cuda_failed(cuda_rows(kind, dtype, c->input[0], c->input[1], wide, c->input[2],
                                 c->output[0], rows, n, x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_bias(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    int32_t dim = c->attrs->dim;
    if (!dim) return by_rows(x, c, CUDA_ROW_bias, shape_rows(s), shape_last(s), err);
    struct cuda_dims d = cuda_dims_of(s, dim, c->shapes->input[1].rank);
    if (d.inner == 1) return by_rows(x, c, CUDA_ROW_bias, d.outer, d.middle, err);
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, ~2u, ~0u, &dtype, err));
    bool wide = dtype != CUDA_fp32 && cuda_input_is_wide(c, 1);
    return cuda_failed(cuda_channel_bias(dtype, c->input[0], c->input[1], wide, c->output[0],
                                         d.outer, d.middle, d.inner, x->stream),
                       "bias", err);
}

enum status cuda_op_bias_gelu(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    return by_rows(x, c, TANH_OR_ERF(CUDA_ROW_bias_gelu_tanh, CUDA_ROW_bias_gelu_erf),
                   shape_rows(s), shape_last(s), err);
}

enum status cuda_op_bias_gelu_grad(struct cuda_context *x, const struct op_call *c,
                                   struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    return by_rows(x, c, TANH_OR_ERF(CUDA_ROW_bias_gelu_tanh_grad, CUDA_ROW_bias_gelu_erf_grad),
                   shape_rows(s), shape_last(s), err);
}

/* Without inner dimensions a sum over columns; else over channels. */
enum status cuda_op_bias_grad(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    struct cuda_dims d = {shape_rows(s), shape_last(s), 1};
    if (c->attrs->dim) d = cuda_dims_of(s, c->attrs->dim, c->attrs->dims);
    struct cuda_sum sum = {.kind = CUDA_SUM_plain,
                           .dy = c->input[0],
                           .out = {c->output[0]},
                           .add = c->attrs->accumulate};
    void *scratch;
    TRY(cuda_major_dtype(c, 1, 0, &sum.dtype, err));
    sum.out_wide = sum.dtype != CUDA_fp32 && cuda_output_is_wide(c, 0);
    bool columns = d.inner == 1;
    size_t bytes = columns ? cuda_column_sums_scratch(sum.dtype, d.outer, d.middle)
                           : cuda_channel_sums_scratch(sum.dtype, d.outer, d.middle);
    TRY(cuda_scratch(x, bytes, &scratch, err));
    cudaError_t e =
        columns ? cuda_column_sums(&sum, d.outer, d.middle, scratch, x->stream)
                : cuda_channel_sums(&sum, d.outer, d.middle, d.inner, 1, scratch, x->stream);
    return cuda_failed(e, "bias_grad", err);
}

/* y += x, of any two dtypes. */
enum status cuda_op_accumulate(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return cuda_failed(cuda_cast(cuda_dtype_of(cuda_input_dtype(c, 0)), c->input[0],
                                 cuda_dtype_of(cuda_output_dtype(c, 0)), c->output[0], true,
                                 shape_elements(&c->shapes->input[0]), x->stream),
                       "accumulate", err);
}

enum status cuda_op_zero(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    int64_t bytes = shape_elements(&c->shapes->output[0]) * dtype_bytes(cuda_output_dtype(c, 0));
    if (bytes <= 0) return OK;
    return cuda_failed(cudaMemsetAsync(c->output[0], 0, (size_t)bytes, x->stream), "zero", err);
}
