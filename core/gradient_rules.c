/* core/gradient_rules.c - one gradient rule for each differentiable kind.
 *
 * Each rule reads the operands of the forward operator and the gradient dy of its first output and
 * hands back the gradients of its operands. Second outputs (statistics, log-sum-exp) are kept for
 * the gradient operators and are not differentiated through. Bias and add move no data: dy itself
 * is the gradient of their operands.
 */
#include "core/gradient_rules.h"

#include "core/arena.h"
#include "core/gradient.h"

struct use { /* the forward operator, copied: the arrays of the graph move while it grows */
    struct gradient_builder *b;
    struct graph_op op;
    int32_t i;  /* its number */
    int32_t dy; /* gradient of output 0; -1 for the loss */
};

static struct use use_of(struct gradient_builder *b, int32_t i)
{
    struct graph_op op = gradient_graph(b)->ops[i];
    return (struct use){.b = b, .op = op, .i = i, .dy = gradient_of(b, op.output[0])};
}

static bool is_parameter(const struct use *u, int32_t input)
{
    return gradient_graph(u->b)->tensors[u->op.input[input]].role == TENSOR_PARAMETER;
}

static bool wants(const struct use *u, int32_t input)
{
    return gradient_wanted(u->b, u->op.input[input]);
}

/* Operand `input` gets grad, unchanged, where it wants one. */
static enum status pass(const struct use *u, int32_t input, int32_t grad, struct error *err)
{
    return wants(u, input) ? gradient_contribute(u->b, u->op.input[input], grad, err) : OK;
}

#define INPUTS(...)                                                                                \
    (const int32_t[]){__VA_ARGS__}, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* One I operator with one output, the gradient of operand `input`. */
static enum status emit_input(const struct use *u, int32_t input, enum op_kind kind,
                              const char *suffix, const struct op_attrs *attrs,
                              const int32_t *inputs, int32_t n_inputs, struct error *err)
{
    if (!wants(u, input)) return OK;
    int32_t out = -1;
    TRY(gradient_emit(u->b, u->i, kind, PHASE_I, suffix, attrs, inputs, n_inputs, &out, 1, err));
    return gradient_contribute(u->b, u->op.input[input], out, err);
}

/* Weights of which some are parts that a conversion made: their gradients are tensors like any other. */
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
        if (!is_parameter(u, input + k)) {
            TRY(gradient_contribute(u->b, weight, out[k], err));
            continue;
        }
        int32_t sum = gradient_parameter(u->b, weight);
        TRY(gradient_emit(u->b, u->i, OP_accumulate, PHASE_W, "grad_accumulate",
                          &(struct op_attrs){.accumulate = true}, &out[k], 1, &sum, 1, err));
    }
    return OK;
}

