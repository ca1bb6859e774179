/* The structure of training graphs: of the tiny models, and of small graphs by hand. Numbers are
 * the executor's to check: it compares these operators with finite differences. */
#include "core/base/arena.h"
#include "core/graph/gradient.h"
#include "core/model/model.h"

#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static struct error err;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const char *const models[] = {"tiny-gpt2",      "tiny-llama", "tiny-qwen2",   "tiny-qwen3",
                                     "tiny-mistral",   "tiny-vit",   "tiny-vgg",     "tiny-mixtral",
                                     "tiny-qwen3-moe", "tiny-bert",  "tiny-bert-moe"};
enum { N_MODELS = sizeof models / sizeof *models };

static struct model model(const char *name)
{
    char path[128];
    struct node *config;
    struct model m;
    snprintf(path, sizeof path, "tests/data/models/%s.json", name);
    ck_assert_msg(document_read(arena, path, &config, &err) == OK, "%s", err.text);
    ck_assert_msg(model_read(config, name, &m, &err) == OK, "%s", err.text);
    return m;
}

static struct graph *forward(const struct model *m, int64_t microbatch, int64_t length)
{
    struct graph *g;
    enum status status = model_graph(arena, m, DTYPE_fp32, microbatch, length, &g, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

/* Loop tests run each model plain and fused: i = 2·model + fused. */
static struct graph *training(int i)
{
    static const enum op_kind all[] = {OP_bias_gelu, OP_swiglu};
    struct model m = model(models[i / 2]);
    m.hidden_dropout = m.embedding_dropout = i % 2 ? 0.1 : 0;
    struct graph *g = forward(&m, 2, model_pixels(&m) ? m.max_positions : 16);
    if (i % 2) g = graph_fuse(g, all, 2);
    ck_assert_msg(gradient_build(g, 0.25, &err) == OK, "%s", err.text);
    return g;
}

static bool is_output(const struct graph_op *op, int32_t t)
{
    for (int32_t k = 0; k < op->n_outputs; k++)
        if (op->output[k] == t) return true;
    return false;
}

START_TEST(every_use_of_a_parameter_has_exactly_one_weight_gradient)
{
    struct graph *g = training(_i);
    for (int32_t p = 0; p < g->n_tensors; p++) {
        if (g->tensors[p].role != TENSOR_PARAMETER) continue;
        int uses = 0, grads = 0;
        for (int32_t i = 0; i < g->n_forward; i++)
            for (int32_t k = 0; k < g->ops[i].n_inputs; k++) uses += g->ops[i].input[k] == p;
        bool seen[4] = {0};
        for (int32_t t = 0; t < g->n_tensors; t++) {
            if (g->tensors[t].role != TENSOR_PARAMETER_GRADIENT || g->tensors[t].of != p) continue;
            int writers = 0;
            for (int32_t i = g->n_forward; i < g->n_ops; i++)
                if (is_output(&g->ops[i], t)) {
                    writers++;
                    ck_assert_int_eq(g->ops[i].phase, PHASE_W);
                    ck_assert(g->ops[i].attrs.accumulate);
                    ck_assert_int_eq(g->tensors[t].producer, i);
                }
            ck_assert_int_eq(writers, 1);
            ck_assert(shape_equal(&g->tensors[t].shape, &g->tensors[p].shape));
            ck_assert_int_lt(g->tensors[t].use, uses);
            ck_assert(!seen[g->tensors[t].use]);
            seen[g->tensors[t].use] = true;
            grads++;
        }
        ck_assert_msg(uses == grads && uses > 0, "%s: %d uses, %d gradients", g->tensors[p].name,
                      uses, grads);
    }
}
END_TEST

START_TEST(every_activation_before_the_loss_has_one_gradient)
{
    struct graph *g = training(_i);
    int32_t *owner = arena_alloc(arena, (size_t)g->n_tensors, sizeof *owner);
    for (int32_t i = 0; i < g->n_forward; i++) {
        int32_t t = g->ops[i].output[0], d = g->tensors[t].gradient;
        if (g->tensors[t].role == TENSOR_LOSS) continue;
        ck_assert_msg(d >= 0, "%s has no gradient", g->tensors[t].name);
        ck_assert_int_eq(g->tensors[d].role, TENSOR_GRADIENT);
        ck_assert(shape_equal(&g->tensors[d].shape, &g->tensors[t].shape));
        for (int32_t k = 1; k < g->ops[i].n_outputs; k++) /* statistics have none */
            ck_assert_int_eq(g->tensors[g->ops[i].output[k]].gradient, -1);
    }
    for (int32_t t = 0; t < g->n_tensors; t++) {
        if (g->tensors[t].role != TENSOR_GRADIENT || g->tensors[t].of < 0) continue;
        ck_assert_int_eq(owner[g->tensors[t].of]++, 0);
        ck_assert_int_eq(g->tensors[g->tensors[t].of].gradient, t);
    }
}
END_TEST

START_TEST(gradient_operators_stand_in_an_order_that_runs)
{
    struct graph *g = training(_i);
    bool *there = arena_alloc(arena, (size_t)g->n_tensors, sizeof *there);
    for (int32_t t = 0; t < g->n_tensors; t++) there[t] = g->tensors[t].producer < 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        struct op_shapes s, again;
        for (int32_t k = 0; k < op->n_inputs; k++)
            ck_assert_msg(there[op->input[k]], "%s reads what is not there yet", op->name);
        for (int32_t k = 0; k < op->n_outputs; k++) there[op->output[k]] = true;
        graph_op_shapes(g, op, &s);
        again = s;
        ck_assert(op_infer(op->kind, &op->attrs, &again, NULL) == OK);
        ck_assert_int_eq(again.n_outputs, s.n_outputs);
        for (int32_t k = 0; k < s.n_outputs; k++)
            ck_assert(shape_equal(&s.output[k], &again.output[k]));
    }
}
END_TEST

START_TEST(names_of_operators_and_tensors_are_unique)
{
    struct graph *g = training(_i);
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t k = 0; k < i; k++) ck_assert_str_ne(g->ops[i].name, g->ops[k].name);
    for (int32_t i = 0; i < g->n_tensors; i++)
        for (int32_t k = 0; k < i; k++) ck_assert_str_ne(g->tensors[i].name, g->tensors[k].name);
}
END_TEST

