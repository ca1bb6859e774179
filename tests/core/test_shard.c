/* Whole graphs by random shardings, by known strategies and as stages, against the graph of one device: what the devices
 * have, put together, is what one device computes, forward and backward. */
#include "core/model/model.h"
#include "tests/support/sharded_graphs.h"

/* --- whole models --- */

/* {layers} stands for their number; vgg has what it has. Rates of dropout are the job's. */
static const char *const models[] = {
    "model_type: gpt2\nn_layer: {layers}\nn_embd: 12\nn_head: 3\nn_inner: 10\n"
    "vocab_size: 11\nn_positions: 8",
    "model_type: llama\nnum_hidden_layers: {layers}\nhidden_size: 12\nnum_attention_heads: 4\n"
    "num_key_value_heads: 2\nhead_dim: 4\nintermediate_size: 10\nvocab_size: 11\n"
    "max_position_embeddings: 8",
    "model_type: qwen3\nnum_hidden_layers: {layers}\nhidden_size: 12\nnum_attention_heads: 4\n"
    "num_key_value_heads: 2\nhead_dim: 4\nintermediate_size: 10\nvocab_size: 11\n"
    "max_position_embeddings: 8\ntie_word_embeddings: true",
    "model_type: mixtral\nnum_hidden_layers: {layers}\nhidden_size: 12\nnum_attention_heads: 3\n"
    "num_key_value_heads: 3\nintermediate_size: 10\nvocab_size: 11\n"
    "max_position_embeddings: 8\nnum_local_experts: 5\nnum_experts_per_tok: 2",
    "model_type: bert\nnum_hidden_layers: {layers}\nhidden_size: 12\nnum_attention_heads: 3\n"
    "intermediate_size: 10\nvocab_size: 11\nmax_position_embeddings: 8\nnum_experts: 4",
    "model_type: vit\nnum_hidden_layers: {layers}\nhidden_size: 12\nnum_attention_heads: 3\n"
    "intermediate_size: 10\nimage_size: 6\npatch_size: 3\nnum_channels: 2\nnum_labels: 11",
    "model_type: vgg\nimage_size: 4\nnum_channels: 2\nfeatures: [4, M, 6, A]\nclassifier: [5]\n"
    "norm_groups: 2\nnum_labels: 11",
};
enum { N_MODELS = sizeof models / sizeof *models };

