/* core/graph/gradient_rules.c - one gradient rule for each differentiable kind.
 *
 * Each rule reads the operands of the forward operator and the gradient dy of its first output and
 * contributes the gradients of its operands. Second outputs (statistics, log-sum-exp) are kept for
 * the gradient operators and are not differentiated through. Bias and add move no data: dy itself
 * is the gradient of their operands.
 */
#include "core/graph/gradient_rules.h"

#include "core/graph/gradient_use.h"

enum status use_input(const struct use *u, int32_t input, enum op_kind kind, const char *suffix,
                      const struct op_attrs *attrs, const int32_t *inputs, int32_t n_inputs,
                      struct error *err)
{
    if (!use_wants(u, input)) return OK;
    int32_t out = -1;
    TRY(gradient_emit(u->b, u->i, kind, PHASE_I, suffix, attrs, inputs, n_inputs, &out, 1, err));
    return gradient_contribute(u->b, u->op.input[input], out, err);
}

/* Weights derived from parameters by conversions: their gradients are ordinary tensors. */
static enum status emit_converted(const struct use *u, int32_t input, int32_t n_outputs,
                                  enum op_kind kind, const char *suffix,
                                  const struct op_attrs *attrs, const int32_t *inputs,
                                  int32_t n_inputs, struct error *err)
{
    int32_t out[OP_OPERANDS_MAX];
    for (int32_t k = 0; k < n_outputs; k++) out[k] = -1;
    TRY(gradient_emit(u->b, u->i, kind, PHASE_I, suffix, attrs, inputs, n_inputs, out, n_outputs,
                      err));
    for (int32_t k = n_outputs - 1; k >= 0; k--) {
        int32_t weight = u->op.input[input + k];
        if (!use_is_parameter(u, input + k)) {
            TRY(gradient_contribute(u->b, weight, out[k], err));
            continue;
        }
        int32_t sum = gradient_parameter(u->b, weight);
        TRY(gradient_emit(u->b, u->i, OP_accumulate, PHASE_W, "grad_accumulate",
                          &(struct op_attrs){.accumulate = true}, &out[k], 1, &sum, 1, err));
    }
    return OK;
}

enum status use_weights(const struct use *u, int32_t input, int32_t n_outputs, enum op_kind kind,
                        const char *suffix, struct op_attrs attrs, const int32_t *inputs,
                        int32_t n_inputs, struct error *err)
{
    int32_t out[OP_OPERANDS_MAX];
    for (int32_t k = 0; k < n_outputs; k++) {
        if (use_is_parameter(u, input + k)) continue;
        if (!gradient_is_of_parameter(u->b, u->op.input[input + k]))
            return error_set(err, ERR_INPUT, "operator '%s': '%s' must be a parameter", u->op.name,
                             gradient_graph(u->b)->tensors[u->op.input[input + k]].name);
        return emit_converted(u, input, n_outputs, kind, suffix, &attrs, inputs, n_inputs, err);
    }
    for (int32_t k = 0; k < n_outputs; k++)
        out[k] = gradient_parameter(u->b, u->op.input[input + k]);
    attrs.accumulate = true;
    return gradient_emit(u->b, u->i, kind, PHASE_W, suffix, &attrs, inputs, n_inputs, out,
                         n_outputs, err);
}

/* x or dy gathered over all devices; without sufficient factors as it is. */
static enum status gather_factor(const struct use *u, int32_t which, int32_t *tensor,
                                 struct error *err)
{
    static const char *const suffix[2][MESH_AXES_MAX] = {{"factor_x", "factor_x.1"},
                                                         {"factor_dy", "factor_dy.1"}};
    const struct factors *f = u->op.factors;
    for (int32_t k = 0; f && k < f->n[which]; k++) {
        struct op_attrs attrs = {.exchange = f->step[which][k]};
        int32_t out = -1;
        TRY(gradient_emit(u->b, u->i, OP_group_all_gather, PHASE_I, suffix[which][k], &attrs,
                          INPUTS(*tensor), &out, 1, err));
        *tensor = out;
    }
    return OK;
}

