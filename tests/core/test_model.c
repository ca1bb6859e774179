/* config.json to graph: published parameter counts, layers, what is refused and with which words.
 */
#include "tests/support/models.h"
#include "tests/support/suites.h"

#include <stdio.h>

/* The large ones: known totals. mistral: 2·V·d + L·(2dh + 2·d·1024 + 3df + 2d) + d. The tiny ones
 * by hand: gpt2 256·64 + 128·64 + 4·(12·64² + 13·64) + 2·64; llama 2·256·64 + 4·(2·64² + 2·64·32 +
 * 3·64·160
 * + 2·64) + 64; qwen3 256·64 + 4·(2·64·128 + 2·64·64 + 2·32 + 3·64·192 + 2·64) + 64;
 * qwen2 as llama with one table and 64 + 2·32 biases a layer. */
static const struct {
    const char *name;
    int64_t parameters;
    int32_t layers; /* embedding, two a block, final norm, head, loss */
} sizes[] = {
    {"gpt2", 124439808, 28},
    {"llama-3.1-8b", 8030261248, 68},
    {"llama-3.1-70b", 70553706496, 164},
    {"qwen3-8b", 8190735360, 76},
    {"mistral-7b", 7241732096, 68},
    {"qwen2-7b", 7615616512, 60},
    {"gemma-2-2b", 2614341888, 56},
    {"gemma-3-1b", 999885952, 56},
    {"gemma-3-4b", 3880263168, 72}, /* of a text_config */
    {"phi-4", 14659507200, 84},
    {"olmo-2-7b", 7298617344, 68},
    {"glm-4-9b-0414", 9400279040, 84},
    {"qwen3-vl-8b", 8190735360, 76}, /* its language model is qwen3-8b */
    {"tiny-gpt2", 16384 + 8192 + 4 * (49152 + 832) + 128, 12},
    {"tiny-llama", 32768 + 4 * (8192 + 4096 + 30720 + 128) + 64, 12},
    {"tiny-mistral", 32768 + 4 * (8192 + 4096 + 30720 + 128) + 64, 12},
    {"tiny-qwen2", 16384 + 4 * (8192 + 4096 + 30720 + 128 + 128) + 64, 12},
    {"tiny-qwen3", 16384 + 4 * (16384 + 8192 + 64 + 36864 + 128) + 64, 12},
    {"tiny-gemma2", 16384 + 4 * (16384 + 8192 + 30720 + 256) + 64, 12},
    {"tiny-gemma3", 16384 + 4 * (16384 + 8192 + 64 + 30720 + 256) + 64, 12},
    {"tiny-phi3", 32768 + 4 * (8192 + 4096 + 30720 + 128) + 64, 12},
    {"tiny-olmo2", 32768 + 4 * (8192 + 4096 + 64 + 32 + 30720 + 128) + 64, 12},
    {"tiny-glm4", 32768 + 4 * (16384 + 8192 + 128 + 128 + 30720 + 256) + 64, 12},
};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

START_TEST(parameters_are_counted_as_published)
{
    struct model m = model(sizes[_i].name);
    ck_assert_int_eq(model_parameters(&m), sizes[_i].parameters);
}
END_TEST

START_TEST(every_block_is_two_layers)
{
    struct graph *g = models_graph(sizes[_i].name, 1, 16);
    ck_assert_int_eq(g->n_layers, sizes[_i].layers);
    ck_assert_str_eq(g->layer_name[g->n_layers - 1], "loss");
    ck_assert_str_eq(g->layer_name[g->n_layers - 2], "lm_head");
    for (int32_t k = 0; k + 3 < g->n_layers; k++) { /* the residual stream crosses */
        const struct shape *s = &g->tensors[g->cut[k].tensor[0]].shape;
        ck_assert(s->rank == 3 && s->dim[0] == 1 && s->dim[1] == 16);
        ck_assert_int_eq(s->dim[2], model(sizes[_i].name).hidden);
    }
}
END_TEST

