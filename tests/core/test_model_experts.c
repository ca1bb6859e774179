/* Models with experts and BERT from config.json: published parameter counts, names, layers, what is refused. */
#include "tests/support/models.h"
#include "tests/support/suites.h"

#include <stdio.h>

/* Layers: embedding, two a block, norm, head, loss; 0: a model whose sums are not all that ends layers. By hand: tiny-mixtral 2·256·64 + 2·(2·64² +
 * 2·64·32 + 4·64 + 4·3·64·96 + 2·64) + 64; tiny-bert-moe 260·64 + 128·64 + 2·64 + 128 + 4·(4·(64² + 64) + 256) + 2·(2·64·128 + 192)
 * + 2·(4·64 + 4·2·64·128) + 64² + 64 + 128 + 260. */
static const struct {
    const char *name;
    int64_t parameters, active;
    int32_t layers;
} with_experts[] = {
    {"mixtral-8x7b", 46702792704, 12879925248, 68},
    {"qwen3-30b-a3b", 30532122624, 3353032704, 100},
    {"bert-base-uncased", 109514298, 109514298, 0},
    {"tiny-mixtral", 32768 + 2 * (8192 + 4096 + 256 + 73728 + 128) + 64,
     32768 + 2 * (8192 + 4096 + 256 + 36864 + 128) + 64, 8},
    {"tiny-qwen3-moe", 300352, 300352 - 5 * 3 * 64 * 48, 12},
    {"tiny-bert", 96580, 96580, 0},
    {"tiny-bert-moe",
     16640 + 8192 + 128 + 128 + 4 * (4 * 4160 + 256) + 2 * (16384 + 192) + 2 * (256 + 65536) +
         4160 + 128 + 260,
     16640 + 8192 + 128 + 128 + 4 * (4 * 4160 + 256) + 2 * (16384 + 192) + 2 * (256 + 32768) +
         4160 + 128 + 260,
     0},
};
enum { N_WITH_EXPERTS = sizeof with_experts / sizeof *with_experts };

START_TEST(experts_are_counted_as_published_and_as_one_token_join_them)
{
    struct model m = model(with_experts[_i].name);
    ck_assert_int_eq(model_parameters(&m), with_experts[_i].parameters);
    ck_assert_int_eq(model_active_parameters(&m), with_experts[_i].active);
}
END_TEST

/* By hand: 4096 tokens, 8 of 128 experts: 256 each; 2 of 8: 1024 each. */
START_TEST(what_is_assumed_of_experts_is_stated)
{
    struct model qwen = model("qwen3-30b-a3b"), mixtral = model("mixtral-8x7b");
    ck_assert_str_eq(model_experts_assumed(arena, &qwen, 4096),
                     "memory for 4096 tokens of a sequence in each, 16 × the even share "
                     "(no token is dropped; `expert_imbalance: 2` in the job plans for 2 ×); time "
                     "of evenly routed tokens");
    ck_assert_str_eq(model_experts_assumed(arena, &mixtral, 4096),
                     "memory for 4096 tokens of a sequence in each, 4 × the even share "
                     "(no token is dropped; `expert_imbalance: 2` in the job plans for 2 ×); time "
                     "of evenly routed tokens");
    mixtral.expert_imbalance = 1.5;
    ck_assert_str_eq(model_experts_assumed(arena, &mixtral, 4096),
                     "memory for 1536 tokens of a sequence in each, 1.5 × the even share "
                     "(expert_imbalance 1.5; a run would skip further tokens); time of evenly "
                     "routed tokens");
    mixtral.expert_imbalance = 4;
    ck_assert_str_eq(model_experts_assumed(arena, &mixtral, 4096),
                     "memory for 4096 tokens of a sequence in each, 4 × the even share "
                     "(no token is dropped); time of evenly routed tokens");
    qwen.capacity_factor = 1.25;
    ck_assert_str_eq(model_experts_assumed(arena, &qwen, 4096),
                     "memory for 320 tokens of a sequence in each, 1.25 × the even share "
                     "(capacity_factor 1.25, further tokens skip the expert); time of evenly "
                     "routed tokens");
    struct model dense = model("tiny-bert");
    ck_assert_ptr_null(model_experts_assumed(arena, &dense, 64));
}
END_TEST