/* y = a·b:  da = dy·bᵀ, db = aᵀ·dy.   y = a·bᵀ (trans_b):  da = dy·b, db = dyᵀ·a. */
enum status gradient_rule_matmul(struct gradient_builder *g, int32_t op, struct error *err)
{
    return use_product(use_of(g, op), err);
}

enum status use_product(struct use u, struct error *err)
{
    int32_t a = u.op.input[0], b = u.op.input[1];
    bool trans_b = u.op.attrs.trans_b;
    if (u.op.attrs.trans_a || use_is_parameter(&u, 0))
        return error_set(err, ERR_INPUT, "operator '%s': only activation x weight has a gradient",
                         u.op.name);
    struct op_attrs da = {.trans_b = !trans_b}, db = {.trans_a = true};
    int32_t dy = u.dy;
    TRY(use_input(&u, 0, OP_matmul, "grad_input", &da, INPUTS(u.dy, b), err));
    TRY(gather_factor(&u, 0, &a, err));
    TRY(gather_factor(&u, 1, &dy, err));
    int32_t left = trans_b ? dy : a, right = trans_b ? a : dy;
    if (!use_is_parameter(&u, 1))
        return use_input(&u, 1, OP_matmul, "grad_right", &db, INPUTS(left, right), err);
    return use_weights(&u, 1, 1, OP_matmul, "grad_weight", db, INPUTS(left, right), err);
}

enum status gradient_rule_bias(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    TRY(use_pass(&u, 0, u.dy, err));
    struct op_attrs attrs = {0};
    if (u.op.attrs.dim) {
        attrs.dim = u.op.attrs.dim;
        attrs.dims = gradient_graph(g)->tensors[u.op.input[1]].shape.rank;
    }
    return use_weights(&u, 1, 1, OP_bias_grad, "grad_bias", attrs, INPUTS(u.dy), err);
}

enum status gradient_rule_add(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    /* The list of contributions grows at its front: the later operand goes first. */
    for (int32_t k = 1; k >= 0; k--) {
        TRY(use_pass(&u, k, u.dy, err));
        if (use_is_parameter(&u, k))
            TRY(use_weights(&u, k, 1, OP_accumulate, k ? "grad_right" : "grad_left",
                             (struct op_attrs){0}, INPUTS(u.dy), err));
    }
    return OK;
}

enum status gradient_rule_multiply(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    if (use_is_parameter(&u, 0) || use_is_parameter(&u, 1))
        return error_set(err, ERR_INPUT, "operator '%s': multiply by a parameter has no gradient",
                         u.op.name);
    TRY(use_input(&u, 1, OP_multiply, "grad_right", NULL, INPUTS(u.dy, u.op.input[0]), err));
    return use_input(&u, 0, OP_multiply, "grad_left", NULL, INPUTS(u.dy, u.op.input[1]), err);
}

/* gelu and silu */
enum status gradient_rule_activation(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    enum op_kind kind = u.op.kind == OP_gelu ? OP_gelu_grad : OP_silu_grad;
    struct op_attrs attrs = {.gelu_erf = u.op.attrs.gelu_erf};
    return use_input(&u, 0, kind, "grad_input", &attrs, INPUTS(u.op.input[0], u.dy), err);
}

enum status gradient_rule_scale(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return use_input(&u, 0, OP_scale, "grad_input", &u.op.attrs, INPUTS(u.dy), err);
}

enum status gradient_rule_softcap(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return use_input(&u, 0, OP_softcap_grad, "grad_input", &u.op.attrs, INPUTS(u.op.output[0], u.dy), err);
}

/* dz, the gradient of x + b, is the gradient of x as well, so it is computed even if x wants none.
 */
enum status gradient_rule_bias_gelu(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = {.gelu_erf = u.op.attrs.gelu_erf};
    int32_t dz = -1;
    TRY(gradient_emit(g, op, OP_bias_gelu_grad, PHASE_I, "grad_input", &attrs,
                      INPUTS(u.op.input[0], u.op.input[1], u.dy), &dz, 1, err));
    TRY(use_pass(&u, 0, dz, err));
    return use_weights(&u, 1, 1, OP_bias_grad, "grad_bias", (struct op_attrs){0}, INPUTS(dz), err);
}