START_TEST(layers_have_names_for_people)
{
    struct graph *g = models_graph("tiny-gpt2", 1, 16);
    static const char *const gpt2[] = {"embedding", "h.0.attn", "h.0.mlp", "h.1.attn"};
    for (int i = 0; i < 4; i++) ck_assert_str_eq(g->layer_name[i], gpt2[i]);
    ck_assert_str_eq(g->layer_name[9], "ln_f");
    g = models_graph("tiny-llama", 1, 16);
    static const char *const llama[] = {"embed_tokens", "layers.0.self_attn", "layers.0.mlp"};
    for (int i = 0; i < 3; i++) ck_assert_str_eq(g->layer_name[i], llama[i]);
    ck_assert_str_eq(g->layer_name[9], "norm");
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

START_TEST(gpt2_has_its_names_layouts_and_first_values)
{
    struct graph *g = models_graph("gpt2", 1, 16);
    expect(g, "transformer.wte.weight", 50257, 768, INIT_NORMAL, 0.02, true);
    expect(g, "transformer.wpe.weight", 1024, 768, INIT_NORMAL, 0.02, true);
    expect(g, "transformer.h.11.attn.c_attn.weight", 768, 2304, INIT_NORMAL, 0.02, true);
    expect(g, "transformer.h.0.attn.c_attn.bias", 2304, 0, INIT_ZEROS, 0, false);
    /* 0.02 / sqrt(24) */
    expect(g, "transformer.h.0.attn.c_proj.weight", 768, 768, INIT_NORMAL, 0.004082482904638631,
           true);
    expect(g, "transformer.h.0.mlp.c_fc.weight", 768, 3072, INIT_NORMAL, 0.02, true);
    expect(g, "transformer.h.0.mlp.c_proj.weight", 3072, 768, INIT_NORMAL, 0.004082482904638631,
           true);
    expect(g, "transformer.h.0.ln_2.weight", 768, 0, INIT_ONES, 0, false);
    expect(g, "transformer.ln_f.bias", 768, 0, INIT_ZEROS, 0, false);
    ck_assert(!has_tensor(g, "lm_head.weight"));
}
END_TEST

START_TEST(llama_and_qwen_have_their_names_and_layouts)
{
    struct graph *g = models_graph("llama-3.1-8b", 1, 16);
    expect(g, "model.embed_tokens.weight", 128256, 4096, INIT_NORMAL, 0.02, true);
    expect(g, "model.layers.31.self_attn.k_proj.weight", 1024, 4096, INIT_NORMAL, 0.02, true);
    expect(g, "model.layers.0.mlp.down_proj.weight", 4096, 14336, INIT_NORMAL, 0.02, true);
    expect(g, "model.norm.weight", 4096, 0, INIT_ONES, 0, false);
    expect(g, "lm_head.weight", 128256, 4096, INIT_NORMAL, 0.02, true);
    g = models_graph("tiny-qwen3", 1, 16);
    expect(g, "model.layers.0.self_attn.q_norm.weight", 32, 0, INIT_ONES, 0, false);
    expect(g, "model.layers.0.self_attn.o_proj.weight", 64, 128, INIT_NORMAL, 0.02, true);
    ck_assert(!has_tensor(g, "lm_head.weight"));
    g = models_graph("tiny-qwen2", 1, 16);
    expect(g, "model.layers.0.self_attn.v_proj.bias", 32, 0, INIT_ZEROS, 0, false);
    ck_assert(!has_tensor(g, "model.layers.0.self_attn.o_proj.bias"));
}
END_TEST

START_TEST(operators_carry_what_the_config_says)
{
    struct graph *g = models_graph("tiny-llama", 2, 32);
    int rotary = 0, attention = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct op_attrs *a = &g->ops[i].attrs;
        if (g->ops[i].kind == OP_rotary) {
            ck_assert_int_eq(a->heads, rotary++ % 2 ? 2 : 4);
            ck_assert_double_eq(a->rope.factor, 4);
            ck_assert_double_eq(a->rope.original_max_position, 64);
            ck_assert_double_eq(a->theta, 10000);
        }
        if (g->ops[i].kind == OP_attention) {
            attention++;
            ck_assert(a->heads == 4 && a->kv_heads == 2 && a->head_dim == 16 && a->window == 0);
        }
        if (g->ops[i].kind == OP_rms_norm) ck_assert_double_eq(a->eps, 1e-5);
    }
    ck_assert(rotary == 8 && attention == 4);
    g = models_graph("tiny-mistral", 2, 32);
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == OP_attention) ck_assert_int_eq(g->ops[i].attrs.window, 16);
}
END_TEST

