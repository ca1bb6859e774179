/* exec/cuda/ops_norm.c - norms by exec/cuda/kernels_norm.h; gradients of their weights as sums (kernels_sums.h). */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_norm.h"
#include "exec/cuda/kernels_sums.h"
#include "exec/cuda/operands.h"

cuda_op cuda_op_layer_norm, cuda_op_layer_norm_grad, cuda_op_layer_norm_grad_add,
    cuda_op_layer_norm_weight_grad,
    cuda_op_rms_norm, cuda_op_rms_norm_grad, cuda_op_rms_norm_weight_grad, cuda_op_group_norm,
    cuda_op_group_norm_grad, cuda_op_group_norm_weight_grad;

/* Arguments of a norm's kernel (group_norm as layer_norm): inputs x, gamma, and beta unless rms. */
static enum status forward_of(const struct op_call *c, bool centres, struct cuda_norm_call *s,
                              struct error *err)
{
    *s = (struct cuda_norm_call){.centres = centres,
                            .eps = c->attrs->eps,
                            .offset = c->attrs->unit_offset,
                            .x = c->input[0],
                            .gamma = c->input[1],
                            .beta = centres ? c->input[2] : NULL,
                            .y = c->output[0],
                            .stats = c->output[1]};
    TRY(cuda_major_dtype(c, 1, 1, &s->dtype, err));
    bool narrow = s->dtype != CUDA_fp32;
    s->gamma_wide = narrow && cuda_input_is_wide(c, 1);
    s->beta_wide = narrow && centres && cuda_input_is_wide(c, 2);
    s->stats_wide = narrow && cuda_output_is_wide(c, 1);
    return OK;
}

/* Inputs x, gamma, stats, dy, and an optional summand. */
static enum status gradient_of(const struct op_call *c, bool centres, struct cuda_norm_call *s,
                               struct error *err)
{
    *s = (struct cuda_norm_call){.centres = centres,
                            .offset = c->attrs->unit_offset,
                            .x = c->input[0],
                            .gamma = c->input[1],
                            .stats = (void *)(uintptr_t)c->input[2],
                            .dy = c->input[3],
                            .more = c->shapes->n_inputs > 4 ? c->input[4] : NULL,
                            .y = c->output[0]};
    TRY(cuda_major_dtype(c, 1 | 8 | 16, 1, &s->dtype, err));
    bool narrow = s->dtype != CUDA_fp32;
    s->gamma_wide = narrow && cuda_input_is_wide(c, 1);
    s->stats_wide = narrow && cuda_input_is_wide(c, 2);
    return OK;
}

/* Inputs x, stats, dy; both outputs are fp32 or neither. */
static enum status weights_of(const struct op_call *c, bool centres, struct cuda_sum *s,
                              struct error *err)
{
    *s = (struct cuda_sum){.kind = centres ? CUDA_SUM_centred : CUDA_SUM_scaled,
                           .x = c->input[0],
                           .stats = c->input[1],
                           .dy = c->input[2],
                           .out = {c->output[0], centres ? c->output[1] : NULL},
                           .add = c->attrs->accumulate};
    TRY(cuda_major_dtype(c, 1 | 4, 0, &s->dtype, err));
    bool narrow = s->dtype != CUDA_fp32;
    s->stats_wide = narrow && cuda_input_is_wide(c, 1);
    s->out_wide = narrow && cuda_output_is_wide(c, 0);
    if (!centres || cuda_output_is_wide(c, 0) == cuda_output_is_wide(c, 1)) return OK;
    return error_set(err, ERR_INPUT, "%s: its outputs must have one dtype, not fp32 and another",
                     op_kind_name(c->kind));
}

/* n: of a run */
static int64_t runs_of(const struct op_call *c, int64_t n)
{
    return n ? shape_elements(&c->shapes->input[0]) / n : 0;
}

static enum status norm(struct cuda_context *x, const struct op_call *c, bool centres,
                        struct error *err)
{
    int64_t n = shape_last(&c->shapes->input[1]);
    struct cuda_norm_call s;
    TRY(forward_of(c, centres, &s, err));
    return cuda_failed(cuda_norm(&s, runs_of(c, n), n, x->stream), op_kind_name(c->kind), err);
}

