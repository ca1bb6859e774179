/* Where models are cut: blocks found from operators, and the clustering against every grouping there is. */
#include "core/base/rng.h"
#include "core/graph/gradient.h"
#include "core/model/layers.h"

#include "tests/support/plans.h"
#include "tests/support/small_graph.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* --- clustering --- */

struct best {
    int64_t largest, sum;
    int32_t last[8];
};

/* Every way to part what is left, the best kept: least largest cut, then least sum, then later cuts. */
static void try_all(const struct layers_work *w, int32_t groups, int32_t q, int32_t from,
                    struct best now, struct best *best)
{
    double all = 0;
    for (int32_t i = 0; i < w->n; i++) all += w->flops[i];
    for (int32_t end = from + 1; end <= w->n; end++) {
        double flops = 0;
        bool product = false;
        for (int32_t i = from; i < end; i++) flops += w->flops[i], product |= w->product[i];
        if (!product || flops >= 1.5 * all / groups || (q + 1 == groups) != (end == w->n)) continue;
        struct best next = now;
        next.last[q] = end - 1;
        if (end == w->n) {
            bool better = next.largest < best->largest ||
                          (next.largest == best->largest && next.sum < best->sum);
            if (best->largest < 0 || better) *best = next;
            continue;
        }
        if (w->in_bytes[end] < 0) continue;
        next.sum += w->in_bytes[end];
        if (w->in_bytes[end] > next.largest) next.largest = w->in_bytes[end];
        try_all(w, groups, q + 1, end, next, best);
    }
}

START_TEST(groups_are_the_best_of_all_groupings)
{
    int32_t found = 0, none = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 20000 : 2000); seed++) {
        int64_t in_bytes[12];
        double flops[12];
        bool product[12];
        int32_t n = 1 + (int32_t)rng_below(seed, 1, 0, 12);
        int32_t groups = 1 + (int32_t)rng_below(seed, 1, 1, 5), last[8] = {0};
        for (int32_t i = 0; i < n; i++) {
            uint64_t at = 10 * (uint64_t)i + 2;
            in_bytes[i] = (int64_t)rng_below(seed, 1, at, 6) - (rng_below(seed, 1, at + 1, 9) == 0);
            product[i] = rng_below(seed, 1, at + 2, 2);
            flops[i] = product[i] ? 1 + (double)rng_below(seed, 1, at + 3, 9) : 0;
        }
        struct layers_work w = {n, in_bytes, flops, product};
        struct best best = {.largest = -1};
        try_all(&w, groups, 0, 0, (struct best){0}, &best);
        bool any = layers_cluster(arena, &w, groups, last);
        ck_assert_int_eq(any, best.largest >= 0);
        found += any, none += !any;
        int64_t largest = 0, sum = 0;
        for (int32_t q = 0; any && q + 1 < groups; q++) {
            int64_t cut = in_bytes[last[q] + 1];
            sum += cut, largest = cut > largest ? cut : largest;
            ck_assert_int_ge(cut, 0);
        }
        if (any) ck_assert_int_eq(largest, best.largest);
        if (any) ck_assert_int_eq(sum, best.sum);
        if (any) ck_assert_int_eq(last[groups - 1], n - 1);
        arena_reset(arena);
    }
    ck_assert(found > 500 && none > 200);
}
END_TEST

START_TEST(of_equal_cuts_the_later_one_is_taken)
{
    int64_t in_bytes[] = {0, 4, 4, 4, 9};
    double flops[] = {8, 0, 0, 8, 0};
    bool product[] = {true, false, false, true, false};
    struct layers_work w = {5, in_bytes, flops, product};
    int32_t last[2];
    ck_assert(layers_cluster(arena, &w, 2, last));
    ck_assert_int_eq(last[0], 2);
}
END_TEST

/* --- models --- */

