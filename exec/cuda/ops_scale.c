/* exec/cuda/ops_scale.c - overflow, square_sum, clip and rescale (core/graph/loss_scale.h) by exec/cuda/kernels_sums.h. */
#include "core/graph/loss_scale.h"
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_sums.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_overflow, cuda_op_square_sum, cuda_op_clip, cuda_op_rescale;

typedef cudaError_t put_squares(const double *squares, bool add, void *out, bool out_fp64, cudaStream_t stream);

/* Squares are summed in fp64, after the blocks' partial sums. */
static enum status sum_squares(struct cuda_context *x, const struct op_call *c, put_squares *put, struct error *err)
{
    int64_t n = shape_elements(&c->shapes->input[0]);
    size_t parts = cuda_squares_scratch(n);
    enum dtype out = cuda_output_dtype(c, 0);
    void *scratch;
    if (dtype_is_half(out))
        return error_set(err, ERR_INPUT, "%s: the output has dtype %s, which is not supported", op_kind_name(c->kind), dtype_name(out));
    TRY(cuda_scratch(x, parts + sizeof(double), &scratch, err));
    double *sum = (double *)((char *)scratch + parts);
    if (c->attrs->blank) n = 0;
    TRY(cuda_failed(cuda_squares(cuda_dtype_of(cuda_input_dtype(c, 0)), c->input[0], n, false, sum,
                                 scratch, x->stream),
                    op_kind_name(c->kind), err));
    return cuda_failed(put(sum, c->attrs->accumulate, c->output[0], out == DTYPE_fp64, x->stream), op_kind_name(c->kind), err);
}

enum status cuda_op_overflow(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return sum_squares(x, c, cuda_overflow, err);
}

enum status cuda_op_square_sum(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return sum_squares(x, c, cuda_square_sum, err);
}

enum status cuda_op_clip(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    enum dtype t = cuda_output_dtype(c, 0);
    if (dtype_is_half(t) || cuda_input_dtype(c, 0) != t)
        return error_set(err, ERR_INPUT, "clip: the norm has dtype %s, which is not supported", dtype_name(t));
    return cuda_failed(cuda_clip(c->input[0], c->scale ? c->scale + LOSS_SCALE_FACTOR : NULL, c->optimizer->max_grad_norm, c->output[0],
                                 t == DTYPE_fp64, x->stream),
                       "clip", err);
}

enum status cuda_op_rescale(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct optimizer_step *o = c->optimizer;
    if (cuda_input_dtype(c, 0) != DTYPE_fp32 || cuda_output_dtype(c, 0) != DTYPE_fp32)
        return error_set(err, ERR_INPUT, "rescale: the numbers of a loss scale are fp32, not %s",
                         dtype_name(c->dtype));
    struct cuda_scale_step r = {.overflow = c->input[0],
                                .numbers = c->output[0],
                                .grows_after = c->attrs->grows_after,
                                .step = o->step,
                                .lr = o->lr,
                                .beta1 = o->beta1,
                                .beta2 = o->beta2};
    return cuda_failed(cuda_rescale(&r, x->stream), "rescale", err);
}
