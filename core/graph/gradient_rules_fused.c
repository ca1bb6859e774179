/* core/graph/gradient_rules_fused.c - gradients of products with fused epilogues, and of padded logits.
 *
 * A gradient operator may be fused with the existing operator that made its input: that operator is replaced by the
 * fused one. Conditions: the tensor between them has no other reader, both are of one layer, and the graph's list of
 * fused kinds has the kind. The tensor between them is then no longer a gradient of its activation.
 */
#include "core/graph/gradient_rules.h"

#include "core/graph/gradient_use.h"

enum status gradient_rule_linear(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    TRY(use_product(u, err));
    return use_weights(&u, 2, 1, OP_bias_grad, "grad_bias", (struct op_attrs){0}, INPUTS(u.dy),
                       err);
}

/* The plain product that made dy, the complete gradient of y; -1 if there is none, or dy was reduced over devices. */
static int32_t product_behind(const struct use *u)
{
    const struct graph *g = gradient_graph(u->b);
    int32_t p = g->tensors[u->dy].producer, y = u->op.output[0];
    if (p < g->n_forward || g->ops[p].kind != OP_matmul || g->ops[p].layer != u->op.layer)
        return -1;
    bool alone = gradient_readers(u->b, y) == 1 && g->ops[g->ops[p].forward].input[0] == y;
    return alone && !g->ops[p].attrs.accumulate && !g->ops[p].attrs.trans_a ? p : -1;
}

/* dz in place of dy, and the sum of its rows. */
static void fuse_slope(struct use *u, int32_t product, int32_t z, int32_t *sum)
{
    struct graph *g = gradient_graph(u->b);
    const struct shape rows = {.rank = 1, .dim = {shape_last(&g->tensors[z].shape)}};
    *sum = graph_add_tensor(
        g, (struct tensor){.name = graph_output_name(g, g->ops[product].name, 1, 2),
                           .role = TENSOR_GRADIENT,
                           .dtype = g->dtype,
                           .shape = rows,
                           .producer = product,
                           .of = -1});
    struct graph_op *op = &g->ops[product];
    op->kind = OP_matmul_gelu_grad;
    op->input[op->n_inputs++] = z;
    op->output[op->n_outputs++] = *sum;
    g->tensors[u->op.output[0]].gradient = -1;
    g->tensors[z].gradient = u->dy;
    g->tensors[u->dy].of = z;
}

/* From z, the last output. */
enum status gradient_rule_linear_gelu(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t z = u.op.output[1], sum = -1, dz = -1, product = product_behind(&u);
    if (product >= 0 && graph_fuses(gradient_graph(g), OP_matmul_gelu_grad)) {
        fuse_slope(&u, product, z, &sum);
        TRY(use_product(u, err));
        return use_weights(&u, 2, 1, OP_accumulate, "grad_bias", (struct op_attrs){0}, INPUTS(sum),
                           err);
    }
    TRY(gradient_emit(g, op, OP_gelu_grad, PHASE_I, "grad_gelu", NULL, INPUTS(z, u.dy), &dz, 1,
                      err));
    u.dy = dz;
    TRY(use_product(u, err));
    return use_weights(&u, 2, 1, OP_bias_grad, "grad_bias", (struct op_attrs){0}, INPUTS(u.dy),
                       err);
}

enum status gradient_rule_logits(struct gradient_builder *g, int32_t op, struct error *err)
{
    struct use u = use_of(g, op);
    int32_t x = u.op.input[0], w = u.op.input[1];
    struct op_attrs dw = {.vocabulary = gradient_graph(g)->tensors[w].shape.dim[0]};
    TRY(use_input(&u, 0, OP_logits_grad, "grad_input", NULL, INPUTS(u.dy, w), err));
    return use_weights(&u, 1, 1, OP_logits_weight_grad, "grad_weight", dw, INPUTS(u.dy, x), err);
}
