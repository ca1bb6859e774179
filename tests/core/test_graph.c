/* Graphs by hand: names, liveness, cut points, fusion. */
#include "core/base/arena.h"
#include "core/graph/graph.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct graph *g;
static struct error err;

enum { B = 2, T = 3, D = 4 };

static void setup(void)
{
    arena = arena_new();
    g = graph_new(arena, DTYPE_fp32, B, T);
}

static void teardown(void) { arena_free(arena); }

static int32_t parameter(const char *name, struct shape shape)
{
    return graph_add_tensor(
        g, (struct tensor){.name = name, .role = TENSOR_PARAMETER, .shape = shape});
}

static int32_t ids(const char *name)
{
    return graph_add_tensor(
        g, (struct tensor){
               .name = name, .role = TENSOR_INPUT, .dtype = DTYPE_int32, .shape = {2, {B, T}}});
}

static int32_t op(enum op_kind kind, const char *name, int32_t x, int32_t y, int32_t z)
{
    int32_t out[OP_OPERANDS_MAX], n = 1 + (y >= 0) + (z >= 0);
    enum status status = graph_add_op(g, kind, name, NULL, (int32_t[]){x, y, z}, n, out, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    return out[0];
}

static int32_t linear(const char *name, int32_t x, int64_t in, int64_t out)
{
    char weight[64];
    snprintf(weight, sizeof weight, "%s.weight", name);
    return op(OP_matmul, name, x, parameter(weight, (struct shape){2, {in, out}}), -1);
}

static int32_t table(const char *name) { return parameter(name, (struct shape){2, {10, D}}); }

/* embedding, then twice (x + mlp(x)), then logits and loss */
static void residual_network(void)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("embed.weight"), -1);
    for (int i = 0; i < 2; i++) {
        int32_t y = linear(i ? "h.1.up" : "h.0.up", x, D, 2 * D);
        y = op(OP_bias, i ? "h.1.bias" : "h.0.bias", y,
               parameter(i ? "h.1.b" : "h.0.b", (struct shape){1, {2 * D}}), -1);
        y = op(OP_gelu, i ? "h.1.gelu" : "h.0.gelu", y, -1, -1);
        y = linear(i ? "h.1.down" : "h.0.down", y, 2 * D, D);
        x = op(OP_add, i ? "h.1.residual" : "h.0.residual", x, y, -1);
    }
    x = linear("head", x, D, 10);
    op(OP_cross_entropy, "loss", x, ids("targets"), -1);
}

START_TEST(outputs_are_named_after_their_operator)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1), out[2];
    ck_assert_str_eq(g->tensors[x].name, "embed");
    int32_t gamma = parameter("gamma", (struct shape){1, {D}});
    ck_assert(graph_add_op(g, OP_rms_norm, "norm", NULL, (int32_t[]){x, gamma}, 2, out, &err) ==
              OK);
    ck_assert_str_eq(g->tensors[out[0]].name, "norm.0");
    ck_assert_str_eq(g->tensors[out[1]].name, "norm.1");
    ck_assert_int_eq(g->tensors[out[1]].producer, 1);
    ck_assert_int_eq(g->tensors[gamma].producer, -1);
    ck_assert_int_eq(g->n_forward, 2);
}
END_TEST

START_TEST(an_operator_whose_operands_do_not_fit_is_named)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    int32_t w = parameter("v", (struct shape){2, {5, 6}}), out[1], n = g->n_ops;
    ck_assert_int_eq(graph_add_op(g, OP_matmul, "h.0.fc", NULL, (int32_t[]){x, w}, 2, out, &err),
                     ERR_INPUT);
    ck_assert(strstr(err.text, "'h.0.fc'") && strstr(err.text, "(2,3,4)") &&
              strstr(err.text, "(5,6)"));
    ck_assert_int_eq(g->n_ops, n);
}
END_TEST