/* gemma3: layer 2 of 4 sees all positions, with the scaled base; the others have a window and a base of their own. */
START_TEST(layers_may_differ_in_their_window)
{
    struct graph *g = models_graph("tiny-gemma3", 2, 32);
    int rotary = 0, attention = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct op_attrs *a = &g->ops[i].attrs;
        bool whole = g->ops[i].kind == OP_rotary ? rotary++ / 2 == 2 : attention == 2;
        if (g->ops[i].kind == OP_rotary) {
            ck_assert_double_eq(a->theta, whole ? 100000 : 10000);
            ck_assert_double_eq(a->rope.factor, whole ? 8 : 0);
        }
        if (g->ops[i].kind == OP_attention) {
            ck_assert_int_eq(a->window, whole ? 0 : 12);
            attention++;
        }
        if (g->ops[i].kind == OP_rms_norm) ck_assert(a->unit_offset);
    }
    ck_assert(rotary == 8 && attention == 4);
}
END_TEST

START_TEST(inputs_are_what_the_worker_feeds)
{
    struct graph *g = models_graph("tiny-gpt2", 3, 32);
    ck_assert(tensor(g, "tokens")->input == INPUT_TOKENS &&
              tensor(g, "positions")->input == INPUT_POSITIONS &&
              tensor(g, "targets")->input == INPUT_TARGETS);
    ck_assert(tensor(g, "tokens")->shape.dim[0] == 3 && tensor(g, "tokens")->shape.dim[1] == 32);
    ck_assert_int_eq(tensor(g, "tokens")->dtype, DTYPE_int32);
    ck_assert_int_eq(tensor(g, "loss.0")->role, TENSOR_LOSS);
    ck_assert(!has_tensor(models_graph("tiny-llama", 1, 16), "positions"));
}
END_TEST

static void same_model(const struct model *a, const struct model *b)
{
    ck_assert_str_eq(a->name, b->name);
    ck_assert_str_eq(a->family, b->family);
    ck_assert(a->layers == b->layers && a->hidden == b->hidden && a->heads == b->heads &&
              a->kv_heads == b->kv_heads && a->head_dim == b->head_dim &&
              a->intermediate == b->intermediate && a->vocabulary == b->vocabulary &&
              a->max_positions == b->max_positions && a->window == b->window);
    ck_assert(a->tied == b->tied && a->attention_bias == b->attention_bias &&
              a->mlp_bias == b->mlp_bias && a->gelu_erf == b->gelu_erf);
    ck_assert(a->window_pattern == b->window_pattern && a->rotary_dim == b->rotary_dim &&
              a->local_theta == b->local_theta && a->query_scalar == b->query_scalar &&
              a->attention_softcap == b->attention_softcap && a->logit_softcap == b->logit_softcap);
    ck_assert(a->norm_eps == b->norm_eps && a->rope_theta == b->rope_theta &&
              a->init_std == b->init_std && a->rope.factor == b->rope.factor &&
              a->rope.low_freq_factor == b->rope.low_freq_factor &&
              a->rope.high_freq_factor == b->rope.high_freq_factor &&
              a->rope.original_max_position == b->rope.original_max_position);
}

START_TEST(what_is_written_reads_back_the_same)
{
    struct model m = model(sizes[_i].name), again;
    m.init_std = 0.1 + 0.2; /* needs all 17 digits */
    m.name = "a \"quoted\" name";
    const char *text = model_write(arena, &m);
    ck_assert(!strchr(text, '\n'));
    ck_assert_msg(models_read_text(text, &again) == OK, "%s\n%s", err.text, text);
    same_model(&m, &again);
    char yaml[8192]; /* inside a plan it is a flow map of YAML */
    struct node *plan;
    snprintf(yaml, sizeof yaml, "job:\n  model: %s\n", text);
    ck_assert_msg(document_parse(arena, "plan", yaml, strlen(yaml), &plan, &err) == OK, "%s",
                  err.text);
    const struct node *inner = node_get(node_get(plan, "job"), "model");
    ck_assert_msg(model_read(inner, NULL, &again, &err) == OK, "%s", err.text);
    same_model(&m, &again);
}
END_TEST

#define LLAMA                                                                                      \
    "\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 160, "                 \
    "\"num_hidden_layers\": 2, \"vocab_size\": 256, \"num_attention_heads\": 4"
