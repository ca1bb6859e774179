/* Fused kinds of CUDA devices in training graphs: which operators become one, which must not, and that gradients stay the same. */
#include "core/model/model.h"

#include "tests/support/plans.h"
#include "tests/support/sharded_graphs.h"

static const enum op_kind cuda_list[] = {OP_linear, OP_linear_gelu, OP_matmul_gelu_grad,
                                         OP_logits, OP_layer_norm_grad_add};
enum { N_CUDA = sizeof cuda_list / sizeof *cuda_list, LAYERS = 2 };

#define GPT2                                                                                       \
    "model_type: gpt2\nn_layer: 2\nn_embd: 12\nn_head: 3\nn_inner: 10\nvocab_size: 11\n"             \
    "n_positions: 8\n"

static struct graph *model_of(const char *text)
{
    struct node *config;
    struct model m;
    struct graph *g;
    ck_assert_msg(document_parse(arena, "model", text, strlen(text), &config, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(model_read(config, "small", &m, &err) == OK, "%s", err.text);
    ck_assert_msg(model_graph(arena, &m, DTYPE_fp64, B, T, &g, &err) == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

static struct graph *fused(const char *text, int32_t n)
{
    struct graph *g = graph_fuse(model_of(text), cuda_list, n);
    ck_assert_msg(gradient_build(g, 0.5, &err) == OK, "%s", err.text);
    return g;
}

static int32_t count(const struct graph *g, enum op_kind kind)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) n += g->ops[i].kind == kind;
    return n;
}

static const struct graph_op *first_of(const struct graph *g, enum op_kind kind)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == kind) return &g->ops[i];
    ck_abort_msg("no %s", op_kind_name(kind));
}

START_TEST(a_block_of_gpt2_has_no_gelu_bias_or_sum_of_its_own)
{
    struct graph *g = fused(GPT2, N_CUDA);
    static const struct {
        enum op_kind kind;
        int32_t n;
    } expected[] = {
        {OP_linear_gelu, LAYERS}, {OP_matmul_gelu_grad, LAYERS}, {OP_gelu, 0}, {OP_gelu_grad, 0},
        /* qkv, projection, second product of the block */
        {OP_linear, 3 * LAYERS}, {OP_bias, 0}, {OP_bias_grad, 3 * LAYERS},
        /* the bias before gelu: what the product's gradient added up */
        {OP_accumulate, LAYERS},
        /* two residuals a block; the last norm has nothing beside it */
        {OP_layer_norm_grad_add, 2 * LAYERS}, {OP_layer_norm_grad, 1},
        /* embeddings and residuals, forward alone */
        {OP_add, 1 + 2 * LAYERS},
        {OP_logits, 1}, {OP_logits_grad, 1}, {OP_logits_weight_grad, 1}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        ck_assert_msg(count(g, expected[i].kind) == expected[i].n, "%d of %s",
                      (int)count(g, expected[i].kind), op_kind_name(expected[i].kind));
}
END_TEST

START_TEST(every_operator_fits_its_operands_and_stands_behind_what_it_reads)
{
    struct graph *g = fused(GPT2, N_CUDA);
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *op = &g->ops[i];
        struct op_shapes s, again;
        graph_op_shapes(g, op, &s);
        again = s;
        ck_assert_msg(op_infer(op->kind, &op->attrs, &again, &err) == OK, "%s: %s", op->name,
                      err.text);
        ck_assert_int_eq(again.n_outputs, op->n_outputs);
        for (int32_t k = 0; k < op->n_outputs; k++)
            ck_assert_msg(shape_equal(&s.output[k], &again.output[k]), "%s, output %d", op->name,
                          (int)k);
        for (int32_t k = 0; k < op->n_inputs; k++)
            ck_assert_msg(g->tensors[op->input[k]].producer < i, "%s, input %d", op->name, (int)k);
    }
}
END_TEST

START_TEST(gradients_are_those_of_the_plain_graph)
{
    static const char *const texts[] = {
        GPT2, GPT2 "tie_word_embeddings: false", GPT2 "activation_function: gelu",
        "model_type: llama\nnum_hidden_layers: 2\nhidden_size: 12\nnum_attention_heads: 4\n"
        "num_key_value_heads: 2\nhead_dim: 4\nintermediate_size: 10\nvocab_size: 11\n"
        "max_position_embeddings: 8"};
    struct graph *plain = model_of(texts[_i]);
    ck_assert_msg(gradient_build(plain, 0.5, &err) == OK, "%s", err.text);
    for (int32_t n = 1; n <= N_CUDA; n++) { /* the first so many kinds of the list */
        struct shard_interpreter one = sharded_graphs_interpreter(1), other = sharded_graphs_interpreter(1);
        one.g[0] = plain, other.g[0] = fused(texts[_i], n);
        shard_interpreter_run(&one);
        shard_interpreter_run(&other);
        for (int32_t t = 0; t < plain->n_tensors; t++) {
            const struct tensor *x = &plain->tensors[t];
            if (x->role != TENSOR_PARAMETER_GRADIENT && x->role != TENSOR_LOSS) continue;
            int32_t y = shard_interpreter_tensor_named(other.g[0], x->name);
            ck_assert_msg(y >= 0, "no %s", x->name);
            double d = shard_interpreter_distance(other.value[0][y], one.value[0][t], shape_elements(&x->shape));
            ck_assert_msg(d <= 1e-12, "%d kinds: %s is %g apart", (int)n, x->name, d);
        }
    }
}
END_TEST