START_TEST(layers_end_where_one_activation_is_live)
{
    static const char *const names[] = {"embed", "h.0", "h.1", "head", "loss"};
    static const char *const cuts[] = {"embed", "h.0.residual", "h.1.residual", "head"};
    residual_network();
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 5);
    for (int i = 0; i < 5; i++) ck_assert_str_eq(g->layer_name[i], names[i]);
    for (int i = 0; i < 4; i++) ck_assert_str_eq(g->tensors[g->cut[i].tensor[0]].name, cuts[i]);
    ck_assert_int_eq(g->ops[0].layer, 0);
    ck_assert_int_eq(g->ops[1].layer, 1);
    ck_assert_int_eq(g->ops[5].layer, 1);
    ck_assert_int_eq(g->ops[6].layer, 2);
    ck_assert_int_eq(g->ops[12].layer, 4);
}
END_TEST

START_TEST(a_chain_without_residuals_may_be_cut_after_every_operator)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    for (int i = 0; i < 4; i++) x = op(OP_multiply, "g", x, x, -1);
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 5);
}
END_TEST

START_TEST(two_embeddings_and_their_sum_are_one_layer)
{
    int32_t x = op(OP_embedding, "wte", ids("tokens"), table("a"), -1);
    int32_t p = op(OP_embedding, "wpe", ids("positions"), table("b"), -1);
    x = op(OP_add, "embedding.add", x, p, -1);
    linear("head", x, D, 10);
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 2);
    ck_assert_str_eq(g->layer_name[0], "embedding");
    ck_assert_int_eq(g->cut[0].tensor[0], x);
}
END_TEST

START_TEST(an_operand_read_twice_by_one_operator_dies_once)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    x = op(OP_multiply, "square", x, x, -1);
    op(OP_multiply, "again", x, x, -1);
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 3);
    ck_assert_int_eq(g->cut[1].tensor[0], x);
}
END_TEST

START_TEST(an_empty_graph_has_no_layers)
{
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 0);
}
END_TEST

START_TEST(fusing_merges_neighbours_and_keeps_all_else)
{
    residual_network();
    graph_find_layers(g);
    enum op_kind list[] = {OP_swiglu, OP_bias_gelu};
    struct graph *f = graph_fuse(g, list, 2);
    ck_assert_int_eq(f->n_ops, g->n_ops - 2);
    ck_assert_int_eq(f->n_forward, f->n_ops);
    ck_assert_int_eq(f->n_tensors, g->n_tensors - 2);
    ck_assert_int_eq(f->ops[2].kind, OP_bias_gelu);
    ck_assert_str_eq(f->ops[2].name, "h.0.gelu");
    ck_assert_str_eq(f->tensors[f->ops[2].input[0]].name, "h.0.up");
    ck_assert_str_eq(f->tensors[f->ops[2].input[1]].name, "h.0.b");
    ck_assert_int_eq(f->n_layers, g->n_layers);
    for (int i = 0; i < g->n_layers; i++) ck_assert_str_eq(f->layer_name[i], g->layer_name[i]);
    for (int i = 0; i + 1 < g->n_layers; i++)
        ck_assert_str_eq(f->tensors[f->cut[i].tensor[0]].name,
                         g->tensors[g->cut[i].tensor[0]].name);
    for (int i = 0; i < f->n_ops; i++) {
        struct op_shapes s, again;
        graph_op_shapes(f, &f->ops[i], &s);
        again = s;
        ck_assert(op_infer(f->ops[i].kind, &f->ops[i].attrs, &again, NULL) == OK);
        ck_assert(shape_equal(&s.output[0], &again.output[0]));
        for (int k = 0; k < f->ops[i].n_outputs; k++)
            ck_assert_int_eq(f->tensors[f->ops[i].output[k]].producer, i);
    }
}
END_TEST

