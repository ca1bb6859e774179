/* The graph of operators asked without its order: separators are where default layers end, and no cut that is used can be
 * smaller than the least one of any order.
 */
#include "core/base/rng.h"
#include "planner/topology/op_graph.h"

#include "tests/support/plans.h"
#include "tests/support/small_graph.h"

static struct arena *arena;
static struct error err;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct graph *forward(const char *family, int blocks, enum layers_by by, int32_t n)
{
    struct plan p = plans_new(arena, family, blocks, 1);
    struct graph *g;
    p.job.layers = (struct layers_choice){by, n};
    ck_assert_msg(lower_graph(arena, &p.job, 1, &g, &err) == OK, "%s", err.text);
    return g;
}

/* Whether a path leads from the inputs to the last operator past operator `left_out`. */
static bool path_without(const struct graph *g, int32_t left_out)
{
    bool *reached = ARENA_ARRAY(arena, bool, (size_t)g->n_forward);
    for (int32_t i = 0; i < g->n_forward; i++) {
        bool starts = true;
        for (int32_t k = 0; k < g->ops[i].n_inputs; k++) {
            int32_t p = g->tensors[g->ops[i].input[k]].producer;
            if (p < 0) continue;
            starts = false;
            reached[i] |= reached[p];
        }
        reached[i] = (reached[i] || starts) && i != left_out;
    }
    return reached[g->n_forward - 1];
}

START_TEST(default_layers_end_with_what_every_path_to_the_loss_passes)
{
    for (int i = 0; i < 6; i++) {
        struct graph *g = forward(i % 2 ? "gpt2" : "llama", 1 + i, LAYERS_DEFAULT, 0);
        int32_t separators = 0, ends = 0;
        for (int32_t k = 0; k < g->n_forward; k++) {
            if (path_without(g, k)) continue;
            separators++;
            ends += k + 1 == g->n_forward || g->ops[k + 1].layer != g->ops[k].layer;
        }
        ck_assert_int_eq(ends, g->n_layers);
        ck_assert_int_eq(separators, g->n_layers);
    }
}
END_TEST

/* The least bytes over all sets of operators that are closed under what they read. */
static int64_t all_sets(const struct graph *g, const enum op_side *side)
{
    int64_t best = -1;
    for (uint32_t set = 0; set < 1u << g->n_forward; set++) {
        bool good = true;
        int64_t bytes = 0;
        for (int32_t i = 0; good && i < g->n_forward; i++) {
            bool in = set >> i & 1;
            good = !(in && side[i] == OP_SIDE_BEHIND) && !(!in && side[i] == OP_SIDE_BEFORE);
            for (int32_t k = 0; good && in && k < g->ops[i].n_inputs; k++) {
                int32_t p = g->tensors[g->ops[i].input[k]].producer;
                good = p < 0 || (set >> p & 1);
            }
        }
        for (int32_t t = 0; good && t < g->n_tensors; t++) {
            int32_t p = g->tensors[t].producer;
            bool crosses = false;
            for (int32_t i = 0; p >= 0 && (set >> p & 1) && i < g->n_forward; i++)
                for (int32_t k = 0; k < g->ops[i].n_inputs; k++)
                    crosses |= g->ops[i].input[k] == t && !(set >> i & 1);
            if (crosses) bytes += graph_tensor_bytes(g, t);
        }
        if (good && (best < 0 || bytes < best)) best = bytes;
    }
    return best;
}

/* A random graph of sums and products over (4, 8), some of them widened. */
static struct graph *random_graph(uint64_t seed, int32_t n)
{
    struct graph *g = graph_new(arena, DTYPE_fp32, 1, 4);
    int32_t made[16];
    int32_t in[2] = {small_graph_given(arena, g, TENSOR_INPUT, 1, 4),
                     small_graph_given(arena, g, TENSOR_PARAMETER, 9, 8)};
    for (int32_t i = 0; i < n; i++) {
        enum op_kind kind = OP_add;
        for (int k = 0; i && k < 2; k++)
            in[k] = made[rng_below(seed, 3, (uint64_t)(2 * i + k), (uint64_t)i)];
        if (i == 0) kind = OP_embedding;
        if (i && rng_below(seed, 4, (uint64_t)i, 2)) kind = OP_gelu;
        made[i] = small_graph_op(arena, g, kind, in[0], kind == OP_gelu ? -1 : in[1]);
    }
    return g;
}

START_TEST(the_least_cut_is_the_least_of_all_orders)
{
    int32_t refused = 0, cut = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 600 : 80); seed++) {
        int32_t n = 4 + (int32_t)rng_below(seed, 1, 0, 7);
        struct graph *g = random_graph(seed, n);
        enum op_side side[16];
        for (int32_t t = 2; t < g->n_tensors; t++) /* sizes of their own, for bytes alone */
            g->tensors[t].shape.dim[2] = 1 + (int64_t)rng_below(seed, 5, (uint64_t)t, 20);
        for (int32_t i = 0; i < n; i++)
            side[i] = rng_below(seed, 6, (uint64_t)i, 4) ? OP_SIDE_FREE
                      : i < n / 2                        ? OP_SIDE_BEFORE
                                                         : OP_SIDE_BEHIND;
        side[0] = OP_SIDE_BEFORE, side[n - 1] = OP_SIDE_BEHIND;
        if (seed % 5 == 0) side[n - 1] = OP_SIDE_BEFORE, side[0] = OP_SIDE_BEHIND;
        int64_t bytes, wanted = all_sets(g, side);
        ck_assert_msg(op_graph_least_cut(arena, g, 0, n - 1, side, &bytes, &err) == OK, "%s",
                      err.text);
        ck_assert_msg(bytes == wanted, "seed %lu: %ld, not %ld", (unsigned long)seed, (long)bytes,
                      (long)wanted);
        refused += wanted<0, cut += wanted> 0;
        arena_reset(arena);
    }
    ck_assert_msg(refused > 3 && cut > 30, "%d refused, %d cut", (int)refused, (int)cut);
}
END_TEST

START_TEST(the_clustering_cuts_no_more_than_the_least_in_published_models)
{
    static const struct {
        const char *family;
        enum layers_by by;
        int32_t n;
    } cases[] = {{"gpt2", LAYERS_DEFAULT, 0},
                 {"gpt2", LAYERS_NUMBER, 8},
                 {"gpt2", LAYERS_NUMBER, 11},
                 {"llama", LAYERS_NUMBER, 8},
                 {"llama", LAYERS_COARSE, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph *g = forward(cases[i].family, 3, cases[i].by, cases[i].n);
        for (int32_t l = 0; l + 1 < g->n_layers; l++) {
            int64_t least, used = graph_cut_bytes(g, &g->cut[l]);
            ck_assert_msg(op_graph_least_after(arena, g, l, &least, &err) == OK, "%s", err.text);
            ck_assert_int_le(least, used);
            ck_assert_msg(least == used, "%s: %ld cross behind %s, %ld would do", cases[i].family,
                          (long)used, g->layer_name[l], (long)least);
        }
    }
}
END_TEST

Suite *op_graph_suite(void)
{
    Suite *s = suite_create("planner/topology/op_graph");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, default_layers_end_with_what_every_path_to_the_loss_passes);
    tcase_add_test(t, the_least_cut_is_the_least_of_all_orders);
    tcase_add_test(t, the_clustering_cuts_no_more_than_the_least_in_published_models);
    suite_add_tcase(s, t);
    return s;
}