START_TEST(dropout_moves_no_layer)
{
    struct graph *plain = models_graph(with_experts[_i].name, 1, 16), *dropping;
    struct model m = model(with_experts[_i].name);
    m.hidden_dropout = m.embedding_dropout = 0.1;
    ck_assert(model_graph(arena, &m, DTYPE_fp32, 1, 16, &dropping, &err) == OK);
    graph_find_layers(dropping);
    if (with_experts[_i].layers) ck_assert_int_eq(plain->n_layers, with_experts[_i].layers);
    ck_assert_int_ge(plain->n_layers, 2 * model(with_experts[_i].name).layers + 4);
    ck_assert_int_eq(dropping->n_layers, plain->n_layers);
    for (int32_t k = 0; k + 1 < plain->n_layers; k++)
        ck_assert(plain->cut[k].n == 1 && dropping->cut[k].n == 1);
}
END_TEST

static const struct tensor *tensor(const struct graph *g, const char *name)
{
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (!strcmp(g->tensors[t].name, name)) return &g->tensors[t];
    ck_abort_msg("no tensor '%s'", name);
    return NULL;
}

static bool has_tensor(const struct graph *g, const char *name)
{
    for (int32_t t = 0; t < g->n_tensors; t++)
        if (!strcmp(g->tensors[t].name, name)) return true;
    return false;
}

static void expect(const struct graph *g, const char *name, int64_t m, int64_t n,
                   enum tensor_init init, double std, bool decay)
{
    const struct tensor *t = tensor(g, name);
    ck_assert_msg(t->role == TENSOR_PARAMETER && t->shape.dim[0] == m &&
                      (n ? t->shape.rank == 2 && t->shape.dim[1] == n : t->shape.rank == 1),
                  "%s", name);
    ck_assert_msg(t->init == init && t->decay == decay, "%s", name);
    ck_assert_double_eq_tol(t->init_std, std, 1e-15);
}

static void expect_experts(const struct graph *g, const char *name, int64_t experts, int64_t out,
                           int64_t in)
{
    const struct tensor *t = tensor(g, name);
    ck_assert_msg(t->role == TENSOR_PARAMETER && t->shape.rank == 3 && t->shape.dim[0] == experts &&
                      t->shape.dim[1] == out && t->shape.dim[2] == in && t->decay,
                  "%s", name);
}

START_TEST(experts_are_stacked_and_have_their_names)
{
    struct graph *g = models_graph("mixtral-8x7b", 1, 16);
    expect(g, "model.layers.31.block_sparse_moe.gate.weight", 8, 4096, INIT_NORMAL, 0.02, true);
    expect_experts(g, "model.layers.0.block_sparse_moe.experts.w1.weight", 8, 14336, 4096);
    expect_experts(g, "model.layers.0.block_sparse_moe.experts.w2.weight", 8, 4096, 14336);
    expect_experts(g, "model.layers.0.block_sparse_moe.experts.w3.weight", 8, 14336, 4096);
    g = models_graph("tiny-qwen3-moe", 1, 16);
    /* every second layer, but not the last one */
    expect(g, "model.layers.0.mlp.gate_proj.weight", 192, 64, INIT_NORMAL, 0.02, true);
    expect(g, "model.layers.3.mlp.up_proj.weight", 192, 64, INIT_NORMAL, 0.02, true);
    expect(g, "model.layers.1.mlp.gate.weight", 8, 64, INIT_NORMAL, 0.02, true);
    expect_experts(g, "model.layers.1.mlp.experts.down_proj.weight", 8, 64, 48);
    ck_assert(has_tensor(g, "model.layers.1.self_attn.k_norm.weight"));
    ck_assert(!has_tensor(g, "model.layers.3.mlp.gate.weight"));
    g = models_graph("tiny-bert-moe", 1, 16);
    expect_experts(g, "bert.encoder.layer.3.moe.experts.intermediate.weight", 4, 128, 64);
    expect(g, "bert.encoder.layer.2.intermediate.dense.weight", 128, 64, INIT_NORMAL, 0.02, true);
}
END_TEST