START_TEST(gelu_by_erf_stays_apart)
{
    struct graph *g = fused(GPT2 "activation_function: gelu", N_CUDA);
    ck_assert_int_eq(count(g, OP_linear_gelu), 0);
    ck_assert_int_eq(count(g, OP_matmul_gelu_grad), 0);
    ck_assert_int_eq(count(g, OP_gelu_grad), LAYERS);
}
END_TEST

START_TEST(rows_of_logits_are_whole_packs_and_the_loss_knows_the_vocabulary)
{
    struct graph *g = fused(GPT2, N_CUDA);
    const struct graph_op *op = first_of(g, OP_logits), *loss = first_of(g, OP_cross_entropy),
                          *back = first_of(g, OP_cross_entropy_grad);
    ck_assert_int_eq(shape_last(&g->tensors[op->output[0]].shape), LOGITS_PACK);
    ck_assert_int_eq(loss->attrs.vocabulary, V);
    ck_assert_int_eq(back->attrs.vocabulary, V);
    ck_assert_int_eq(first_of(g, OP_logits_weight_grad)->attrs.vocabulary, V);
    /* what crosses between their layers is as large as it is */
    const struct cut *cut = &g->cut[op->layer];
    ck_assert_int_eq(cut->n, 1);
    ck_assert_int_eq(graph_cut_bytes(g, cut), B * T * LOGITS_PACK * 8);
}
END_TEST

START_TEST(logits_of_a_vocabulary_of_whole_packs_are_a_product_like_any_other)
{
    struct graph *g = fused("model_type: gpt2\nn_layer: 1\nn_embd: 12\nn_head: 3\nn_inner: 10\n"
                            "vocab_size: 128\nn_positions: 8\n",
                            N_CUDA);
    ck_assert_int_eq(count(g, OP_logits), 0);
    ck_assert_int_eq(first_of(g, OP_cross_entropy)->attrs.vocabulary, 0);
}
END_TEST

/* The loss's devices may have parts of a vocabulary, whose rows are no longer than they are: both ends of a message mean the same. */
START_TEST(logits_that_cross_to_devices_that_share_the_loss_are_as_long_as_the_vocabulary)
{
    struct lower_options o = {.n_fused = N_CUDA, .fused = cuda_list};
    for (int shared = 0; shared < 2; shared++) {
        struct plan p = plans_new(arena, "gpt2", 1, 3);
        p.job.model.vocabulary = V;
        int32_t end = plans_layers(arena, &p) - 1, devices[] = {1, 2};
        struct plan_replica *x = plans_replica(arena, &p, 2, 2, (const int32_t[]){end - 1, end});
        if (shared) {
            x->stages[1].n_shards = 2, x->stages[1].devices = devices;
            x->stages[1].sharding =
                sharding_of_index(arena, INDEX_batch, (const double[]){1, 1}, 2);
        }
        struct program out;
        ck_assert_msg(lower_plan(arena, &p, &o, &out, &err) == OK, "%s", err.text);
        bool longer = false;
        for (int32_t i = 0; i < out.stages[0].n_ops; i++)
            longer = longer || out.stages[0].ops[i].kind == OP_logits;
        ck_assert(longer == !shared);
    }
}
END_TEST

Suite *fused_suite(void)
{
    Suite *s = suite_create("fused");
    TCase *t = tcase_create("graphs");
    tcase_add_checked_fixture(t, sharded_graphs_begin, sharded_graphs_end);
    tcase_add_test(t, a_block_of_gpt2_has_no_gelu_bias_or_sum_of_its_own);
    tcase_add_test(t, every_operator_fits_its_operands_and_stands_behind_what_it_reads);
    tcase_add_loop_test(t, gradients_are_those_of_the_plain_graph, 0, 4);
    tcase_add_test(t, gelu_by_erf_stays_apart);
    tcase_add_test(t, rows_of_logits_are_whole_packs_and_the_loss_knows_the_vocabulary);
    tcase_add_test(t, logits_of_a_vocabulary_of_whole_packs_are_a_product_like_any_other);
    tcase_add_test(t, logits_that_cross_to_devices_that_share_the_loss_are_as_long_as_the_vocabulary);
    suite_add_tcase(s, t);
    return s;
}