/* One W operator that adds to the gradients of parameters `input`, `input` + 1 … */
static enum status emit_weights(const struct use *u, int32_t input, int32_t n_outputs,
                                enum op_kind kind, const char *suffix, struct op_attrs attrs,
                                const int32_t *inputs, int32_t n_inputs, struct error *err)
{
    int32_t out[OP_OPERANDS_MAX];
    for (int32_t k = 0; k < n_outputs; k++) {
        if (is_parameter(u, input + k)) continue;
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

/* y = a·b:  da = dy·bᵀ, db = aᵀ·dy.   y = a·bᵀ (trans_b):  da = dy·b, db = dyᵀ·a. */
enum status gradient_rule_matmul(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t a = u.op.input[0], b = u.op.input[1];
    bool trans_b = u.op.attrs.trans_b;
    if (u.op.attrs.trans_a || is_parameter(&u, 0))
        return error_set(err, ERR_INPUT, "operator '%s': only activation x weight has a gradient",
                         u.op.name);
    struct op_attrs da = {.trans_b = !trans_b}, db = {.trans_a = true};
    int32_t left = trans_b ? u.dy : a, right = trans_b ? a : u.dy;
    TRY(emit_input(&u, 0, OP_matmul, "grad_input", &da, INPUTS(u.dy, b), err));
    if (!is_parameter(&u, 1))
        return emit_input(&u, 1, OP_matmul, "grad_right", &db, INPUTS(left, right), err);
    return emit_weights(&u, 1, 1, OP_matmul, "grad_weight", db, INPUTS(left, right), err);
}

enum status gradient_rule_bias(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    TRY(pass(&u, 0, u.dy, err));
    return emit_weights(&u, 1, 1, OP_bias_grad, "grad_bias", (struct op_attrs){0}, INPUTS(u.dy),
                        err);
}

enum status gradient_rule_add(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    /* The list of contributions grows at its front: the later operand goes first. */
    for (int32_t k = 1; k >= 0; k--) {
        TRY(pass(&u, k, u.dy, err));
        if (is_parameter(&u, k))
            TRY(emit_weights(&u, k, 1, OP_accumulate, k ? "grad_right" : "grad_left",
                             (struct op_attrs){0}, INPUTS(u.dy), err));
    }
    return OK;
}

enum status gradient_rule_multiply(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    if (is_parameter(&u, 0) || is_parameter(&u, 1))
        return error_set(err, ERR_INPUT, "operator '%s': multiply by a parameter has no gradient",
                         u.op.name);
    TRY(emit_input(&u, 1, OP_multiply, "grad_right", NULL, INPUTS(u.dy, u.op.input[0]), err));
    return emit_input(&u, 0, OP_multiply, "grad_left", NULL, INPUTS(u.dy, u.op.input[1]), err);
}

/* gelu and silu */
enum status gradient_rule_activation(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    enum op_kind kind = u.op.kind == OP_gelu ? OP_gelu_grad : OP_silu_grad;
    struct op_attrs attrs = {.gelu_erf = u.op.attrs.gelu_erf};
    return emit_input(&u, 0, kind, "grad_input", &attrs, INPUTS(u.op.input[0], u.dy), err);
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
    TRY(pass(&u, 0, dz, err));
    return emit_weights(&u, 1, 1, OP_bias_grad, "grad_bias", (struct op_attrs){0}, INPUTS(dz), err);
}

enum status gradient_rule_swiglu(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t out[2] = {-1, -1};
    if (!wants(&u, 0) && !wants(&u, 1)) return OK;
    TRY(gradient_emit(g, op, OP_swiglu_grad, PHASE_I, "grad_input", NULL,
                      INPUTS(u.op.input[0], u.op.input[1], u.dy), out, 2, err));
    TRY(pass(&u, 1, out[1], err));
    return pass(&u, 0, out[0], err);
}

/* Each card's column-parallel products give a term of dy (Shoeybi et al. 2019, Megatron-LM's f). */
static enum status sum_over_cards(struct use *u, struct error *err)
{
    struct op_attrs attrs = {.ranks = u->op.attrs.ranks};
    int32_t sum = -1;
    TRY(gradient_emit(u->b, u->i, OP_all_reduce, PHASE_I, "grad_all_reduce", &attrs, INPUTS(u->dy),
                      &sum, 1, err));
    u->dy = sum;
    return OK;
}

static enum status norm(struct use *u, enum op_kind input_grad, enum op_kind weight_grad,
                        int32_t n_weights, struct error *err)
{
    int32_t x = u->op.input[0], gamma = u->op.input[1], stats = u->op.output[1];
    struct op_attrs attrs = {.eps = u->op.attrs.eps};
    const struct graph *g = gradient_graph(u->b);
    if (!shape_elements(&g->tensors[x].shape)) /* an empty part says nothing of a run's length */
        attrs.head_dim = (int32_t)shape_last(&g->tensors[gamma].shape);
    if (u->op.attrs.ranks > 1) TRY(sum_over_cards(u, err));
    TRY(emit_input(u, 0, input_grad, "grad_input", &attrs, INPUTS(x, gamma, stats, u->dy), err));
    return emit_weights(u, 1, n_weights, weight_grad, "grad_weight", attrs, INPUTS(x, stats, u->dy),
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

enum status gradient_rule_embedding(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    const struct tensor *rows = &gradient_graph(g)->tensors[u.op.input[1]];
    struct op_attrs attrs = {
        .vocabulary = rows->shape.dim[0], .start = u.op.attrs.start, .whole = u.op.attrs.whole};
    return emit_weights(&u, 1, 1, OP_embedding_grad, "grad_weight", attrs,
                        INPUTS(u.op.input[0], u.dy), err);
}

enum status gradient_rule_rotary(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    struct op_attrs attrs = u.op.attrs;
    attrs.inverse = !attrs.inverse;
    return emit_input(&u, 0, OP_rotary, "grad_input", &attrs, INPUTS(u.dy), err);
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
    for (int32_t k = n - 1; k >= 0; k--) TRY(pass(&u, k, out[k], err));
    return OK;
}

/* Mean over this microbatch's rows, weighted by its share of the step; operands from `first` on are logits, targets. */
static enum status cross_entropy(const struct use *u, int32_t first, struct error *err)
{
    int32_t logits = u->op.input[first], targets = u->op.input[first + 1], lse = u->op.output[1];
    int64_t rows = u->op.attrs.mean_rows;
    if (!rows) rows = shape_rows(&gradient_graph(u->b)->tensors[logits].shape);
    struct op_attrs attrs = {.scale = gradient_loss_weight(u->b) / (double)rows,
                             .start = u->op.attrs.start,
                             .whole = u->op.attrs.whole};
    return emit_input(u, first, OP_cross_entropy_grad, "grad_input", &attrs,
                      INPUTS(logits, targets, lse), err);
}

enum status gradient_rule_cross_entropy(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return cross_entropy(&u, 0, err);
}

/* The parts that were joined are statistics: the gradient goes to the logits themselves. */
enum status gradient_rule_cross_entropy_join(struct gradient_builder *g, int32_t op,
                                             struct error *err)
{
    struct use u = use_of(g, op);
    return cross_entropy(&u, 1, err);
}

/* The sum is whole on every card, and so is its gradient. */
enum status gradient_rule_all_reduce(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return pass(&u, 0, u.dy, err);
}

enum status gradient_rule_all_gather(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return emit_input(&u, 0, OP_reduce_scatter, "grad_input", &u.op.attrs, INPUTS(u.dy), err);
}

enum status gradient_rule_reduce_scatter(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    return emit_input(&u, 0, OP_all_gather, "grad_input", &u.op.attrs, INPUTS(u.dy), err);
}

/* --- conversions between placements (core/shard) --- */

/* What flowed back to the output: terms apart where the tensor keeps them, and only one of them left for a parameter. */
static void terms_back(const struct use *u, int32_t terms[GRADIENT_TERMS])
{
    int32_t y = u->op.output[0], n = 0;
    gradient_terms(u->b, y, terms);
    if (!gradient_is_of_parameter(u->b, u->op.input[0])) return;
    for (int32_t m = 0; m < GRADIENT_TERMS; m++) n += terms[m] >= 0;
    if (n < 2) return;
    int32_t sum = gradient_sum_terms(u->b, u->i, y, terms);
    for (int32_t m = 1; m < GRADIENT_TERMS; m++) terms[m] = -1;
    terms[0] = sum;
}

/* The source gets grad, which is a term over `terms`: an activation as it is, a parameter by W operator `kind`. */
static enum status hand_on(const struct use *u, int32_t grad, uint8_t terms, struct error *err)
{
    int32_t x = u->op.input[0];
    if (!is_parameter(u, 0)) return gradient_contribute_terms(u->b, x, grad, terms, err);
    int32_t sum = gradient_parameter_terms(u->b, x, terms);
    return gradient_emit(u->b, u->i, OP_accumulate, PHASE_W, "grad_accumulate",
                         &(struct op_attrs){.accumulate = true}, &grad, 1, &sum, 1, err);
}

/* This one's own kind of gradient operator, with the exchange of the forward operator. */
static enum status convert_back(const struct use *u, enum op_kind kind, const char *suffix,
                                const struct exchange *exchange, int32_t grad, int32_t *out,
                                struct error *err)
{
    struct op_attrs attrs = {.exchange = exchange};
    *out = -1;
    return gradient_emit(u->b, u->i, kind, PHASE_I, suffix, &attrs, INPUTS(grad), out, 1, err);
}

/* Where everybody has the same gradient this one takes its part; terms are summed and dealt out at once. */
enum status gradient_rule_group_all_gather(struct gradient_builder *g, int32_t op,
                                           struct error *err)
{
    static const char *const scatter[] = {"", "grad_scatter.0", "grad_scatter.1", "grad_scatter"};
    static const char *const part[] = {"grad_part", "grad_part.0", "grad_part.1", ""};
    struct use u = use_of(g, op);
    int32_t terms[GRADIENT_TERMS], axis = u.op.attrs.exchange->axis;
    if (!wants(&u, 0) && !is_parameter(&u, 0)) return OK;
    terms_back(&u, terms);
    for (int32_t m = GRADIENT_TERMS - 1; m >= 0; m--) {
        bool owed = m >> axis & 1;
        int32_t mine;
        if (terms[m] < 0) continue;
        TRY(convert_back(&u, owed ? OP_group_reduce_scatter : OP_take_part,
                         owed ? scatter[m] : part[m], u.op.attrs.exchange, terms[m], &mine, err));
        TRY(hand_on(&u, mine, (uint8_t)(m & ~(1 << axis)), err));
    }
    return OK;
}

/* Of a parameter everybody knows the gradient of its own part, which with zeros around it is a term of the whole. */
static enum status part_of_parameter(const struct use *u, struct error *err)
{
    const struct exchange *exchange = u->op.attrs.exchange;
    int32_t terms[GRADIENT_TERMS], out;
    terms_back(u, terms);
    for (int32_t m = 0; m < GRADIENT_TERMS; m++) {
        if (terms[m] < 0) continue;
        uint8_t owed = (uint8_t)(m | 1 << exchange->axis);
        if (!is_parameter(u, 0)) {
            TRY(convert_back(u, OP_add_part, "grad_whole", exchange, terms[m], &out, err));
            return gradient_contribute_terms(u->b, u->op.input[0], out, owed, err);
        }
        out = gradient_parameter_terms(u->b, u->op.input[0], owed);
        struct op_attrs attrs = {.exchange = exchange, .accumulate = true};
        return gradient_emit(u->b, u->i, OP_add_part, PHASE_W, "grad_weight", &attrs, &terms[m], 1,
                             &out, 1, err);
    }
    return OK;
}

enum status gradient_rule_take_part(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t whole;
    if (gradient_is_of_parameter(g, u.op.input[0])) return part_of_parameter(&u, err);
    if (!wants(&u, 0)) return OK;
    TRY(convert_back(&u, OP_group_all_gather, "grad_gather", u.op.attrs.exchange, u.dy, &whole,
                     err));
    return pass(&u, 0, whole, err);
}

enum status gradient_rule_group_reduce_scatter(struct gradient_builder *g, int32_t op,
                                               struct error *err)
{
    return gradient_rule_take_part(g, op, err);
}

enum status gradient_rule_group_all_to_all(struct gradient_builder *g, int32_t op,
                                           struct error *err)
{
    struct use u = use_of(g, op);
    const struct exchange *e = u.op.attrs.exchange;
    int32_t terms[GRADIENT_TERMS];
    if (!wants(&u, 0) && !is_parameter(&u, 0)) return OK;
    struct exchange *back = arena_copy(gradient_graph(g)->arena, e, sizeof *back);
    back->dim = e->to_dim, back->to_dim = e->dim;
    back->parts = e->to, back->to = e->parts;
    terms_back(&u, terms);
    for (int32_t m = GRADIENT_TERMS - 1; m >= 0; m--) {
        static const char *const suffix[] = {"grad_back", "grad_back.0", "grad_back.1",
                                             "grad_back.2"};
        int32_t mine;
        if (terms[m] < 0) continue;
        TRY(convert_back(&u, OP_group_all_to_all, suffix[m], back, terms[m], &mine, err));
        TRY(hand_on(&u, mine, (uint8_t)m, err));
    }
    return OK;
}

/* One operator gives both gradients, and its working memory: while it runs, the gradients of what was kept. */
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
    return attrs.first ? OK : pass(&u, 1, out[2], err);
}
