/* Layer classes: ranges with equal keys have equal stage costs. */
#include "core/graph/gradient.h"
#include "core/lower/layer_classes.h"
#include "profiles/profile.h"
#include "sim/stage/stage.h"

#include "tests/support/plans.h"
#include "tests/support/small_graph.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct plan plan_of(const char *family, int blocks, enum layers_by by)
{
    struct plan p = plans_new(arena, family, blocks, 1);
    p.job.layers.by = by;
    return p;
}

static struct graph *training(const struct plan *p, bool fused)
{
    struct graph *g;
    struct error err = {0};
    ck_assert_msg(lower_graph(arena, &p->job, 2, &g, &err) == OK, "%s", err.text);
    if (fused) g = graph_fuse(g, plans_fused, 4);
    ck_assert_msg(gradient_build(g, 1, &err) == OK, "%s", err.text);
    return g;
}

START_TEST(blocks_are_told_from_what_stands_before_and_behind_them)
{
    struct plan p = plan_of("gpt2", 24, LAYERS_DEFAULT);
    struct layer_classes *c = layer_classes_new(arena, training(&p, false));
    ck_assert_str_eq(layer_classes_text(arena, c), "24 blocks of 2 layers, 6 unique of 52");
    p.job.layers = (struct layers_choice){LAYERS_NUMBER, 50};
    struct graph *g = training(&p, true);
    c = layer_classes_new(arena, g);
    ck_assert_str_eq(layer_classes_text(arena, c), "24 blocks of 2 layers, 4 unique of 50");
    ck_assert_int_eq(c->repeats[0].first, 1);
    ck_assert_int_eq(layer_classes_blocks(c, 0, 49), 24);
    ck_assert_int_eq(layer_classes_blocks(c, 1, 2), 1);
    ck_assert_int_eq(layer_classes_blocks(c, 2, 3), 2); /* a half of each */
    ck_assert_int_eq(layer_classes_blocks(c, 49, 49), 0);
    for (int32_t l = 1; l < 49; l++) ck_assert_int_eq(c->class_of[l], 2 - l % 2);
    p = plan_of("llama", 3, LAYERS_COARSE);
    c = layer_classes_new(arena, training(&p, true));
    ck_assert_str_eq(layer_classes_text(arena, c), "3 blocks of 1 layer, 3 unique of 5");
}
END_TEST

START_TEST(keys_are_the_same_in_deeper_models_and_others_for_other_sizes)
{
    struct plan p = plan_of("gpt2", 2, LAYERS_FINE), deep = plan_of("gpt2", 5, LAYERS_FINE);
    struct graph *g = training(&p, true), *h = training(&deep, true);
    struct layer_classes *c = layer_classes_new(arena, g), *d = layer_classes_new(arena, h);
    ck_assert_int_eq(c->n_classes, d->n_classes);
    /* all but the first and the last: their parameter is tied, and stands for itself */
    for (int32_t k = 1; k + 1 < c->n_classes; k++) ck_assert_uint_eq(c->key[k], d->key[k]);
    p.job.sequence_length = 16;
    struct layer_classes *e = layer_classes_new(arena, training(&p, true));
    for (int32_t k = 0; k < c->n_classes; k++)
        for (int32_t i = 0; i < e->n_classes; i++) ck_assert_uint_ne(c->key[k], e->key[i]);
}
END_TEST

static struct stage_table *table_of(const struct plan *p, const struct graph *g, bool fused)
{
    struct profile *f = ARENA_ARRAY(arena, struct profile, 1);
    struct error err = {0};
    ck_assert_msg(profile_prior(arena, &p->cluster, f, &err) == OK, "%s", err.text);
    struct stage_table *t =
        stage_table_new(arena, g, cost_new(arena, f, &p->cluster), &p->job.optimizer);
    if (fused) stage_table_fused(t, plans_fused, 4);
    return t;
}