enum status gradient_rule_swiglu(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t out[2] = {-1, -1};
    if (!use_wants(&u, 0) && !use_wants(&u, 1)) return OK;
    TRY(gradient_emit(g, op, OP_swiglu_grad, PHASE_I, "grad_input", NULL,
                      INPUTS(u.op.input[0], u.op.input[1], u.dy), out, 2, err));
    TRY(use_pass(&u, 1, out[1], err));
    return use_pass(&u, 0, out[0], err);
}

static enum status norm(struct use *u, enum op_kind input_grad, enum op_kind weight_grad,
                        int32_t n_weights, struct error *err)
{
    int32_t x = u->op.input[0], gamma = u->op.input[1], stats = u->op.output[1];
    struct op_attrs attrs = {.eps = u->op.attrs.eps, .unit_offset = u->op.attrs.unit_offset, .groups = u->op.attrs.groups};
    const struct graph *g = gradient_graph(u->b);
    if (!shape_elements(&g->tensors[x].shape)) /* an empty part says nothing of a run's length */
        attrs.head_dim = (int32_t)shape_last(&g->tensors[gamma].shape);
    TRY(use_input(u, 0, input_grad, "grad_input", &attrs, INPUTS(x, gamma, stats, u->dy), err));
    return use_weights(u, 1, n_weights, weight_grad, "grad_weight", attrs, INPUTS(x, stats, u->dy),
                        err);
}

enum status gradient_rule_layer_norm(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return norm(&u, OP_layer_norm_grad, OP_layer_norm_weight_grad, 2, err);
}

enum status gradient_rule_rms_norm(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return norm(&u, OP_rms_norm_grad, OP_rms_norm_weight_grad, 1, err);
}

enum status gradient_rule_group_norm(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return norm(&u, OP_group_norm_grad, OP_group_norm_weight_grad, 2, err);
}

/* The operator's stencil, with what its gradients cannot see: the size of x and of the weight. */
static struct op_attrs stencil_of(const struct use *u, const struct shape *weight)
{
    const struct shape *x = &gradient_graph(u->b)->tensors[u->op.input[0]].shape;
    struct op_attrs attrs = {.stencil = u->op.attrs.stencil, .lines = u->op.attrs.lines};
    for (int i = 0; i < 2; i++) {
        attrs.stencil.size[i] = (int32_t)x->dim[2 + i];
        if (weight) attrs.stencil.kernel[i] = (int32_t)weight->dim[2 + i];
    }
    return attrs;
}

enum status gradient_rule_conv2d(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t x = u.op.input[0], weight = u.op.input[1];
    struct op_attrs attrs = stencil_of(&u, &gradient_graph(g)->tensors[weight].shape);
    TRY(use_input(&u, 0, OP_conv2d_grad, "grad_input", &attrs, INPUTS(weight, u.dy), err));
    return use_weights(&u, 1, 1, OP_conv2d_weight_grad, "grad_weight", attrs, INPUTS(x, u.dy),
                        err);
}

/* From y, which the next operator keeps anyway, instead of x. */
enum status gradient_rule_relu(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return use_input(&u, 0, OP_relu_grad, "grad_input", NULL, INPUTS(u.op.output[0], u.dy), err);
}

enum status gradient_rule_max_pool2d(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = stencil_of(&u, NULL);
    return use_input(&u, 0, OP_max_pool2d_grad, "grad_input", &attrs, INPUTS(u.op.output[1], u.dy),
                      err);
}

enum status gradient_rule_avg_pool2d(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = stencil_of(&u, NULL);
    return use_input(&u, 0, OP_avg_pool2d_grad, "grad_input", &attrs, INPUTS(u.dy), err);
}

enum status gradient_rule_to_rows(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    if (u.op.attrs.inverse)
        return error_set(err, ERR_INPUT, "operator '%s': to_rows turned back has no gradient",
                         u.op.name);
    struct op_attrs attrs = stencil_of(&u, NULL);
    attrs.inverse = true, attrs.flat = u.op.attrs.flat;
    return use_input(&u, 0, OP_to_rows, "grad_input", &attrs, INPUTS(u.dy), err);
}

