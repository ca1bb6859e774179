/* exec/cuda/ops_update.c - optimizers by exec/cuda/kernels_update.h, with the host's constants
 * (kernels_host_update.inc). */
#include "core/graph/loss_scale.h"
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_trust.h"
#include "exec/cuda/operands.h"

#include <math.h>

cuda_op cuda_op_adamw, cuda_op_flat_adamw, cuda_op_sgd, cuda_op_flat_sgd, cuda_op_momentum, cuda_op_flat_momentum, cuda_op_lion,
    cuda_op_flat_lion, cuda_op_lamb, cuda_op_lars;

/* Operands are the outputs, in place: `operands` of them, and one more if p is also copied in the call's dtype. */
static enum status update_of(const struct op_call *c, int32_t operands, struct cuda_optimizer *u,
                             struct error *err)
{
    const struct optimizer_step *o = c->optimizer;
    bool narrows = c->shapes->n_outputs > operands;
    enum dtype t = cuda_output_dtype(c, 0);
    for (int32_t i = 0; i < operands; i++)
        if (dtype_is_half(cuda_output_dtype(c, i)))
            return error_set(err, ERR_INPUT, "%s: output %d is %s; updates work on fp32 and fp64",
                             op_kind_name(c->kind), i, dtype_name(cuda_output_dtype(c, i)));
    *u = (struct cuda_optimizer){.dtype = cuda_dtype_of(t),
                              .p = c->output[0],
                              .g = c->output[operands - 1],
                              .copy = narrows ? c->output[operands] : NULL,
                              .copy_dtype = cuda_dtype_of(c->dtype),
                              .factor = c->scale ? c->scale + LOSS_SCALE_FACTOR : NULL,
                              .corrected = c->scale ? c->scale + LOSS_SCALE_RATE : NULL,
                              .clip = c->clip,
                              .rate = o->lr,
                              .keep = 1 - o->lr * (c->attrs->decay ? o->weight_decay : 0)};
    if (!narrows || dtype_is_half(cuda_output_dtype(c, operands))) return OK;
    return error_set(err, ERR_INPUT, "%s: p cannot be copied to %s, only to bf16 or fp16", op_kind_name(c->kind),
                     dtype_name(cuda_output_dtype(c, operands)));
}

static enum status adam_of(const struct op_call *c, struct cuda_optimizer *u, struct error *err)
{
    const struct optimizer_step *o = c->optimizer;
    TRY(update_of(c, 4, u, err));
    u->m = c->output[1], u->v = c->output[2];
    u->beta1 = o->beta1, u->beta2 = o->beta2, u->eps = o->eps;
    u->rate = o->lr / (1 - pow(o->beta1, (double)o->step));
    u->root = sqrt(1 - pow(o->beta2, (double)o->step));
    return OK;
}

enum status cuda_op_adamw(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_optimizer u;
    TRY(adam_of(c, &u, err));
    return cuda_failed(cuda_update(&u, shape_elements(&c->shapes->input[0]), x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_flat_adamw(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return cuda_op_adamw(x, c, err);
}

enum status cuda_op_sgd(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_optimizer u;
    TRY(update_of(c, 2, &u, err));
    u.rule = CUDA_SGD;
    return cuda_failed(cuda_update(&u, shape_elements(&c->shapes->input[0]), x->stream),
                       op_kind_name(c->kind), err);
}

enum status cuda_op_flat_sgd(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return cuda_op_sgd(x, c, err);
}

/* Without bias corrections. */
static enum status one_moment(struct cuda_context *x, const struct op_call *c, enum cuda_rule rule, struct error *err)
{
    const struct optimizer_step *o = c->optimizer;
    struct cuda_optimizer u;
    TRY(update_of(c, 3, &u, err));
    u.rule = rule, u.m = c->output[1], u.corrected = NULL;
    u.beta1 = o->beta1, u.beta2 = o->beta2;
    u.decay = c->attrs->decay ? o->weight_decay : 0;
    u.own = o->nesterov ? 1 : 0, u.of_m = o->nesterov ? o->beta1 : 1;
    return cuda_failed(cuda_update(&u, shape_elements(&c->shapes->input[0]), x->stream), op_kind_name(c->kind), err);
}

enum status cuda_op_momentum(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return one_moment(x, c, CUDA_MOMENTUM, err);
}

enum status cuda_op_flat_momentum(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return one_moment(x, c, CUDA_MOMENTUM, err);
}

enum status cuda_op_lion(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return one_moment(x, c, CUDA_LION, err);
}

enum status cuda_op_flat_lion(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    return one_moment(x, c, CUDA_LION, err);
}

static enum status trust_update(struct cuda_context *x, const struct op_call *c, struct cuda_trust *u, double decay, struct error *err)
{
    int64_t n = shape_elements(&c->shapes->input[0]);
    void *scratch;
    u->lr = c->optimizer->lr, u->trust = c->optimizer->trust;
    u->decay = c->attrs->decay ? decay : 0;
    TRY(cuda_scratch(x, cuda_trust_scratch(n), &scratch, err));
    return cuda_failed(cuda_trust_update(u, n, scratch, x->stream), op_kind_name(c->kind), err);
}

enum status cuda_op_lamb(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_trust u;
    TRY(adam_of(c, &u.of, err));
    return trust_update(x, c, &u, c->optimizer->lr * c->optimizer->weight_decay, err);
}

enum status cuda_op_lars(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct cuda_trust u;
    TRY(update_of(c, 3, &u.of, err));
    u.of.m = c->output[1], u.of.beta1 = c->optimizer->beta1;
    u.of.corrected = NULL;
    return trust_update(x, c, &u, c->optimizer->weight_decay, err);
}