/* Every range that is said to be the same has the same costs to the byte; how many there were. */
static int64_t compare_all(struct stage_table *t, const struct layer_classes *c)
{
    int64_t same = 0, distinct = 0;
    struct error err = {0};
    for (int32_t first = 0; first < c->n_layers; first++)
        for (int32_t last = first; last < c->n_layers; last++) {
            struct stage_cost x, y;
            int32_t like = layer_classes_same(c, first, last);
            ck_assert_int_le(like, first);
            distinct += like == first;
            if (like == first) continue;
            memset(&x, 0, sizeof x), memset(&y, 0, sizeof y);
            ck_assert_int_eq(stage_table_cost(t, first, last, 0, &x, &err), OK);
            ck_assert_int_eq(stage_table_cost(t, like, like + last - first, 0, &y, &err), OK);
            ck_assert_msg(!memcmp(&x, &y, sizeof x), "layers %d to %d are not like %d to %d",
                          (int)first, (int)last, (int)like, (int)(like + last - first));
            same++;
        }
    ck_assert_int_eq(distinct, c->distinct);
    return same;
}

START_TEST(ranges_that_are_the_same_cost_the_same_to_the_byte)
{
    static const enum layers_by all[] = {LAYERS_DEFAULT, LAYERS_COARSE, LAYERS_FINE};
    for (int i = 0; i < 24; i++) {
        struct plan p = plan_of(i % 2 ? "gpt2" : "llama", 3 + i % 3, all[i / 2 % 3]);
        if (i % 4 == 3) p.job.optimizer.kind = OPTIMIZER_SGD;
        struct graph *g = training(&p, i >= 12);
        int64_t same = compare_all(table_of(&p, g, i >= 12), layer_classes_new(arena, g));
        ck_assert_int_ge(same, 3);
        arena_reset(arena);
    }
}
END_TEST

/* Cuts at random operators of one block, the same in all: whatever crosses them. */
START_TEST(the_same_holds_for_cuts_at_any_operator)
{
    int64_t same = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 400 : 60); seed++) {
        struct plan p = plan_of(seed % 2 ? "gpt2" : "llama", 4, LAYERS_COARSE);
        struct plans_random r = {seed, 0};
        struct graph *g;
        struct error err = {0};
        int32_t last[200], n = 0, mask = plans_below(&r, 1 << 16);
        ck_assert_int_eq(lower_graph(arena, &p.job, 2, &g, &err), OK);
        for (int32_t i = 0, begin = 0; i + 1 < g->n_forward; i++) {
            if (i && g->ops[i].layer != g->ops[i - 1].layer) begin = i;
            if (g->ops[i].layer == 0 || g->ops[i].layer == 5 || !(mask >> (i - begin) % 16 & 1))
                continue;
            last[n++] = i;
        }
        last[n++] = g->n_forward - 1;
        graph_set_layers(g, last, n);
        if (seed % 3) g = graph_fuse(g, plans_fused, 4);
        ck_assert_msg(gradient_build(g, 1, &err) == OK, "%s", err.text);
        same += compare_all(table_of(&p, g, seed % 3 != 0), layer_classes_new(arena, g));
        arena_reset(arena);
    }
    ck_assert_int_gt(same, 3000);
}
END_TEST

/* --- graphs by hand --- */

static struct graph *g;

static int32_t given(enum tensor_role role, int64_t m, int64_t n)
{
    return small_graph_given(arena, g, role, m, n);
}
static int32_t op(enum op_kind kind, int32_t x, int32_t y)
{
    return small_graph_op(arena, g, kind, x, y);
}

static const char *told(void)
{
    struct error err = {0};
    graph_find_layers(g);
    ck_assert_msg(gradient_build(g, 1, &err) == OK, "%s", err.text);
    return layer_classes_text(arena, layer_classes_new(arena, g));
}

static int32_t start(void)
{
    g = graph_new(arena, DTYPE_fp32, 1, 4);
    return op(OP_embedding, given(TENSOR_INPUT, 1, 4), given(TENSOR_PARAMETER, 32, 8));
}