/* The token's rows are sliced before the sum over sequences, so W keeps only those in memory. */
enum status gradient_rule_prepend(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    const struct tensor *x = &gradient_graph(g)->tensors[u.op.input[0]];
    int64_t t = x->shape.dim[1], k = gradient_graph(g)->tensors[u.op.input[1]].shape.dim[0];
    struct op_attrs rest = {.dim = 1, .start = k, .sequences = t},
                    front = {.dim = 1, .sequences = k};
    int32_t rows = -1;
    TRY(use_input(&u, 0, OP_slice, "grad_input", &rest, INPUTS(u.dy), err));
    TRY(gradient_emit(g, op, OP_slice, PHASE_I, "grad_front", &front, INPUTS(u.dy), &rows, 1, err));
    return use_weights(&u, 1, 1, OP_bias_grad, "grad_token",
                        (struct op_attrs){.dim = 1, .dims = 2}, INPUTS(rows), err);
}

enum status gradient_rule_slice(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    const struct shape *x = &gradient_graph(g)->tensors[u.op.input[0]].shape;
    struct op_attrs attrs = {.dim = u.op.attrs.dim,
                             .start = u.op.attrs.start,
                             .sequences = x->dim[u.op.attrs.dim],
                             .blank = true};
    return use_input(&u, 0, OP_paste, "grad_input", &attrs, INPUTS(u.dy), err);
}

enum status gradient_rule_embedding(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    const struct tensor *rows = &gradient_graph(g)->tensors[u.op.input[1]];
    struct op_attrs attrs = {
        .vocabulary = rows->shape.dim[0], .start = u.op.attrs.start, .whole = u.op.attrs.whole};
    return use_weights(&u, 1, 1, OP_embedding_grad, "grad_weight", attrs,
                        INPUTS(u.op.input[0], u.dy), err);
}

enum status gradient_rule_rotary(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = u.op.attrs;
    attrs.inverse = !attrs.inverse;
    return use_input(&u, 0, OP_rotary, "grad_input", &attrs, INPUTS(u.dy), err);
}

/* Operands qkv or q, k, v; then o, lse, do. */
enum status gradient_rule_attention(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t inputs[OP_OPERANDS_MAX], out[3] = {-1, -1, -1}, n = u.op.n_inputs;
    for (int32_t k = 0; k < n; k++) inputs[k] = u.op.input[k];
    inputs[n] = u.op.output[0];
    inputs[n + 1] = u.op.output[1];
    inputs[n + 2] = u.dy;
    TRY(gradient_emit(g, op, OP_attention_grad, PHASE_I, "grad_input", &u.op.attrs, inputs, n + 3,
                      out, n, err));
    for (int32_t k = n - 1; k >= 0; k--) TRY(use_pass(&u, k, out[k], err));
    return OK;
}

/* Mean over this microbatch's rows, weighted by its share of the step; operands from `first` on are logits, targets. */
static enum status cross_entropy(const struct use *u, int32_t first, struct error *err)
{
    int32_t logits = u->op.input[first], targets = u->op.input[first + 1], lse = u->op.output[1];
    const struct shape *shape = &gradient_graph(u->b)->tensors[logits].shape;
    int64_t rows = u->op.attrs.mean_rows, counted = u->op.attrs.counted;
    if (!rows) rows = counted ? shape->dim[0] * counted : shape_rows(shape);
    struct op_attrs attrs = {.scale = gradient_loss_weight(u->b) / (double)rows,
                             .counted = counted,
                             .vocabulary = u->op.attrs.vocabulary,
                             .start = u->op.attrs.start,
                             .whole = u->op.attrs.whole};
    return use_input(u, first, OP_cross_entropy_grad, "grad_input", &attrs,
                      INPUTS(logits, targets, lse), err);
}

enum status gradient_rule_cross_entropy(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return cross_entropy(&u, 0, err);
}

/* The joined shards are statistics: the gradient goes to the logits themselves. */
enum status gradient_rule_cross_entropy_join(struct gradient_builder *g, int32_t op,
                                             struct error *err)
{
    struct use u = use_of(g, op);
    return cross_entropy(&u, 1, err);
}