START_TEST(input_gradients_come_before_weight_gradients_and_layers_go_down)
{
    struct graph *g = training(_i);
    for (int32_t i = g->n_forward; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i], *before = &g->ops[i - 1];
        ck_assert(op->phase == PHASE_I || op->phase == PHASE_W);
        ck_assert_int_ge(op->forward, 0);
        ck_assert_int_eq(op->layer, g->ops[op->forward].layer);
        if (i == g->n_forward) continue;
        ck_assert_int_le(op->forward, before->forward);
        ck_assert_int_le(op->layer, before->layer);
        if (op->forward == before->forward)
            ck_assert(!(before->phase == PHASE_W && op->phase == PHASE_I));
    }
}
END_TEST

START_TEST(input_gradients_never_need_a_weight_gradient)
{
    struct graph *g = training(_i);
    for (int32_t i = g->n_forward; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
            ck_assert_int_ne(g->tensors[g->ops[i].input[k]].role, TENSOR_PARAMETER_GRADIENT);
}
END_TEST

/* What an operator of one layer reads of what an operator of a higher layer computed backwards. */
START_TEST(exactly_one_gradient_crosses_each_cut)
{
    struct graph *g = training(_i);
    for (int32_t cut = 0; cut + 1 < g->n_layers; cut++) {
        int32_t crossing = -1;
        for (int32_t i = g->n_forward; i < g->n_ops; i++)
            for (int32_t k = 0; k < g->ops[i].n_inputs && g->ops[i].layer <= cut; k++) {
                int32_t t = g->ops[i].input[k], p = g->tensors[t].producer;
                if (g->tensors[t].role != TENSOR_GRADIENT || g->ops[p].layer <= cut) continue;
                ck_assert_msg(crossing < 0 || crossing == t, "layer %s: %s and %s cross",
                              g->layer_name[cut], g->tensors[crossing].name, g->tensors[t].name);
                crossing = t;
            }
        ck_assert_int_eq(crossing, g->tensors[g->cut[cut].tensor[0]].gradient);
        ck_assert_int_eq(g->tensors[crossing].of, g->cut[cut].tensor[0]);
        ck_assert_int_eq(g->ops[g->tensors[crossing].producer].layer, cut + 1);
    }
}
END_TEST

/* The same forwards: beside parameters and inputs only the cut tensor is read from above. */
START_TEST(exactly_one_activation_crosses_each_cut)
{
    struct graph *g = training(_i);
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            int32_t t = g->ops[i].input[k], p = g->tensors[t].producer, layer = g->ops[i].layer;
            if (p < 0 || p >= g->n_forward || g->ops[p].layer == layer) continue;
            ck_assert_int_eq(g->ops[p].layer, layer - 1);
            ck_assert_int_eq(t, g->cut[layer - 1].tensor[0]);
        }
}
END_TEST