START_TEST(bert_has_its_names_and_hides_words)
{
    struct graph *g = models_graph("bert-base-uncased", 2, 20);
    expect(g, "bert.embeddings.token_type_embeddings.weight", 2, 768, INIT_NORMAL, 0.02, true);
    expect(g, "bert.encoder.layer.11.attention.self.value.bias", 768, 0, INIT_ZEROS, 0, false);
    expect(g, "bert.encoder.layer.0.attention.output.LayerNorm.weight", 768, 0, INIT_ONES, 0,
           false);
    expect(g, "bert.encoder.layer.0.output.dense.weight", 768, 3072, INIT_NORMAL, 0.02, true);
    expect(g, "cls.predictions.transform.LayerNorm.bias", 768, 0, INIT_ZEROS, 0, false);
    expect(g, "cls.predictions.bias", 30522, 0, INIT_ZEROS, 0, false);
    ck_assert(!has_tensor(g, "cls.predictions.decoder.weight"));
    ck_assert(tensor(g, "tokens")->input == INPUT_MASKED_TOKENS &&
              tensor(g, "targets")->input == INPUT_MASKED_TARGETS &&
              tensor(g, "segments")->input == INPUT_SEGMENTS);
    for (int32_t i = 0; i < g->n_ops; i++) {
        if (g->ops[i].kind == OP_attention) ck_assert(g->ops[i].attrs.bidirectional);
        if (g->ops[i].kind == OP_gelu) ck_assert(g->ops[i].attrs.gelu_erf);
        if (g->ops[i].kind == OP_cross_entropy) ck_assert_int_eq(g->ops[i].attrs.counted, 3);
    }
    ck_assert_int_eq(model_masked_positions(1), 1);
    ck_assert_int_eq(model_masked_positions(512), 77);
}
END_TEST

/* Expert rows find room: all positions, or the capacity that was asked for. */
START_TEST(dispatch_has_the_capacity_of_the_config)
{
    static const struct {
        const char *name;
        int64_t capacity;
    } cases[] = {{"tiny-mixtral", 32},   /* all */
                 {"tiny-qwen3-moe", 18}, /* 1.5 · 3 · 32 / 8 */
                 {"tiny-bert-moe", 20}}; /* 1.25 · 2 · 32 / 4 */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct graph *g = models_graph(cases[c].name, 2, 32);
        int seen = 0;
        for (int32_t i = 0; i < g->n_ops; i++)
            if (g->ops[i].kind == OP_dispatch) {
                ck_assert_int_eq(g->ops[i].attrs.capacity, cases[c].capacity);
                seen++;
            }
        ck_assert_int_gt(seen, 0);
    }
}
END_TEST

START_TEST(what_is_written_reads_back_the_same)
{
    struct model m = model(with_experts[_i].name), again;
    const struct model *a = &m, *b = &again;
    m.config_hidden_dropout = 0.25;
    if (!strcmp(m.family, "bert"))
        m.config_embedding_dropout = 0.25;
    else
        m.config_hidden_dropout = 0;
    const char *text = model_write(arena, &m);
    ck_assert_msg(models_read_text(text, &again) == OK, "%s\n%s", err.text, text);
    ck_assert_str_eq(model_write(arena, &again), text);
    ck_assert(a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
              a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
              a->intermediate == b->intermediate && a->window == b->window && a->tied == b->tied &&
              a->gelu_erf == b->gelu_erf);
    ck_assert(a->norm_eps == b->norm_eps && a->rope_theta == b->rope_theta);
    ck_assert(a->experts == b->experts && a->chosen == b->chosen &&
              a->expert_intermediate == b->expert_intermediate &&
              a->sparse_step == b->sparse_step && a->capacity_factor == b->capacity_factor &&
              a->renormalise == b->renormalise && a->n_dense_layers == b->n_dense_layers &&
              a->aux_loss == b->aux_loss && a->segments == b->segments);
    for (int32_t i = 0; i < a->n_dense_layers; i++)
        ck_assert_int_eq(a->dense_layers[i], b->dense_layers[i]);
    ck_assert(a->config_hidden_dropout == b->config_hidden_dropout &&
              a->config_embedding_dropout == b->config_embedding_dropout);
}
END_TEST