/* The sum is replicated on every device, and so is its gradient. */
enum status gradient_rule_group_all_reduce(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return use_pass(&u, 0, u.dy, err);
}

/* One operator computes both gradients and its working memory, the gradients of what was kept. */
enum status gradient_rule_measured_forward(struct gradient_builder *g, int32_t op,
                                           struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = u.op.attrs;
    int32_t inputs[4] = {u.op.input[0], u.op.output[1]}, n = 2;
    if (!attrs.first) inputs[n++] = u.op.input[1];
    if (attrs.out) inputs[n++] = u.dy;
    int32_t out[3] = {gradient_parameter(g, u.op.input[0]), -1, -1};
    TRY(gradient_emit(g, op, OP_measured_backward, PHASE_I, "backward", &attrs, inputs, n, out,
                      attrs.first ? 2 : 3, err));
    gradient_graph(g)->tensors[out[1]].shares = gradient_graph(g)->tensors[inputs[1]].shares;
    return attrs.first ? OK : use_pass(&u, 1, out[2], err);
}

/* The same dropout mask. */
enum status gradient_rule_dropout(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return use_input(&u, 0, OP_dropout, "grad_input", &u.op.attrs, INPUTS(u.dy), err);
}

/* The choice of experts is constant: gradients flow through the gates' values only. */
enum status gradient_rule_gating(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int64_t here = gradient_graph(g)->tensors[u.op.input[0]].shape.dim[0];
    int64_t sequences = u.op.attrs.mean_rows ? u.op.attrs.mean_rows : here;
    if (sequences) u.op.attrs.scale *= gradient_loss_weight(g) / (double)sequences;
    return use_input(&u, 0, OP_gating_grad, "grad_input", &u.op.attrs,
                      INPUTS(u.op.input[0], u.op.output[0], u.dy), err);
}

static struct op_attrs experts_of(const struct use *u)
{
    return (struct op_attrs){.chosen = u->op.attrs.chosen,
                             .experts = u->op.attrs.experts,
                             .load_ppm = u->op.attrs.load_ppm,
                             .lines = u->op.attrs.lines,
                             .columns = u->op.attrs.columns};
}

enum status gradient_rule_dispatch(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = experts_of(&u);
    if (u.op.attrs.weighted)
        return error_set(err, ERR_INPUT, "operator '%s': weighted dispatch has no gradient",
                         u.op.name);
    return use_input(&u, 0, OP_combine, "grad_input", &attrs, INPUTS(u.dy, u.op.input[1]), err);
}

enum status gradient_rule_combine(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t rows = u.op.input[0], gates = u.op.input[1];
    struct op_attrs attrs = experts_of(&u), back = attrs;
    back.weighted = u.op.attrs.weighted;
    back.capacity = gradient_graph(g)->tensors[rows].shape.dim[2];
    if (u.op.attrs.weighted)
        TRY(use_input(&u, 1, OP_gates_grad, "grad_gates", &attrs, INPUTS(rows, gates, u.dy), err));
    return use_input(&u, 0, OP_dispatch, "grad_rows", &back, INPUTS(u.dy, gates), err);
}

/* As matmul's, per expert. */
enum status gradient_rule_expert_matmul(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t x = u.op.input[0], w = u.op.input[1], gates = u.op.input[2];
    bool trans_b = u.op.attrs.trans_b;
    if (u.op.attrs.trans_a || (!use_is_parameter(&u, 1) && !gradient_is_of_parameter(g, w)))
        return error_set(err, ERR_INPUT, "operator '%s': only rows x weights has a gradient",
                         u.op.name);
    struct op_attrs dx = experts_of(&u), dw = dx;
    dx.trans_b = !trans_b, dw.trans_a = true;
    int32_t left = trans_b ? u.dy : x, right = trans_b ? x : u.dy;
    TRY(use_input(&u, 0, OP_expert_matmul, "grad_input", &dx, INPUTS(u.dy, w, gates), err));
    return use_weights(&u, 1, 1, OP_expert_matmul, "grad_weight", dw, INPUTS(left, right, gates),
                        err);
}