START_TEST(the_gate_of_a_swiglu_comes_first_wherever_it_stood)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    int32_t gate = linear("gate", x, D, D), up = linear("up", x, D, D);
    int32_t s = op(OP_silu, "silu", gate, -1, -1);
    op(OP_multiply, "multiply", up, s, -1);
    struct graph *f = graph_fuse(g, (enum op_kind[]){OP_swiglu}, 1);
    ck_assert_int_eq(f->ops[3].kind, OP_swiglu);
    ck_assert_str_eq(f->tensors[f->ops[3].input[0]].name, "gate");
    ck_assert_str_eq(f->tensors[f->ops[3].input[1]].name, "up");
}
END_TEST

START_TEST(an_intermediate_that_somebody_else_reads_is_not_fused_away)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    int32_t y = op(OP_bias, "bias", x, parameter("b", (struct shape){1, {D}}), -1);
    op(OP_add, "add", op(OP_gelu, "gelu", y, -1, -1), y, -1);
    ck_assert_int_eq(graph_fuse(g, (enum op_kind[]){OP_bias_gelu}, 1)->n_ops, g->n_ops);
}
END_TEST

START_TEST(operators_of_different_layers_are_not_fused)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    x = op(OP_bias, "bias", x, parameter("b", (struct shape){1, {D}}), -1);
    op(OP_gelu, "gelu", x, -1, -1);
    graph_set_layers(g, (const int32_t[]){1, 2}, 2);
    ck_assert_int_eq(graph_fuse(g, (enum op_kind[]){OP_bias_gelu}, 1)->n_ops, 3);
}
END_TEST

START_TEST(what_finishes_an_operator_begins_no_layer)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1);
    for (int i = 0; i < 2; i++) {
        x = op(OP_multiply, "m", x, x, -1);
        x = op(OP_bias, "m.bias", x, parameter("b", (struct shape){1, {D}}), -1);
        x = op(OP_relu, "relu", x, -1, -1);
    }
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 3);
    ck_assert_int_eq(g->ops[3].layer, 1);
    ck_assert_int_eq(g->ops[4].layer, 2);
}
END_TEST

START_TEST(a_bias_of_other_dimensions_is_not_fused)
{
    int32_t x = op(OP_embedding, "embed", ids("tokens"), table("w"), -1), out[1];
    int32_t b = parameter("b", (struct shape){1, {3}});
    ck_assert(graph_add_op(g, OP_bias, "bias", &(struct op_attrs){.dim = 1}, (int32_t[]){x, b}, 2,
                           out, &err) == OK);
    op(OP_gelu, "gelu", out[0], -1, -1);
    ck_assert_int_eq(graph_fuse(g, (enum op_kind[]){OP_bias_gelu}, 1)->n_ops, g->n_ops);
}
END_TEST

Suite *graph_suite(void)
{
    Suite *s = suite_create("core/graph/graph");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, outputs_are_named_after_their_operator);
    tcase_add_test(t, an_operator_whose_operands_do_not_fit_is_named);
    tcase_add_test(t, layers_end_where_one_activation_is_live);
    tcase_add_test(t, a_chain_without_residuals_may_be_cut_after_every_operator);
    tcase_add_test(t, two_embeddings_and_their_sum_are_one_layer);
    tcase_add_test(t, an_operand_read_twice_by_one_operator_dies_once);
    tcase_add_test(t, an_empty_graph_has_no_layers);
    tcase_add_test(t, fusing_merges_neighbours_and_keeps_all_else);
    tcase_add_test(t, the_gate_of_a_swiglu_comes_first_wherever_it_stood);
    tcase_add_test(t, an_intermediate_that_somebody_else_reads_is_not_fused_away);
    tcase_add_test(t, operators_of_different_layers_are_not_fused);
    tcase_add_test(t, what_finishes_an_operator_begins_no_layer);
    tcase_add_test(t, a_bias_of_other_dimensions_is_not_fused);
    suite_add_tcase(s, t);
    return s;
}