static const struct {
    const char *text, *message;
} bad[] = {
    {"model_type: mixtral\nnum_experts_per_tok: 9", "9 of 8 experts"},
    {"model_type: mixtral\nnum_local_experts: 0", "num_local_experts"},
    {"model_type: mixtral\nrouter_jitter_noise: 0.1", "router noise is not supported"},
    {"model_type: mixtral\ncapacity_factor: 0", "must be above 0, or null"},
    {"model_type: qwen3_moe\nmlp_only_layers: 3", "mlp_only_layers"},
    {"model_type: qwen3_moe\nmlp_only_layers: [-1]", "mlp_only_layers"},
    {"model_type: qwen3_moe\ndecoder_sparse_step: 0", "decoder_sparse_step"},
    {"model_type: bert\nposition_embedding_type: relative_key", "absolute"},
    {"model_type: bert\nhidden_act: relu", "gelu"},
    {"model_type: bert\nis_decoder: true", "causal attention"},
    {"model_type: bert\nnum_experts: 1",
     "num_experts: top-2 of 1 experts is not possible; state num_experts_per_tok"},
    {"model_type: bert\nhidden_dropout_prob: 1", "hidden_dropout_prob"},
};

START_TEST(bad_configs_are_refused_with_the_reason)
{
    struct model m;
    const char *text =
        arena_printf(arena,
                     "%s\nhidden_size: 64\nintermediate_size: 96\nnum_hidden_layers: 2\n"
                     "num_attention_heads: 4\nnum_key_value_heads: 2\nvocab_size: 300\n",
                     bad[_i].text);
    ck_assert_int_eq(models_read_text(text, &m), ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message) != NULL, "%s", err.text);
}
END_TEST

START_TEST(absent_keys_have_the_familys_defaults)
{
    struct model m;
    ck_assert_msg(
        models_read_text("model_type: mixtral\nhidden_size: 64\nintermediate_size: 96\n"
                         "num_hidden_layers: 2\nnum_attention_heads: 16\nvocab_size: 300\n",
                         &m) == OK,
        "%s", err.text);
    ck_assert(m.experts == 8 && m.chosen == 2 && m.kv_heads == 8 && m.window == 0 && !m.tied);
    ck_assert(m.rope_theta == 1e6 && m.norm_eps == 1e-5 && m.capacity_factor == 0);
    m = model("tiny-bert");
    ck_assert(!m.experts && m.config_hidden_dropout == 0.1 && m.hidden_dropout == 0);
    ck_assert(m.segments == 2 && m.norm_eps == 1e-12 && m.gelu_erf && m.tied);
    m = model("tiny-bert-moe");
    ck_assert(m.chosen == 2 && m.sparse_step == 2 && m.capacity_factor == 1.25);
    m = model("qwen3-30b-a3b");
    ck_assert(m.chosen == 8 && m.renormalise && m.capacity_factor == 0 && m.aux_loss == 0.001);
}
END_TEST

Suite *model_experts_suite(void)
{
    Suite *s = suite_create("core/model/experts");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, models_setup, models_teardown);
    tcase_add_loop_test(t, experts_are_counted_as_published_and_as_one_token_join_them, 0,
                        N_WITH_EXPERTS);
    tcase_add_test(t, what_is_assumed_of_experts_is_stated);
    tcase_add_loop_test(t, dropout_moves_no_layer, 0, N_WITH_EXPERTS);
    tcase_add_loop_test(t, what_is_written_reads_back_the_same, 0, N_WITH_EXPERTS);
    tcase_add_loop_test(t, bad_configs_are_refused_with_the_reason, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, experts_are_stacked_and_have_their_names);
    tcase_add_test(t, bert_has_its_names_and_hides_words);
    tcase_add_test(t, dispatch_has_the_capacity_of_the_config);
    tcase_add_test(t, absent_keys_have_the_familys_defaults);
    suite_add_tcase(s, t);
    return s;
}