static struct job gpt(int hidden, int blocks)
{
    const char *text = arena_printf(
        arena,
        "model: {model_type: gpt2, activation_function: gelu_new, n_embd: %d, n_layer: %d, "
        "n_head: 32, n_positions: 1024, vocab_size: 51200}\nversion: 1\nsequence_length: 1024\n"
        "global_batch: 1024\nprecision: fp16\n",
        hidden, blocks);
    struct node *root;
    struct job j;
    struct error err = {0};
    ck_assert_msg(document_parse(arena, "job", text, strlen(text), &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(arena, root, ".", &j, &err) == OK, "%s", err.text);
    return j;
}

static struct graph *cut(struct job *j, enum layers_by by, int32_t n, int64_t microbatch)
{
    struct graph *g;
    struct error err = {0};
    j->layers = (struct layers_choice){by, n};
    ck_assert_msg(lower_graph(arena, j, microbatch, &g, &err) == OK, "%s", err.text);
    return g;
}

/* harp.md: 760M 1 + 24·2 + 1, 2.6B 1 + 32·2 + 1, 6.7B with three a block 1 + 32·3 + 1. */
START_TEST(harps_models_have_as_many_layers_as_published)
{
    static const struct {
        int hidden, blocks, layers, parts;
    } models[] = {{1536, 24, 50, 2}, {2560, 32, 66, 2}, {4096, 32, 98, 3}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct job j = gpt(models[i].hidden, models[i].blocks);
        struct graph *g = cut(&j, LAYERS_NUMBER, models[i].layers, 1);
        ck_assert_int_eq(g->n_layers, models[i].layers);
        ck_assert_int_eq(cut(&j, LAYERS_COARSE, 0, 1)->n_layers, models[i].blocks + 2);
        for (int32_t b = 0; b < models[i].blocks; b++) {
            int32_t end = (b + 1) * models[i].parts;
            ck_assert_str_eq(g->layer_name[end], arena_printf(arena, "h.%d.mlp", (int)b));
            ck_assert_int_eq(g->cut[end].n, 1);
        }
    }
}
END_TEST

START_TEST(three_parts_of_a_block_are_attention_and_the_halves_of_the_mlp)
{
    struct job j = gpt(4096, 32);
    struct graph *g = cut(&j, LAYERS_NUMBER, 98, 2);
    ck_assert_str_eq(g->layer_name[0], "embedding");
    ck_assert_str_eq(g->layer_name[1], "h.0.attn");
    ck_assert_str_eq(g->layer_name[2], "h.0.mlp.gelu"); /* behind the activation function */
    ck_assert_str_eq(g->layer_name[3], "h.0.mlp");
    ck_assert_str_eq(g->layer_name[97], "loss");
    ck_assert_int_eq(g->cut[1].n, 1);
    ck_assert_int_eq(g->cut[2].n, 2); /* the residual stream and the wide activation */
    ck_assert_int_eq(graph_cut_bytes(g, &g->cut[1]), INT64_C(2) * 1024 * 4096 * 2);
    ck_assert_int_eq(graph_cut_bytes(g, &g->cut[2]), INT64_C(2) * 1024 * (4096 + 16384) * 2);
}
END_TEST

START_TEST(a_number_that_is_not_possible_is_refused_with_those_that_are)
{
    struct job j = gpt(1536, 24);
    struct graph *g;
    struct error err = {0};
    j.layers = (struct layers_choice){LAYERS_NUMBER, 97};
    ck_assert_int_eq(lower_graph(arena, &j, 1, &g, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "into 97: 24 equal blocks"));
    ck_assert_ptr_nonnull(strstr(err.text, "possible: 26, 50, 74, 98"));
    ck_assert_msg(strstr(err.text, "layers: the model") == err.text, "%s", err.text);
    struct node root = {.kind = NODE_MAP}, job = {.parent = &root, .key = "job"},
                at = {.parent = &job, .key = "layers", .file = "job.yaml", .line = 7, .column = 11};
    j.layers_at = &at;
    ck_assert_int_eq(lower_graph(arena, &j, 1, &g, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "job.yaml:7:11: job.layers: the model cannot") == err.text, "%s",
                  err.text);
}
END_TEST

static int32_t *layers_by_op(struct job *j, int64_t microbatch)
{
    struct graph *g = cut(j, LAYERS_FINE, 0, microbatch);
    int32_t *layer = ARENA_ARRAY(arena, int32_t, 4096);
    for (int32_t i = 0; i < g->n_forward; i++) layer[i] = g->ops[i].layer;
    layer[g->n_forward] = g->n_layers;
    return layer;
}

START_TEST(layers_mean_the_same_for_every_microbatch)
{
    struct job j = gpt(1536, 24);
    ck_assert_mem_eq(layers_by_op(&j, 1), layers_by_op(&j, 16), 4096 * sizeof(int32_t));
}
END_TEST

/* What crosses a cut is what is made before and read behind, forwards; the same backwards. */
START_TEST(cuts_list_all_that_crosses_and_nothing_else)
{
    for (uint64_t seed = 0; seed < 40; seed++) {
        struct plan p = plans_new(arena, seed % 2 ? "gpt2" : "llama", 2, 1);
        struct graph *g;
        struct error err = {0};
        int32_t last[100], n = 0;
        ck_assert_int_eq(lower_graph(arena, &p.job, 1, &g, &err), OK);
        for (int32_t i = 0; i + 1 < g->n_forward; i++)
            if (rng_below(seed, 2, (uint64_t)i, 3) == 0) last[n++] = i;
        last[n++] = g->n_forward - 1;
        graph_set_layers(g, last, n);
        ck_assert_int_eq(gradient_build(g, 1, &err), OK);
        struct cut *back = graph_gradient_cuts(arena, g);
        for (int32_t l = 0; l + 1 < n; l++)
            for (int32_t t = 0; t < g->n_tensors; t++) {
                const struct tensor *x = &g->tensors[t];
                bool behind = false, before = false, in = false, in_back = false;
                for (int32_t i = 0; i < g->n_ops; i++)
                    for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
                        if (g->ops[i].input[k] == t) {
                            behind |= i < g->n_forward && g->ops[i].layer > l;
                            before |= i >= g->n_forward && g->ops[i].layer <= l;
                        }
                for (int32_t k = 0; k < g->cut[l].n; k++) in |= g->cut[l].tensor[k] == t;
                for (int32_t k = 0; k < back[l].n; k++) in_back |= back[l].tensor[k] == t;
                int32_t made = x->producer >= 0 ? g->ops[x->producer].layer : -1;
                ck_assert_int_eq(in, x->role == TENSOR_ACTIVATION && made <= l && behind);
                ck_assert_int_eq(in_back, x->role == TENSOR_GRADIENT && made > l && before);
            }
        arena_reset(arena);
    }
}
END_TEST

/* --- models without blocks, and with blocks of two kinds --- */

static struct graph *g;

static int32_t given(enum tensor_role role, int64_t m, int64_t n)
{
    return small_graph_given(arena, g, role, m, n);
}
static int32_t op(enum op_kind kind, int32_t x, int32_t y)
{
    return small_graph_op(arena, g, kind, x, y);
}

/* x + gelu(x·W)·V, `wide` columns in between. */
static int32_t mlp(int32_t x, int64_t wide)
{
    int32_t y = op(OP_gelu, op(OP_matmul, x, given(TENSOR_PARAMETER, 8, wide)), -1);
    return op(OP_add, x, op(OP_matmul, y, given(TENSOR_PARAMETER, wide, 8)));
}

static void chain(const int64_t *wide, int32_t n)
{
    g = graph_new(arena, DTYPE_fp32, 1, 4);
    int32_t x = op(OP_embedding, given(TENSOR_INPUT, 1, 4), given(TENSOR_PARAMETER, 32, 8));
    for (int32_t i = 0; i < n; i++) x = mlp(x, wide[i]);
    op(OP_cross_entropy, op(OP_matmul, x, given(TENSOR_PARAMETER, 8, 32)),
       given(TENSOR_INPUT, 1, 4));
}

static const char *found(enum layers_by by, int32_t n)
{
    struct error err = {0};
    const char *text = "";
    struct layers_choice c = {by, n};
    if (layers_find(g, &c, &err) != OK) return arena_strdup(arena, err.text);
    for (int32_t i = 0, size = 1; i < g->n_forward; i++, size++)
        if (i + 1 == g->n_forward || g->ops[i + 1].layer != g->ops[i].layer)
            text = arena_printf(arena, "%s%d ", text, (int)size), size = 0;
    return text;
}

START_TEST(blocks_are_found_by_what_they_compute_not_by_names)
{
    chain((int64_t[]){16, 16, 16, 16, 16}, 5);
    ck_assert_str_eq(found(LAYERS_COARSE, 0), "1 4 4 4 4 4 2 ");
    ck_assert_str_eq(found(LAYERS_FINE, 0), "1 2 2 2 2 2 2 2 2 2 2 2 ");
    ck_assert_str_eq(found(LAYERS_NUMBER, 7), "1 4 4 4 4 4 2 ");
}
END_TEST

START_TEST(blocks_of_two_widths_are_two_repeats)
{
    chain((int64_t[]){16, 16, 16, 24, 24}, 5);
    ck_assert_str_eq(found(LAYERS_COARSE, 0), "1 4 4 4 4 4 2 ");
    chain((int64_t[]){16, 16, 20, 24, 24}, 5); /* the odd one is a layer of its own */
    ck_assert_str_eq(found(LAYERS_FINE, 0), "1 2 2 2 2 4 2 2 2 2 2 ");
}
END_TEST

START_TEST(where_nothing_repeats_the_whole_graph_is_clustered)
{
    chain((int64_t[]){16, 20, 24, 28}, 4);
    const char *coarse = found(LAYERS_COARSE, 0);
    graph_find_layers(g);
    ck_assert_int_eq(g->n_layers, 7);
    ck_assert_str_eq(coarse, "1 4 4 4 4 1 1 ");
    ck_assert_str_eq(found(LAYERS_NUMBER, 1), "19 ");
    ck_assert_str_eq(found(LAYERS_NUMBER, 2), "13 6 ");
    ck_assert_ptr_nonnull(strstr(found(LAYERS_NUMBER, 19), "it has 9 matrix products"));
}
END_TEST

Suite *layers_suite(void)
{
    Suite *s = suite_create("core/model/layers");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, groups_are_the_best_of_all_groupings);
    tcase_add_test(t, of_equal_cuts_the_later_one_is_taken);
    tcase_add_test(t, harps_models_have_as_many_layers_as_published);
    tcase_add_test(t, three_parts_of_a_block_are_attention_and_the_halves_of_the_mlp);
    tcase_add_test(t, a_number_that_is_not_possible_is_refused_with_those_that_are);
    tcase_add_test(t, layers_mean_the_same_for_every_microbatch);
    tcase_add_test(t, cuts_list_all_that_crosses_and_nothing_else);
    tcase_add_test(t, blocks_are_found_by_what_they_compute_not_by_names);
    tcase_add_test(t, blocks_of_two_widths_are_two_repeats);
    tcase_add_test(t, where_nothing_repeats_the_whole_graph_is_clustered);
    suite_add_tcase(s, t);
    return s;
}
