/* exec/cuda/ops_cross_entropy.c - cross_entropy and its sharded form by exec/cuda/kernels_cross_entropy.h.
 *
 * Targets are checked on the device; an invalid one becomes the stream's fault and the error of the next wait. lse,
 * losses and shards may be fp32 beside bf16 and fp16, and so may logits and their gradient.
 */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_cross_entropy.h"
#include "exec/cuda/operands.h"

#include <inttypes.h>

cuda_op cuda_op_cross_entropy, cuda_op_cross_entropy_grad, cuda_op_cross_entropy_shard,
    cuda_op_cross_entropy_join;

/* logits, targets: input indices. Per-row values are fp32 if `wide`. */
static struct cross_entropy_call call_of(const struct op_call *c, int32_t logits, int32_t targets,
                                         void *lse, bool wide)
{
    const struct shape *s = &c->shapes->input[logits];
    enum dtype t = cuda_input_dtype(c, logits);
    return (struct cross_entropy_call){.dtype = cuda_dtype_of(t),
                                       .rows = shape_rows(s),
                                       .n = op_logits(c->attrs, s),
                                       .row = shape_last(s),
                                       .start = c->attrs->start,
                                       .logits = c->input[logits],
                                       .targets = c->input[targets],
                                       .lse = lse,
                                       .wide_lse = wide || !dtype_is_half(t)};
}

/* For a shard of the vocabulary attrs.whole is its full size. */
static enum status check_targets(struct cuda_context *x, const struct op_call *c,
                                 const struct cross_entropy_call *e, struct error *err)
{
    int64_t vocabulary = c->attrs->whole > 0 ? c->attrs->whole : e->n;
    return cuda_check_ids(x, c->kind, e->targets, e->rows, vocabulary, c->attrs->counted > 0, err);
}

/* With fp32 logits in a bf16 call lse must be fp32. Kernels index a row's elements with 31 bits. */
static enum status check_call(const struct op_call *c, const struct cross_entropy_call *e,
                              int32_t logits, bool wide, struct error *err)
{
    if (e->row > INT32_MAX || e->rows > INT32_MAX)
        return error_set(err, ERR_INPUT, "%s: %" PRId64 " rows of %" PRId64 " are more than a launch takes",
                         op_kind_name(c->kind), e->rows, e->row);
    if (!cuda_input_is_wide(c, logits) || wide) return OK;
    return error_set(err, ERR_INPUT, "%s: with fp32 logits the per-row values must be fp32",
                     op_kind_name(c->kind));
}

static enum status scratch_of_rows(struct cuda_context *x, struct cross_entropy_call *e,
                                   struct error *err)
{
    void *p;
    TRY(cuda_scratch(x, (size_t)e->rows * sizeof(double), &p, err));
    e->row_loss = p;
    return OK;
}

/* sequences: of a microbatch; attrs.counted targets of each count. */
static enum status mean(struct cuda_context *x, const struct op_call *c,
                        struct cross_entropy_call *e, int64_t sequences, struct error *err)
{
    e->dtype = cuda_dtype_of(c->dtype); /* of the loss, although logits may be fp32 */
    int64_t counted = c->attrs->counted ? sequences * c->attrs->counted : e->rows;
    bool wide = cuda_output_is_wide(c, 0) || !dtype_is_half(c->dtype);
    return cuda_failed(cuda_cross_entropy_mean(e, counted, c->output[0], wide, x->stream),
                       "cross_entropy: mean", err);
}

enum status cuda_op_cross_entropy(struct cuda_context *x, const struct op_call *c,
                                  struct error *err)
{
    bool wide = cuda_output_is_wide(c, 1);
    struct cross_entropy_call e = call_of(c, 0, 1, c->output[1], wide);
    e.start = 0;
    TRY(check_call(c, &e, 0, wide, err));
    TRY(cuda_check_ids(x, c->kind, e.targets, e.rows, e.n, c->attrs->counted > 0, err));
    TRY(scratch_of_rows(x, &e, err));
    TRY(cuda_failed(cuda_cross_entropy_rows(&e, false, x->stream), "cross_entropy", err));
    return mean(x, c, &e, c->shapes->input[0].dim[0], err);
}

enum status cuda_op_cross_entropy_grad(struct cuda_context *x, const struct op_call *c,
                                       struct error *err)
{
    bool wide = cuda_input_is_wide(c, 2);
    struct cross_entropy_call e = call_of(c, 0, 1, (void *)(uintptr_t)c->input[2], wide);
    TRY(check_call(c, &e, 0, wide, err));
    if (cuda_output_is_wide(c, 0) && !cuda_input_is_wide(c, 0))
        return error_set(err, ERR_INPUT, "cross_entropy_grad: logits of %s have no gradient in fp32",
                         dtype_name(c->dtype));
    TRY(check_targets(x, c, &e, err));
    return cuda_failed(cuda_cross_entropy_grad(&e, c->attrs->scale, c->scale, c->output[0],
                                          cuda_dtype_of(cuda_output_dtype(c, 0)), x->stream),
                       "cross_entropy_grad", err);
}

enum status cuda_op_cross_entropy_shard(struct cuda_context *x, const struct op_call *c,
                                       struct error *err)
{
    bool wide = cuda_output_is_wide(c, 0);
    struct cross_entropy_call e = call_of(c, 0, 1, c->output[0], wide);
    TRY(check_call(c, &e, 0, wide, err));
    TRY(check_targets(x, c, &e, err));
    return cuda_failed(cuda_cross_entropy_rows(&e, true, x->stream), "cross_entropy_shard", err);
}

/* The logits are an input for the gradient's sake: only their shape is used. */
enum status cuda_op_cross_entropy_join(struct cuda_context *x, const struct op_call *c,
                                       struct error *err)
{
    struct cross_entropy_call e = call_of(c, 1, 2, c->output[1], cuda_output_is_wide(c, 1));
    e.dtype = cuda_dtype_of(c->dtype);
    e.wide_lse = cuda_output_is_wide(c, 1) || !dtype_is_half(c->dtype);
    e.rows = shape_rows(&c->shapes->input[0]);
    TRY(scratch_of_rows(x, &e, err));
    TRY(cuda_failed(cuda_cross_entropy_join(&e, c->input[0],
                                       cuda_input_is_wide(c, 0) || !dtype_is_half(c->dtype),
                                       shape_last(&c->shapes->input[0]) / 2, x->stream),
                    "cross_entropy_join", err));
    return mean(x, c, &e, c->shapes->input[1].dim[0], err);
}