START_TEST(tied_parameters_count_their_uses_forwards)
{
    struct graph *g = training(0);
    for (int32_t t = 0; t < g->n_tensors; t++) {
        const struct tensor *d = &g->tensors[t];
        if (!strcmp(d->name, "grad.transformer.wte.weight")) {
            ck_assert_int_eq(g->ops[d->producer].kind, OP_embedding_grad);
            ck_assert_int_eq(g->ops[d->producer].attrs.vocabulary, 256);
        }
        if (!strcmp(d->name, "grad.transformer.wte.weight#1")) {
            ck_assert_int_eq(g->ops[d->producer].kind, OP_matmul);
            ck_assert_int_eq(d->use, 1);
            return;
        }
    }
    ck_abort_msg("no second gradient");
}
END_TEST

START_TEST(the_loss_is_scaled_by_its_share_of_the_step)
{
    struct graph *g = training(0);
    const struct graph_op *op = &g->ops[g->n_forward];
    ck_assert_int_eq(op->kind, OP_cross_entropy_grad);
    ck_assert_double_eq(op->attrs.scale, 0.25 / 32); /* 2 sequences of 16 */
}
END_TEST

/* Forward matmuls cost 2mnk once; backwards twice more, as every input wants its gradient. */
START_TEST(matmuls_cost_twice_as_much_backwards)
{
    struct graph *g = training(_i);
    double flops[PHASE_INDICES] = {0};
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct op_shapes s;
        graph_op_shapes(g, &g->ops[i], &s);
        if (g->ops[i].kind == OP_matmul || g->ops[i].kind == OP_expert_matmul)
            flops[phase_index(g->ops[i].phase)] += op_flops(g->ops[i].kind, &g->ops[i].attrs, &s);
    }
    ck_assert_double_eq(flops[phase_index(PHASE_I)], flops[phase_index(PHASE_F)]);
    ck_assert_double_eq(flops[phase_index(PHASE_W)], flops[phase_index(PHASE_F)]);
}
END_TEST

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int n_keys(const char *name, int64_t layers)
{
    struct model m = model(name);
    m.layers = layers;
    struct graph *g = forward(&m, 1, 64);
    ck_assert(gradient_build(g, 1, &err) == OK);
    uint64_t *keys = arena_alloc(arena, (size_t)g->n_ops, sizeof *keys);
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct op_shapes s;
        graph_op_shapes(g, &g->ops[i], &s);
        keys[i] = op_key(g->ops[i].kind, &g->ops[i].attrs, &s, g->dtype);
    }
    qsort(keys, (size_t)g->n_ops, sizeof *keys, compare);
    int n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += i == 0 || keys[i] != keys[i - 1];
    return n;
}

START_TEST(a_mean_over_hidden_positions_is_scaled_by_their_number)
{
    struct model m = model("tiny-bert");
    struct graph *g = forward(&m, 2, 16);
    ck_assert(gradient_build(g, 0.25, &err) == OK);
    const struct graph_op *op = &g->ops[g->n_forward];
    ck_assert(op->kind == OP_cross_entropy_grad && op->attrs.counted == 2); /* 0.15 · 16 = 2.4 */
    ck_assert_double_eq(op->attrs.scale, 0.25 / 4);
}
END_TEST

/* Elements that are dropped forwards are those of the gradient: the same operator again. */
START_TEST(every_dropout_has_its_own_stream_and_its_gradient_the_same)
{
    struct graph *g = training(2 * (N_MODELS - 1) + 1);
    int64_t last = 0;
    int gradients = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        if (op->kind != OP_dropout) continue;
        ck_assert_double_eq(op->attrs.rate, 0.1);
        if (op->phase == PHASE_F) {
            ck_assert_int_gt(op->attrs.stream, last);
            last = op->attrs.stream;
        } else {
            gradients++;
            ck_assert_int_eq(op->attrs.stream, g->ops[op->forward].attrs.stream);
        }
    }
    ck_assert_int_eq(gradients, 9); /* two in each of four blocks, one of the embeddings */
}
END_TEST

START_TEST(a_deeper_model_has_no_more_to_profile)
{
    ck_assert_int_eq(n_keys("tiny-mixtral", 2), n_keys("tiny-mixtral", 8));
    ck_assert_int_eq(n_keys("tiny-bert-moe", 2), n_keys("tiny-bert-moe", 8));
    ck_assert_int_eq(n_keys("gpt2", 2), n_keys("gpt2", 12));
    ck_assert_int_eq(n_keys("llama-3.1-8b", 2), n_keys("llama-3.1-8b", 32));
}
END_TEST