static struct graph *model_of(int which, int64_t layers)
{
    const char *text = models[which], *at = strstr(text, "{layers}");
    struct node *config;
    struct model m;
    struct graph *g;
    if (at)
        text = arena_printf(arena, "%.*s%d%s", (int)(at - text), text, (int)layers,
                            at + strlen("{layers}"));
    ck_assert_msg(document_parse(arena, "model", text, strlen(text), &config, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(model_read(config, "small", &m, &err) == OK, "%s", err.text);
    if (m.experts && m.experts % 2) m.balance = 0.3;
    if (m.segments) m.hidden_dropout = m.embedding_dropout = 0.2;
    int64_t length = model_pixels(&m) ? m.max_positions : T;
    ck_assert_msg(model_graph(arena, &m, DTYPE_fp64, B, length, &g, &err) == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

/* Each operator by any of its indices; some models mostly by one pattern, so that nothing is converted between. */
static void random_choices(struct dice *d, const struct sharding *s, const struct graph *g,
                           struct op_choice *choices)
{
    const struct grain *grains = graph_grains(arena, g);
    for (int32_t x = 0; x < s->n_axes; x++) {
        enum op_index usual = (enum op_index)dice_roll(d, INDEX_partial);
        int64_t often = dice_roll(d, 4);
        for (int32_t i = 0; i < g->n_forward; i++) {
            uint32_t set = op_index_set(g, &g->ops[i], grains);
            enum op_index meant = op_index_meant(g, &g->ops[i], grains, usual);
            bool any = meant == INDEX_COUNT || dice_roll(d, 4) >= often;
            choices[i].index[x] = any ? sharded_graphs_index(d, set) : meant;
            choices[i].ratio[x] = (int32_t)dice_roll(d, s->n_ratios);
        }
    }
    for (int32_t i = 0; i < g->n_forward; i++) {
        uint8_t axes = sharding_factor_axes(s, g, &g->ops[i], grains, &choices[i]);
        choices[i].sufficient_factors = axes && dice_roll(d, 3) == 0;
    }
}

static void try_model(int which, uint64_t seed, bool gather)
{
    struct dice d = {seed, 0};
    int64_t layers = 1 + dice_roll(&d, 2);
    struct graph *forward = model_of(which, layers), *whole = model_of(which, layers);
    struct sharding *s =
        sharded_graphs_sharding(&d, 1 + (int32_t)dice_roll(&d, 6), dice_roll(&d, 2));
    struct op_choice *choices = ARENA_ARRAY(arena, struct op_choice, (size_t)forward->n_forward);
    random_choices(&d, s, forward, choices);
    sharded_graphs_rules(s, forward, choices);
    if (gather) {
        struct sharding_rule *all = ARENA_ARRAY(arena, struct sharding_rule, 2);
        all[0] = (struct sharding_rule){.match = "*.weight", .sharded = true};
        all[1] = (struct sharding_rule){.match = "*", .sharded = dice_roll(&d, 2)};
        s->parameters = all, s->n_parameters = 2;
    }
    ck_assert_int_eq(whole->n_forward, forward->n_forward);
    sharded_graphs_compare(forward, sharded_graphs_differentiated(whole), s, 1e-10,
                           sharded_graphs_text(s, forward, choices));
}

START_TEST(whole_models_by_random_shardings_train_as_on_one_device)
{
    int n = suites_long() ? 300 : 32;
    for (int k = 0; k < n; k++) {
        try_model(_i, (uint64_t)(k + 1000 * _i), k % 3 == 2);
        arena_reset(arena);
    }
}
END_TEST

/* What crosses is replicated or sharded by its first dimension, and so is what comes back. */
static void check_edge(const struct graph *view, const struct cut *forward,
                       const struct cut *backward)
{
    for (int32_t c = 0; c < forward->n; c++) {
        const struct tensor_shard *p = &view->tensors[forward->tensor[c]].shard;
        ck_assert(p->n_cuts == 0 || (p->n_cuts == 1 && p->cut[0].dim == 0));
    }
    for (int32_t c = 0; c < backward->n; c++) {
        bool like = false;
        for (int32_t k = 0; k < forward->n; k++)
            like = like || shape_equal(&view->tensors[backward->tensor[c]].shape,
                                       &view->tensors[forward->tensor[k]].shape);
        ck_assert_msg(like, "%s", view->tensors[backward->tensor[c]].name);
    }
}

START_TEST(a_stage_takes_and_gives_replicated_or_by_batch)
{
    int n = suites_long() ? 150 : 12;
    for (int k = 0; k < n; k++) {
        struct dice d = {(uint64_t)(77000 + 1000 * _i + k), 0};
        struct graph *forward = model_of(_i, 2), *whole = model_of(_i, 2);
        struct sharding *s =
            sharded_graphs_sharding(&d, 1 + (int32_t)dice_roll(&d, 4), dice_roll(&d, 2));
        struct op_choice *choices =
            ARENA_ARRAY(arena, struct op_choice, (size_t)forward->n_forward);
        random_choices(&d, s, forward, choices);
        sharded_graphs_rules(s, forward, choices);
        struct stage stage = {(int32_t)dice_roll(&d, forward->n_layers), 0, dice_roll(&d, 2)};
        stage.last = stage.first + (int32_t)dice_roll(&d, forward->n_layers - stage.first);
        const char *what = arena_printf(arena, "layers %d-%d, %s", stage.first, stage.last,
                                        sharded_graphs_text(s, forward, choices));
        sharded_graphs_compare_stage(forward, sharded_graphs_differentiated(whole), s, stage, 1e-10,
                                     what);
        struct shard_interpreter m = sharded_graphs_interpreter(s->n_devices);
        sharded_graphs_views(&m, forward, s, stage, what);
        for (int32_t i = 0; i < s->n_devices; i++) {
            struct cut *back = graph_gradient_cuts(arena, m.g[i]);
            if (stage.first > 0)
                check_edge(m.g[i], &m.g[i]->cut[stage.first - 1], &back[stage.first - 1]);
            if (stage.last + 1 < forward->n_layers)
                check_edge(m.g[i], &m.g[i]->cut[stage.last], &back[stage.last]);
            for (int32_t l = 0; l < forward->n_layers; l++)
                ck_assert_str_eq(m.g[i]->layer_name[l], forward->layer_name[l]);
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- known strategies --- */

struct strategy {
    const char *rules;
    int model;
    /* conversions of one of its views, forward and backward, with L blocks: a + b·L */
    struct {
        enum op_kind kind;
        int f, f_block, b, b_block;
    } count[4];
};

#define GPT2_HALVES                                                                                \
    "  - {match: \"*c_attn*\", shard: heads}\n  - {match: \"*attention\", shard: heads}\n"         \
    "  - {match: \"*attn.c_proj\", shard: inputs}\n  - {match: \"*c_fc*\", shard: features}\n"     \
    "  - {match: \"*gelu\", shard: features}\n  - {match: \"*mlp.c_proj\", shard: inputs}\n"
#define VOCABULARY_GPT2                                                                            \
    "  - {match: \"w*e\", shard: vocabulary}\n  - {match: \"embedding.add\", shard: partial}\n"    \
    "  - {match: \"lm_head\", shard: vocabulary}\n  - {match: \"loss\", shard: vocabulary}\n"
static const struct strategy strategies[] = {
    /* Nothing is converted, all parameters' gradients are partial. */
    {"  - {match: \"*\", shard: batch}\n", 0, {{OP_group_all_gather, 0, 0, 0, 0}}},
    {"  - {match: \"*\", shard: none}\n", 1, {{OP_group_all_gather, 0, 0, 0, 0}}},
    /* Shoeybi et al. 2019: two sums a block in each direction; the embedding's, and the final norm's gradient */
    {GPT2_HALVES VOCABULARY_GPT2,
     0,
     {{OP_group_all_reduce, 1, 2, 1, 2},
      {OP_group_all_gather, 1, 0, 0, 0}, /* the loss's two numbers a row */
      {OP_group_reduce_scatter, 0, 0, 0, 0}}},
    /* Korthikanti et al. 2023: where all are whole positions are sharded, and sums become scatters */
    {GPT2_HALVES VOCABULARY_GPT2 "  - {match: \"*\", shard: positions}\n",
     0,
     {{OP_group_all_reduce, 0, 0, 0, 0},
      {OP_group_reduce_scatter, 1, 2, 1, 2},
      {OP_group_all_gather, 2, 2, 1, 2}}},
    /* Sequences alone: keys and values are gathered, packed with the queries or not, and nothing else is */
    {"  - {match: \"*\", shard: positions}\n",
     0,
     {{OP_group_all_gather, 0, 1, 0, 0},
      {OP_group_reduce_scatter, 0, 0, 0, 1},
      {OP_group_all_reduce, 0, 0, 0, 0}}},
    {"  - {match: \"*\", shard: positions}\n",
     1,
     {{OP_group_all_gather, 0, 2, 0, 0},
      {OP_group_reduce_scatter, 0, 0, 0, 2},
      {OP_group_all_reduce, 0, 0, 0, 0}}},
    /* The token in front wants whole positions, and so do the classifier's slice and what is behind it */
    {"  - {match: \"*\", shard: positions}\n  - {match: \"*\", shard: rows}\n",
     5,
     {{OP_group_all_gather, 3, 2, 2, 0},
      {OP_group_reduce_scatter, 0, 0, 0, 2},
      {OP_group_all_to_all, 1, 0, 1, 0}}}, /* lines of patches are not cut as patches are */
    /* Images by lines: each 3x3 kernel and each norm wants them whole, what stands between wants nothing */
    {"  - {match: \"*\", shard: rows}\n",
     6,
     {{OP_group_all_gather, 4, 0, 2, 0},
      {OP_group_reduce_scatter, 0, 0, 1, 0},
      {OP_group_all_to_all, 0, 0, 0, 0}}},
};
enum { N_STRATEGIES = sizeof strategies / sizeof *strategies };

START_TEST(known_strategies_convert_what_their_papers_say)
{
    const struct strategy *y = &strategies[_i];
    enum { LAYERS = 2 };
    struct node *node;
    struct sharding *s;
    const char *text = arena_printf(arena, "ratios: [[3, 2, 1]]\noperators:\n%s", y->rules);
    ck_assert(document_parse(arena, "text", text, strlen(text), &node, &err) == OK);
    ck_assert_msg(sharding_read(arena, node, 3, &s, &err) == OK, "%s", err.text);
    struct graph *forward = model_of(y->model, LAYERS);
    sharded_graphs_compare(forward, sharded_graphs_differentiated(model_of(y->model, LAYERS)), s,
                           1e-10, text);
    struct shard_interpreter m = sharded_graphs_interpreter(3);
    sharded_graphs_views(&m, forward, s, (struct stage){0, forward->n_layers - 1, false}, text);
    for (int c = 0; c < 4; c++) {
        enum op_kind kind = y->count[c].kind;
        int f = 0, b = 0;
        if (!op_is_group(kind)) continue;
        for (int32_t i = 0; i < m.g[0]->n_ops; i++)
            if (m.g[0]->ops[i].kind == kind) i < m.g[0]->n_forward ? f++ : b++;
        ck_assert_msg(f == y->count[c].f + LAYERS * y->count[c].f_block, "strategy %d: %d %s", _i,
                      f, op_kind_name(kind));
        ck_assert_msg(b == y->count[c].b + LAYERS * y->count[c].b_block,
                      "strategy %d: %d %s backwards", _i, b, op_kind_name(kind));
    }
}
END_TEST

Suite *shard_suite(void)
{
    Suite *suite = suite_create("shard");
    TCase *c = tcase_create("shard");
    tcase_add_checked_fixture(c, sharded_graphs_begin, sharded_graphs_end);
    tcase_set_timeout(c, 600);
    tcase_add_loop_test(c, whole_models_by_random_shardings_train_as_on_one_device, 0, N_MODELS);
    tcase_add_loop_test(c, a_stage_takes_and_gives_replicated_or_by_batch, 0, N_MODELS);
    tcase_add_loop_test(c, known_strategies_convert_what_their_papers_say, 0, N_STRATEGIES);
    suite_add_tcase(suite, c);
    return suite;
}
