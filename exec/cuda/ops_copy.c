/* exec/cuda/ops_copy.c - operators that move shards of tensors, by exec/cuda/kernels_copy.h. */
#include "core/graph/exchange.h"
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_copy.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_slice, cuda_op_paste, cuda_op_local_slice, cuda_op_add_to_slice, cuda_op_prepend,
    cuda_op_to_rows;

static const void *at(const void *p, int64_t elements, enum dtype t)
{
    return (const char *)p + elements * dtype_bytes(t);
}

static enum status clear(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    int64_t bytes = shape_elements(&c->shapes->output[0]) * dtype_bytes(cuda_output_dtype(c, 0));
    if (bytes <= 0) return OK;
    return cuda_failed(cudaMemsetAsync(c->output[0], 0, (size_t)bytes, x->stream),
                       op_kind_name(c->kind), err);
}

/* Copies the slice of `whole` that attrs describe, to it or from it. */
static enum status copy_part(struct cuda_context *x, const struct op_call *c,
                             const struct shape *whole, const struct shape *part, bool to,
                             struct error *err)
{
    int32_t dim = c->attrs->dim;
    struct cuda_dims d = cuda_dims_of(whole, dim, 1);
    struct cuda_runs r = {.outer = d.outer, .run = part->dim[dim] * d.inner};
    int64_t step = d.middle * d.inner, first = c->attrs->start * d.inner;
    TRY(cuda_major_dtype(c, ~0u, ~0u, &r.dtype, err));
    enum dtype t = cuda_input_dtype(c, 0);
    r.from = to ? c->input[0] : at(c->input[0], first, t);
    r.to = to ? (void *)(uintptr_t)at(c->output[0], first, t) : c->output[0];
    r.from_step = to ? r.run : step;
    r.to_step = to ? step : r.run;
    return cuda_failed(cuda_copy_runs(&r, x->stream), op_kind_name(c->kind), err);
}

enum status cuda_op_slice(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return copy_part(x, c, &c->shapes->input[0], &c->shapes->output[0], false, err);
}

enum status cuda_op_paste(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    if (c->attrs->blank) TRY(clear(x, c, err));
    return copy_part(x, c, &c->shapes->output[0], &c->shapes->input[0], true, err);
}

/* Between an unsharded operand and one device's shard of a dimension, stored as consecutive runs. A half-precision
 * shard may be added to an fp32 operand: a parameter's gradient. */
static enum status move_part(struct cuda_context *x, const struct op_call *c,
                             const struct shape *whole, bool take, struct error *err)
{
    const struct exchange *m = c->attrs->exchange;
    const struct run *run = m->shards->run + m->self * m->shards->n_runs;
    struct cuda_dims d = cuda_dims_of(whole, m->dim, 1);
    int64_t part_step = division_extent(m->shards, m->self) * d.inner, behind = 0;
    struct cuda_runs r = {.outer = d.outer, .add = !take};
    TRY(cuda_major_dtype(c, ~0u, cuda_input_is_wide(c, 0) || take ? ~0u : 0, &r.dtype, err));
    r.to_wide = r.dtype != CUDA_fp32 && cuda_output_is_wide(c, 0);
    enum dtype from = cuda_input_dtype(c, 0), to = cuda_output_dtype(c, 0);
    for (int32_t k = 0; k < m->shards->n_runs; k++, behind += r.run) {
        int64_t first = run[k].first * d.inner;
        r.run = run[k].n * d.inner;
        r.from = at(c->input[0], take ? first : behind, from);
        r.to = (void *)(uintptr_t)at(c->output[0], take ? behind : first, to);
        r.from_step = take ? d.middle * d.inner : part_step;
        r.to_step = take ? part_step : d.middle * d.inner;
        TRY(cuda_failed(cuda_copy_runs(&r, x->stream), op_kind_name(c->kind), err));
    }
    return OK;
}

enum status cuda_op_local_slice(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return move_part(x, c, &c->shapes->input[0], true, err);
}

enum status cuda_op_add_to_slice(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    if (!c->attrs->accumulate) TRY(clear(x, c, err));
    return move_part(x, c, &c->shapes->output[0], false, err);
}

/* Puts the same token before every sequence. */
enum status cuda_op_prepend(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *in = &c->shapes->input[0];
    int64_t token = shape_elements(&c->shapes->input[1]), rest = in->dim[1] * in->dim[2];
    struct cuda_runs r = {.outer = in->dim[0], .to_step = token + rest};
    TRY(cuda_major_dtype(c, 1, 1, &r.dtype, err));
    enum dtype t = cuda_output_dtype(c, 0);
    r.from = c->input[1], r.to = c->output[0], r.run = token, r.from_step = 0;
    r.from_wide = r.dtype != CUDA_fp32 && cuda_input_is_wide(c, 1);
    TRY(cuda_failed(cuda_copy_runs(&r, x->stream), "prepend", err));
    r.from = c->input[0], r.to = (void *)(uintptr_t)at(c->output[0], token, t);
    r.run = r.from_step = rest, r.from_wide = false;
    return cuda_failed(cuda_copy_runs(&r, x->stream), "prepend", err);
}

enum status cuda_op_to_rows(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    bool back = c->attrs->inverse;
    const struct shape *image = back ? &c->shapes->output[0] : &c->shapes->input[0];
    int64_t channels = image->dim[1], places = image->dim[2] * image->dim[3];
    int64_t n = shape_elements(image);
    enum cuda_dtype dtype;
    TRY(cuda_major_dtype(c, 1, 1, &dtype, err));
    struct cuda_runs r = {.dtype = dtype,
                          .from = c->input[0],
                          .to = c->output[0],
                          .outer = 1,
                          .run = n,
                          .from_step = n,
                          .to_step = n};
    cudaError_t e = c->attrs->flat ? cuda_copy_runs(&r, x->stream)
                                   : cuda_transpose(dtype, c->input[0], c->output[0], image->dim[0],
                                                    back ? places : channels,
                                                    back ? channels : places, x->stream);
    return cuda_failed(e, "to_rows", err);
}