#define QWEN                                                                                       \
    "\"model_type\": \"qwen2\", \"hidden_size\": 64, \"intermediate_size\": 160, "                 \
    "\"num_hidden_layers\": 4, \"vocab_size\": 256, \"num_attention_heads\": 4"

START_TEST(absent_keys_have_the_familys_defaults)
{
    struct model m;
    ck_assert_msg(models_read_text("{" LLAMA ", \"some_new_key\": [1]}", &m) == OK, "%s", err.text);
    ck_assert(m.kv_heads == 4 && m.head_dim == 16 && !m.tied && m.window == 0);
    ck_assert_double_eq(m.rope_theta, 10000);
    ck_assert_double_eq(m.init_std, 0.02);
    ck_assert_str_eq(m.name, "config");
    ck_assert(model("gpt2").intermediate == 3072); /* n_inner: null */
    ck_assert(model("qwen2-7b").window == 0 && model("mistral-7b").window == 4096);
}
END_TEST

START_TEST(numbers_in_quotes_are_numbers)
{
    struct model m;
    ck_assert_msg(models_read_text("{" LLAMA ", \"num_key_value_heads\": \"2\", "
                                   "\"rms_norm_eps\": \"1e-5\"}",
                                   &m) == OK,
                  "%s", err.text);
    ck_assert_int_eq(m.kv_heads, 2);
    ck_assert_double_eq(m.norm_eps, 1e-5);
}
END_TEST

START_TEST(both_spellings_of_rotary_scaling_are_read)
{
    struct model m;
    ck_assert_msg(models_read_text("{" LLAMA
                                   ", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": "
                                   "\"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
                                   "\"high_freq_factor\": 4, "
                                   "\"original_max_position_embeddings\": 8192}}",
                                   &m) == OK,
                  "%s", err.text);
    ck_assert_double_eq(m.rope_theta, 5e5);
    ck_assert_double_eq(m.rope.factor, 8);
}
END_TEST

START_TEST(a_window_on_some_layers_only_is_refused)
{
    struct model m;
    ck_assert(models_read_text("{" QWEN ", \"use_sliding_window\": true, \"sliding_window\": 8, "
                               "\"max_window_layers\": 0}",
                               &m) == OK &&
              m.window == 8);
    ck_assert(models_read_text("{" QWEN ", \"use_sliding_window\": true, \"sliding_window\": 8, "
                               "\"max_window_layers\": 4}",
                               &m) == OK &&
              m.window == 0);
    ck_assert_int_eq(models_read_text("{" QWEN
                                      ", \"use_sliding_window\": true, \"sliding_window\": 8, "
                                      "\"max_window_layers\": 2}",
                                      &m),
                     ERR_INPUT);
}
END_TEST

START_TEST(layer_types_of_qwen_decide)
{
    struct model m, again;
    ck_assert_msg(models_read_text("{" QWEN ", \"use_sliding_window\": true, \"sliding_window\": 8, \"max_window_layers\": 2, \"layer_types\": "
                                   "[\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"]}",
                                   &m) == OK, "%s", err.text);
    ck_assert(m.window == 8 && m.window_pattern == 2);
    ck_assert_msg(models_read_text(model_write(arena, &m), &again) == OK, "%s", err.text);
    same_model(&m, &again);
}
END_TEST

START_TEST(keys_that_change_the_computation_are_refused)
{
    static const char *const keys[] = {"\"logit_scale\": 0.5", "\"use_qk_norm\": true", "\"no_rope_layers\": [1]", "\"clip_qkv\": 8", "\"residual_multiplier\": 0.2"};
    static const char *const neutral[] = {"\"logit_scale\": 1.0", "\"use_qk_norm\": false", "\"no_rope_layers\": []", "\"clip_qkv\": null"};
    struct model m;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        ck_assert_int_eq(models_read_text(arena_printf(arena, "{" LLAMA ", %s}", keys[i]), &m), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "changes the computation") != NULL, "%s", err.text);
    }
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        ck_assert_msg(models_read_text(arena_printf(arena, "{" LLAMA ", %s}", neutral[i]), &m) == OK, "%s", err.text);
    ck_assert_int_eq(models_read_text("{\"model_type\": \"gemma3_text\", \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2, "
                                      "\"attn_logit_softcapping\": 5}", &m), ERR_INPUT);
}
END_TEST