static void end(int32_t x)
{
    op(OP_cross_entropy, op(OP_matmul, x, given(TENSOR_PARAMETER, 8, 32)),
       given(TENSOR_INPUT, 1, 4));
}

START_TEST(where_nothing_repeats_it_says_so)
{
    int32_t x = start(), y;
    for (int wide = 8; wide < 32; wide += 8) {
        y = op(OP_gelu, op(OP_matmul, x, given(TENSOR_PARAMETER, 8, wide)), -1);
        x = op(OP_add, x, op(OP_matmul, y, given(TENSOR_PARAMETER, wide, 8)));
    }
    end(x);
    ck_assert_str_eq(told(), "nothing repeats, 6 unique of 6");
}
END_TEST

START_TEST(an_odd_block_parts_two_runs)
{
    int32_t x = start();
    for (int i = 0; i < 6; i++) {
        int32_t y =
            op(i == 2 ? OP_silu : OP_gelu, op(OP_matmul, x, given(TENSOR_PARAMETER, 8, 16)), -1);
        x = op(OP_add, x, op(OP_matmul, y, given(TENSOR_PARAMETER, 16, 8)));
    }
    end(x);
    ck_assert_str_eq(told(), "2 blocks of 1 layer, 3 blocks of 1 layer, 5 unique of 9");
}
END_TEST

/* A weight that several layers share is held once by a range with all of them, so these layers are not like others. */
START_TEST(layers_that_share_a_parameter_are_like_each_other_only)
{
    int32_t x = start(), shared = given(TENSOR_PARAMETER, 8, 8);
    for (int i = 0; i < 6; i++) {
        int32_t w = i < 2 ? shared : given(TENSOR_PARAMETER, 8, 8);
        x = op(OP_add, x, op(OP_gelu, op(OP_matmul, x, w), -1));
    }
    end(x);
    ck_assert_str_eq(told(), "2 blocks of 1 layer, 4 blocks of 1 layer, 5 unique of 9");
}
END_TEST

START_TEST(the_last_tensor_of_a_cut_is_the_late_one)
{
    struct plan p = plan_of("gpt2", 2, LAYERS_FINE);
    struct graph *t = training(&p, false);
    struct layer_crossing *x = layer_classes_crossings(arena, t);
    int32_t several = 0;
    for (int32_t l = 0; l + 1 < t->n_layers; l++) {
        ck_assert_int_eq(x[l].activation_bytes, graph_cut_bytes(t, &t->cut[l]));
        ck_assert_int_gt(x[l].gradient_bytes, 0);
        ck_assert_int_le(x[l].min_late_bytes, x[l].activation_bytes);
        ck_assert_int_le(x[l].min_late_bytes, x[l].gradient_bytes);
        several += t->cut[l].n > 1;
        if (t->cut[l].n == 1) ck_assert_int_eq(x[l].min_late_bytes, x[l].activation_bytes);
        /* what is made last is made by the layer's last operator */
        int32_t last = t->cut[l].tensor[t->cut[l].n - 1], made = t->tensors[last].producer;
        ck_assert_int_eq(t->ops[made].layer, l);
        ck_assert_int_eq(t->ops[made + 1].layer, l + 1);
    }
    ck_assert_int_ge(several, 4);
}
END_TEST

Suite *layer_classes_suite(void)
{
    Suite *s = suite_create("core/lower/layer_classes");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, blocks_are_told_from_what_stands_before_and_behind_them);
    tcase_add_test(t, keys_are_the_same_in_deeper_models_and_others_for_other_sizes);
    tcase_add_test(t, ranges_that_are_the_same_cost_the_same_to_the_byte);
    tcase_add_test(t, the_same_holds_for_cuts_at_any_operator);
    tcase_add_test(t, where_nothing_repeats_it_says_so);
    tcase_add_test(t, an_odd_block_parts_two_runs);
    tcase_add_test(t, layers_that_share_a_parameter_are_like_each_other_only);
    tcase_add_test(t, the_last_tensor_of_a_cut_is_the_late_one);
    suite_add_tcase(s, t);
    return s;
}