/* --- by hand --- */

static int32_t source(struct graph *g, const char *name, enum tensor_role role, struct shape shape)
{
    return graph_add_tensor(g, (struct tensor){.name = name, .role = role, .shape = shape});
}

static int32_t apply(struct graph *g, enum op_kind kind, const char *name, int32_t x, int32_t y)
{
    int32_t out[OP_OPERANDS_MAX];
    enum status status =
        graph_add_op(g, kind, name, NULL, (int32_t[]){x, y}, y < 0 ? 1 : 2, out, &err);
    ck_assert_msg(status == OK, "%s", err.text);
    return out[0];
}

static struct graph *embedded(int32_t *x)
{
    struct graph *g = graph_new(arena, DTYPE_fp32, 2, 3);
    int32_t ids = source(g, "ids", TENSOR_INPUT, (struct shape){2, {2, 3}});
    int32_t w = source(g, "w", TENSOR_PARAMETER, (struct shape){2, {7, 4}});
    *x = apply(g, OP_embedding, "embed", ids, w);
    return g;
}

static void lose(struct graph *g, int32_t x)
{
    int32_t ids = source(g, "targets", TENSOR_INPUT, (struct shape){2, {2, 3}});
    apply(g, OP_cross_entropy, "loss", x, ids);
}

START_TEST(three_consumers_are_summed_in_their_order_in_the_first_ones_place)
{
    int32_t x;
    struct graph *g = embedded(&x);
    int32_t a = apply(g, OP_gelu, "a", x, -1), b = apply(g, OP_silu, "b", x, -1);
    int32_t c = apply(g, OP_gelu, "c", x, -1);
    lose(g, apply(g, OP_add, "ab_c", apply(g, OP_add, "ab", a, b), c));
    graph_find_layers(g);
    ck_assert(gradient_build(g, 1, &err) == OK);
    const struct tensor *d = &g->tensors[g->tensors[x].gradient];
    const struct graph_op *second = &g->ops[d->producer];
    const struct graph_op *first = &g->ops[g->tensors[second->input[0]].producer];
    ck_assert_int_eq(second->kind, OP_add);
    ck_assert_int_eq(second->forward, 1);
    ck_assert_int_eq(second->phase, PHASE_I);
    ck_assert_str_eq(g->tensors[first->input[0]].name, "a.grad_input");
    ck_assert_str_eq(g->tensors[first->input[1]].name, "b.grad_input");
    ck_assert_str_eq(g->tensors[second->input[1]].name, "c.grad_input");
}
END_TEST

START_TEST(add_and_bias_hand_their_gradient_on_without_an_operator)
{
    int32_t x;
    struct graph *g = embedded(&x);
    int32_t b = source(g, "b", TENSOR_PARAMETER, (struct shape){1, {4}});
    int32_t y = apply(g, OP_bias, "bias", x, b);
    lose(g, y);
    ck_assert(gradient_build(g, 1, &err) == OK);
    ck_assert_int_eq(g->tensors[x].gradient, g->tensors[y].gradient);
    ck_assert_int_eq(g->n_ops - g->n_forward, 3); /* loss, db, dtable */
    ck_assert_int_eq(g->ops[g->n_forward + 1].kind, OP_bias_grad);
    ck_assert_int_eq(g->ops[g->n_forward + 2].kind, OP_embedding_grad);
}
END_TEST

START_TEST(a_square_gets_both_of_its_terms)
{
    int32_t x;
    struct graph *g = embedded(&x);
    lose(g, apply(g, OP_multiply, "square", x, x));
    ck_assert(gradient_build(g, 1, &err) == OK);
    const struct graph_op *sum = &g->ops[g->tensors[g->tensors[x].gradient].producer];
    ck_assert_int_eq(sum->kind, OP_add);
    ck_assert_str_eq(g->tensors[sum->input[0]].name, "square.grad_left");
    ck_assert_str_eq(g->tensors[sum->input[1]].name, "square.grad_right");
}
END_TEST