/* transformers refuses a fraction for an integer and an integer for a fraction. */
START_TEST(numbers_of_a_config_have_their_types)
{
    struct model m = model("tiny-gemma2");
    const char *text = model_config(arena, &m);
    ck_assert_msg(strstr(text, "\"query_pre_attn_scalar\": 24,") && strstr(text, "\"attn_logit_softcapping\": 5.0,"), "%s", text);
}
END_TEST

static const struct {
    const char *file, *message, *message_too;
} bad[] = {
    {"bad/zero-heads", "n_head", "0"},
    {"bad/heads-do-not-divide", "5 heads", "64"},
    {"bad/overflow", "n_embd", ""},
    {"bad/not-a-number", "n_embd", "sixty-four"},
    {"bad/activation", "activation_function", "gelu_new"},
    {"bad/kv-heads-do-not-divide", "3 key-value heads", "4 heads"},
    {"bad/rope-scaling", "yarn", "llama3"},
    {"bad/quantised", "quantization_config", "quantised"},
    {"bad/layer-types", "layer 3", "every n-th"},
    {"bad/partial-rotary", "partial", "phi3"},
    {"bad/part-of-a-head", "partial_rotary_factor", "even"},
    {"bad/unknown-model-type", "mamba", "mistral"},
    {"bad/no-model-type", "model_type", ""},
    {"bad/missing-heads", "num_attention_heads", ""},
    {"bad/not-a-map", "map", ""},
};

START_TEST(bad_configs_are_refused_with_the_reason)
{
    struct model m;
    ck_assert_int_eq(models_read_file(bad[_i].file, &m), ERR_INPUT);
    ck_assert_msg(strstr(err.text, bad[_i].message) && strstr(err.text, bad[_i].message_too), "%s",
                  err.text);
    ck_assert_msg(strstr(err.text, bad[_i].file) != NULL, "%s", err.text);
}
END_TEST

START_TEST(impossible_microbatches_are_refused)
{
    struct model m = model("tiny-gpt2");
    struct graph *g;
    ck_assert_int_eq(model_graph(arena, &m, DTYPE_fp32, 1, 129, &g, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "129") && strstr(err.text, "128") && strstr(err.text, "tiny-gpt2"));
    ck_assert_int_eq(model_graph(arena, &m, DTYPE_fp32, 0, 16, &g, &err), ERR_INPUT);
    ck_assert_int_eq(model_graph(arena, &m, DTYPE_fp32, INT64_MAX, 16, &g, &err), ERR_INPUT);
    ck_assert_int_eq(model_graph(arena, &m, DTYPE_int32, 1, 16, &g, &err), ERR_INPUT);
    ck_assert_int_eq(model_graph(arena, &m, DTYPE_bf16, 1, 128, &g, &err), OK);
}
END_TEST

Suite *model_suite(void)
{
    Suite *s = suite_create("core/model/model");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, models_setup, models_teardown);
    tcase_add_loop_test(t, parameters_are_counted_as_published, 0, N_SIZES);
    tcase_add_loop_test(t, every_block_is_two_layers, 0, N_SIZES);
    tcase_add_loop_test(t, what_is_written_reads_back_the_same, 0, N_SIZES);
    tcase_add_loop_test(t, bad_configs_are_refused_with_the_reason, 0, sizeof bad / sizeof *bad);
    tcase_add_test(t, layers_have_names_for_people);
    tcase_add_test(t, gpt2_has_its_names_layouts_and_first_values);
    tcase_add_test(t, llama_and_qwen_have_their_names_and_layouts);
    tcase_add_test(t, operators_carry_what_the_config_says);
    tcase_add_test(t, layers_may_differ_in_their_window);
    tcase_add_test(t, inputs_are_what_the_worker_feeds);
    tcase_add_test(t, absent_keys_have_the_familys_defaults);
    tcase_add_test(t, numbers_in_quotes_are_numbers);
    tcase_add_test(t, both_spellings_of_rotary_scaling_are_read);
    tcase_add_test(t, a_window_on_some_layers_only_is_refused);
    tcase_add_test(t, layer_types_of_qwen_decide);
    tcase_add_test(t, keys_that_change_the_computation_are_refused);
    tcase_add_test(t, numbers_of_a_config_have_their_types);
    tcase_add_test(t, impossible_microbatches_are_refused);
    suite_add_tcase(s, t);
    return s;
}