static enum status norm_grad(struct cuda_context *x, const struct op_call *c, bool centres,
                             struct error *err)
{
    int64_t n = shape_last(&c->shapes->input[1]);
    struct cuda_norm_call s;
    TRY(gradient_of(c, centres, &s, err));
    return cuda_failed(cuda_norm_grad(&s, runs_of(c, n), n, x->stream), op_kind_name(c->kind), err);
}

static enum status weight_grad(struct cuda_context *x, const struct op_call *c, bool centres,
                               struct error *err)
{
    int64_t n = shape_elements(&c->shapes->output[0]), runs = runs_of(c, n);
    struct cuda_sum s;
    void *scratch;
    TRY(weights_of(c, centres, &s, err));
    TRY(cuda_scratch(x, cuda_column_sums_scratch(s.dtype, runs, n), &scratch, err));
    return cuda_failed(cuda_column_sums(&s, runs, n, scratch, x->stream), op_kind_name(c->kind),
                       err);
}

#define BOTH(kind, function)                                                                       \
    enum status cuda_op_layer_##kind(struct cuda_context *x, const struct op_call *c,              \
                                     struct error *err)                                            \
    {                                                                                              \
        return function(x, c, true, err);                                                          \
    }                                                                                              \
    enum status cuda_op_rms_##kind(struct cuda_context *x, const struct op_call *c,                \
                                   struct error *err)                                              \
    {                                                                                              \
        return function(x, c, false, err);                                                         \
    }
BOTH(norm, norm)
BOTH(norm_grad, norm_grad)
BOTH(norm_weight_grad, weight_grad)
#undef BOTH

enum status cuda_op_layer_norm_grad_add(struct cuda_context *x, const struct op_call *c,
                                        struct error *err)
{
    return norm_grad(x, c, true, err);
}

/* --- group_norm: channels of (b, c, places), `per` of them together --- */

struct groups {
    int64_t b, runs, per, places, channels; /* runs = b·groups */
};

static enum status groups_of(const struct op_call *c, struct groups *g, struct error *err)
{
    const struct shape *x = &c->shapes->input[0];
    int64_t groups = c->attrs->groups;
    *g = (struct groups){.b = x->dim[0],
                         .runs = x->dim[0] * groups,
                         .per = groups ? x->dim[1] / groups : 0,
                         .places = 1,
                         .channels = x->dim[1]};
    for (int32_t i = 2; i < x->rank; i++) g->places *= x->dim[i];
    if (g->per * g->places <= INT32_MAX) return OK;
    return error_set(err, ERR_INPUT, "%s: %lld elements of a group are more than %d",
                     op_kind_name(c->kind), (long long)(g->per * g->places), INT32_MAX);
}

enum status cuda_op_group_norm(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct groups g;
    struct cuda_norm_call s;
    TRY(groups_of(c, &g, err));
    TRY(forward_of(c, true, &s, err));
    return cuda_failed(cuda_group_norm(&s, g.runs, g.per, g.places, g.channels, x->stream),
                       "group_norm", err);
}

enum status cuda_op_group_norm_grad(struct cuda_context *x, const struct op_call *c,
                                    struct error *err)
{
    struct groups g;
    struct cuda_norm_call s;
    TRY(groups_of(c, &g, err));
    TRY(gradient_of(c, true, &s, err));
    return cuda_failed(cuda_group_norm_grad(&s, g.runs, g.per, g.places, g.channels, x->stream),
                       "group_norm_grad", err);
}

enum status cuda_op_group_norm_weight_grad(struct cuda_context *x, const struct op_call *c,
                                           struct error *err)
{
    struct groups g;
    struct cuda_sum s;
    void *scratch;
    TRY(groups_of(c, &g, err));
    TRY(weights_of(c, true, &s, err));
    TRY(cuda_scratch(x, cuda_channel_sums_scratch(s.dtype, g.b, g.channels), &scratch, err));
    return cuda_failed(
        cuda_channel_sums(&s, g.b, g.channels, g.places, g.per ? g.per : 1, scratch, x->stream),
        "group_norm_weight_grad", err);
}