/* dW of a (k,n) weight is xᵀ·dy, of an (n,k) weight dyᵀ·x; dx is dy·Wᵀ or dy·W. */
START_TEST(both_layouts_of_a_weight_have_their_gradient)
{
    for (int trans_b = 0; trans_b < 2; trans_b++) {
        int32_t x, y;
        struct graph *g = embedded(&x);
        struct shape shape = trans_b ? (struct shape){2, {5, 4}} : (struct shape){2, {4, 5}};
        int32_t w = source(g, "fc", TENSOR_PARAMETER, shape);
        struct op_attrs attrs = {.trans_b = trans_b};
        ck_assert(graph_add_op(g, OP_matmul, "fc", &attrs, (int32_t[]){x, w}, 2, &y, &err) == OK);
        lose(g, y);
        ck_assert(gradient_build(g, 1, &err) == OK);
        int32_t dy = g->tensors[y].gradient;
        const struct graph_op *dx = &g->ops[g->tensors[g->tensors[x].gradient].producer];
        const struct graph_op *dw = dx + 1;
        ck_assert(dx->input[0] == dy && dx->input[1] == w && dx->attrs.trans_b == !trans_b);
        ck_assert(dw->phase == PHASE_W && dw->attrs.trans_a && dw->attrs.accumulate);
        ck_assert_int_eq(dw->input[0], trans_b ? dy : x);
        ck_assert_int_eq(dw->input[1], trans_b ? x : dy);
    }
}
END_TEST

START_TEST(what_does_not_reach_the_loss_has_no_gradient)
{
    int32_t x;
    struct graph *g = embedded(&x);
    int32_t b = source(g, "b", TENSOR_PARAMETER, (struct shape){1, {4}});
    int32_t idle = apply(g, OP_bias, "idle", x, b);
    lose(g, apply(g, OP_bias, "used", x, b));
    ck_assert(gradient_build(g, 1, &err) == OK);
    ck_assert_int_eq(g->tensors[idle].gradient, -1);
    int grads = 0;
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (g->tensors[t].role == TENSOR_PARAMETER_GRADIENT && g->tensors[t].of == b) {
            grads++;
            ck_assert_str_eq(g->tensors[t].name, "grad.b");
        }
    ck_assert_int_eq(grads, 1);
}
END_TEST

START_TEST(a_graph_without_a_loss_is_refused)
{
    int32_t x;
    struct graph *g = embedded(&x);
    ck_assert_int_eq(gradient_build(g, 1, &err), ERR_INPUT);
}
END_TEST

START_TEST(a_kind_without_a_gradient_is_refused_by_name)
{
    int32_t x;
    struct graph *g = embedded(&x);
    lose(g, apply(g, OP_accumulate, "odd", x, -1));
    ck_assert_int_eq(gradient_build(g, 1, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "'odd'") && strstr(err.text, "accumulate"));
}
END_TEST

Suite *gradient_suite(void)
{
    Suite *s = suite_create("core/graph/gradient");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, every_use_of_a_parameter_has_exactly_one_weight_gradient, 0,
                        2 * N_MODELS);
    tcase_add_loop_test(t, every_activation_before_the_loss_has_one_gradient, 0,
                        2 * N_MODELS);
    tcase_add_loop_test(t, gradient_operators_stand_in_an_order_that_runs, 0, 2 * N_MODELS);
    tcase_add_loop_test(t, names_of_operators_and_tensors_are_unique, 0, 2 * N_MODELS);
    tcase_add_loop_test(t, input_gradients_come_before_weight_gradients_and_layers_go_down, 0,
                        2 * N_MODELS);
    tcase_add_loop_test(t, input_gradients_never_need_a_weight_gradient, 0, 2 * N_MODELS);
    tcase_add_loop_test(t, exactly_one_gradient_crosses_each_cut, 0, 2 * N_MODELS);
    tcase_add_loop_test(t, exactly_one_activation_crosses_each_cut, 0, 2 * N_MODELS);
    tcase_add_loop_test(t, matmuls_cost_twice_as_much_backwards, 0, 2 * N_MODELS);
    tcase_add_test(t, tied_parameters_count_their_uses_forwards);
    tcase_add_test(t, the_loss_is_scaled_by_its_share_of_the_step);
    tcase_add_test(t, a_mean_over_hidden_positions_is_scaled_by_their_number);
    tcase_add_test(t, every_dropout_has_its_own_stream_and_its_gradient_the_same);
    tcase_add_test(t, a_deeper_model_has_no_more_to_profile);
    tcase_add_test(t, three_consumers_are_summed_in_their_order_in_the_first_ones_place);
    tcase_add_test(t, add_and_bias_hand_their_gradient_on_without_an_operator);
    tcase_add_test(t, a_square_gets_both_of_its_terms);
    tcase_add_test(t, both_layouts_of_a_weight_have_their_gradient);
    tcase_add_test(t, what_does_not_reach_the_loss_has_no_gradient);
    tcase_add_test(t, a_graph_without_a_loss_is_refused);
    tcase_add_test(t, a_kind_without_a_gradient_is_refused_by_name);
    suite_add_tcase(s, t);
    return s;
}
