/* exec/cuda/ops_outer.c - local SGD's operators by exec/cuda/kernels_outer.h. */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_outer.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_outer_delta, cuda_op_outer_average, cuda_op_outer_nesterov;

enum status cuda_op_outer_delta(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return cuda_failed(cuda_outer_delta(cuda_dtype_of(cuda_output_dtype(c, 0)), c->input[0], c->input[1],
                                        c->output[0], c->attrs->scale,
                                        shape_elements(&c->shapes->input[0]), x->stream),
                       op_kind_name(c->kind), err);
}

/* Outputs p, a, (v,) g, and p once more in half precision. */
static enum status outer(struct cuda_context *x, const struct op_call *c, bool velocity,
                         struct error *err)
{
    const struct optimizer_step *o = c->optimizer;
    int32_t last = velocity ? 3 : 2;
    bool narrows = c->attrs->narrows;
    struct cuda_outer u = {.dtype = cuda_dtype_of(cuda_output_dtype(c, 0)),
                           .p = c->output[0],
                           .a = c->output[1],
                           .v = velocity ? c->output[2] : NULL,
                           .g = c->output[last],
                           .copy = narrows ? c->output[last + 1] : NULL,
                           .copy_dtype = cuda_dtype_of(c->dtype),
                           .lr = o->outer_lr,
                           .momentum = o->outer_momentum,
                           .alpha = c->attrs->scale};
    return cuda_failed(cuda_outer(&u, shape_elements(&c->shapes->input[0]), x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_outer_average(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return outer(x, c, false, err);
}

enum status cuda_op_outer_nesterov(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return outer(x, c, true, err);
}
