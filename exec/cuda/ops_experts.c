/* exec/cuda/ops_experts.c - gating, dispatch, combine and expert products by exec/cuda/kernels_experts.h and
 * kernels_expert_products.h.
 *
 * Every call recomputes its routes in scratch, because gates are small beside rows, and operators then share no
 * state. Gates, logits and their gradients may be fp32 beside bf16 and fp16, and so may weights' gradients.
 */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels_expert_products.h"
#include "exec/cuda/kernels_experts.h"
#include "exec/cuda/operands.h"

#include <inttypes.h>

cuda_op cuda_op_gating, cuda_op_gating_grad, cuda_op_dispatch, cuda_op_combine, cuda_op_gates_grad,
    cuda_op_expert_matmul;

enum status cuda_op_gating(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    return cuda_failed(cuda_expert_gating(cuda_dtype_of(c->dtype), c->input[0], cuda_input_is_wide(c, 0),
                                     c->output[0], cuda_output_is_wide(c, 0), shape_rows(s),
                                     shape_last(s), c->attrs->chosen, c->attrs->renormalise,
                                     x->stream),
                       "gating", err);
}

enum status cuda_op_gating_grad(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    const struct shape *s = &c->shapes->input[0];
    struct gating_grad_call g = {.dtype = cuda_dtype_of(c->dtype),
                                 .logits = c->input[0],
                                 .gates = c->input[1],
                                 .dgates = c->input[2],
                                 .out = c->output[0],
                                 .wide_logits = cuda_input_is_wide(c, 0),
                                 .wide_gates = cuda_input_is_wide(c, 1),
                                 .wide_dgates = cuda_input_is_wide(c, 2),
                                 .wide_out = cuda_output_is_wide(c, 0),
                                 .b = s->dim[0],
                                 .positions = s->dim[1],
                                 .experts = s->dim[2],
                                 .renormalise = c->attrs->renormalise,
                                 .scale = c->attrs->scale,
                                 .by = c->scale};
    if (g.b > 65535 && g.scale != 0)
        return error_set(err, ERR_INPUT, "gating_grad: %" PRId64 " sequences, at most 65535", g.b);
    void *shares;
    TRY(cuda_scratch(x, (size_t)(g.b * g.experts) * sizeof *g.shares, &shares, err));
    g.shares = shares;
    return cuda_failed(cuda_expert_gating_grad(&g, x->stream), "gating_grad", err);
}

/* Operands except gates and tensors of their shape must have the call's dtype. */
static enum status refuse_wide(const struct op_call *c, uint32_t inputs, uint32_t outputs,
                               struct error *err)
{
    if (!dtype_is_half(c->dtype) || (!(c->wide_input & ~inputs) && !(c->wide_output & ~outputs)))
        return OK;
    return error_set(err, ERR_INPUT, "%s: beside %s only gates and weights' gradients may be fp32",
                     op_kind_name(c->kind), dtype_name(c->dtype));
}

/* Slots are `capacity` of the operand. rows: also computes the row of each slot, not only the number of filled ones. */
static enum status find_routes(struct cuda_context *x, const struct op_call *c, int64_t capacity,
                               bool rows, struct expert_routes *r, struct error *err)
{
    int32_t at = op_gates_input(c->kind);
    const struct shape *s = &c->shapes->input[at];
    const struct op_attrs *t = c->attrs;
    int64_t b = s->dim[0], positions = s->dim[1], experts = s->dim[2];
    if (positions > INT32_MAX || experts > INT32_MAX || capacity > INT32_MAX || b * experts > 65535)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId64 " sequences of %" PRId64 " positions, %" PRId64
                         " experts: more than a launch takes (65535 sequences times experts)",
                         op_kind_name(c->kind), b, positions, experts);
    *r = (struct expert_routes){.dtype = cuda_dtype_of(c->dtype),
                                .gates = c->input[at],
                                .wide_gates = cuda_input_is_wide(c, at),
                                .b = b,
                                .positions = (int32_t)positions,
                                .experts = (int32_t)experts,
                                .capacity = (int32_t)capacity,
                                .first = (int32_t)t->columns.first,
                                .row = (int32_t)t->lines.first,
                                .rows = (int32_t)(t->lines.of ? t->lines.n : positions)};
    size_t filled = (size_t)(b * experts), slots = rows ? filled * (size_t)positions : 0,
           tokens = rows ? filled * (size_t)capacity : 0;
    void *scratch;
    TRY(cuda_scratch(x, (filled + slots + tokens) * sizeof(int32_t), &scratch, err));
    r->filled = scratch;
    if (rows) r->slot = r->filled + filled, r->token = r->slot + slots;
    return cuda_failed(cuda_expert_route(r, x->stream), "routes of experts", err);
}

enum status cuda_op_dispatch(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct expert_routes r;
    TRY(refuse_wide(c, 2, 0, err));
    TRY(find_routes(x, c, c->shapes->output[0].dim[2], true, &r, err));
    return cuda_failed(cuda_expert_dispatch(&r, c->input[0], c->output[0],
                                       shape_last(&c->shapes->input[0]), c->attrs->weighted,
                                       x->stream),
                       "dispatch", err);
}

enum status cuda_op_combine(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct expert_routes r;
    TRY(refuse_wide(c, 2, 0, err));
    TRY(find_routes(x, c, c->shapes->input[0].dim[2], true, &r, err));
    return cuda_failed(cuda_expert_combine(&r, c->input[0], c->output[0],
                                      shape_last(&c->shapes->input[0]), c->attrs->weighted,
                                      x->stream),
                       "combine", err);
}

enum status cuda_op_gates_grad(struct cuda_context *x, const struct op_call *c, struct error *err)
{
    struct expert_routes r;
    TRY(refuse_wide(c, 2, 1, err));
    TRY(find_routes(x, c, c->shapes->input[0].dim[2], true, &r, err));
    return cuda_failed(cuda_expert_gates_grad(&r, c->input[0], c->input[2], c->output[0],
                                         cuda_output_is_wide(c, 0),
                                         shape_last(&c->shapes->input[0]), x->stream),
                       "gates_grad", err);
}

enum status cuda_op_expert_matmul(struct cuda_context *x, const struct op_call *c,
                                  struct error *err)
{
    bool weights = c->attrs->trans_a;
    struct expert_routes r;
    TRY(refuse_wide(c, 4, weights, err));
    TRY(find_routes(x, c, c->shapes->input[0].dim[2], false, &r, err));
    int64_t left = shape_last(&c->shapes->input[0]), right = shape_last(&c->shapes->output[0]);
    if (left > INT32_MAX || right > INT32_MAX)
        return error_set(err, ERR_INPUT,
                         "expert_matmul: (%" PRId32 ",%" PRId64 ")x(%" PRId64 ",%" PRId64 ") is too large",
                         r.capacity, left, left, right);
    struct expert_product p = {.dtype = r.dtype,
                               .b = r.b,
                               .experts = r.experts,
                               .capacity = r.capacity,
                               .n_left = (int32_t)left,
                               .n_right = (int32_t)right,
                               .filled = r.filled,
                               .left = c->input[0],
                               .right = c->input[1],
                               .out = c->output[0],
                               .turned = c->attrs->trans_b,
                               .wide_out = cuda_output_is_wide(c, 0),
                               .accumulate = weights && c->attrs->accumulate};
    bool fast = expert_product_is_fast(&p, x->capability);
    return cuda_failed(weights ? cuda_expert_weights(&p, fast, x->stream)
                               : cuda_expert_rows(&p, fast, x->stream),
                       "expert_matmul", err);
}
