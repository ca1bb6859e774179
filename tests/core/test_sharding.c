/* `sharding:` of a plan: ratios to units, text to rules and back, rules to choices and back. */
#include "core/sharding/shard.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/model/model.h"

#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>

static struct arena *arena;
static struct error err;

static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

static struct graph *gpt2(int64_t layers)
{
    struct model m = {.name = "small",
                      .family = "gpt2",
                      .layers = layers,
                      .hidden = 12,
                      .heads = 3,
                      .kv_heads = 3,
                      .head_dim = 4,
                      .intermediate = 10,
                      .vocabulary = 11,
                      .max_positions = 8,
                      .tied = true,
                      .norm_eps = 1e-5,
                      .init_std = 0.02};
    struct graph *g;
    ck_assert_msg(model_graph(arena, &m, DTYPE_fp32, 4, 8, &g, &err) == OK, "%s", err.text);
    graph_find_layers(g);
    return g;
}

static int32_t op_named(const struct graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_forward; i++)
        if (!strcmp(g->ops[i].name, name)) return i;
    ck_abort_msg("no operator %s", name);
}

/* --- units --- */

START_TEST(units_follow_ratios_by_largest_remainder)
{
    static const struct {
        int64_t n;
        double ratios[4];
        int64_t want[4];
    } rows[] = {
        {12, {4, 4, 2, 2}, {4, 4, 2, 2}},        {10, {1, 1, 1, 1}, {3, 3, 2, 2}},
        {7, {1, 2, 4, 0}, {1, 2, 4, 0}},         {7, {3, 3, 1, 0}, {3, 3, 1, 0}},
        {5, {0.1, 0.2, 0.3, 0.4}, {1, 1, 1, 2}}, /* dues 0.5 1 1.5 2: the earlier of the two halves */
        {1, {1, 1, 1, 1}, {1, 0, 0, 0}},         {1, {1, 2, 1, 1}, {0, 1, 0, 0}},
        {0, {1, 2, 1, 1}, {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t out[4];
        sharding_extents(rows[i].n, rows[i].ratios, 4, out);
        for (int k = 0; k < 4; k++) ck_assert_int_eq(out[k], rows[i].want[k]);
    }
}
END_TEST

/* Nobody is a whole unit from its due, all units are dealt out, no ratio no unit, and who got one more was further below
 * its due than who did not. */
START_TEST(random_ratios_deal_out_everything_and_nobody_is_a_unit_off)
{
    for (uint64_t c = 0; c < 2000; c++) {
        int32_t n = 1 + (int32_t)rng_below(1, c, 0, 9);
        int64_t units = (int64_t)rng_below(1, c, 1, c % 3 ? 40 : 1000000), out[9], sum = 0;
        double ratios[9], all = 0;
        for (int32_t k = 0; k < n; k++) {
            ratios[k] =
                rng_below(1, c, 10 + (uint64_t)k, 4) ? rng_uniform(1, c, 20 + (uint64_t)k) : 0;
            if (k == 0) ratios[k] += 0.1;
            all += ratios[k];
        }
        sharding_extents(units, ratios, n, out);
        double min_raised = 1, max_left = 0;
        for (int32_t k = 0; k < n; k++) {
            double due = (double)units * (ratios[k] / all), rest = due - floor(due);
            sum += out[k];
            ck_assert(fabs((double)out[k] - due) < 1 + 1e-9);
            if (ratios[k] == 0) ck_assert_int_eq(out[k], 0);
            if ((double)out[k] > due)
                min_raised = fmin(min_raised, rest);
            else
                max_left = fmax(max_left, due - (double)out[k]);
        }
        ck_assert_int_eq(sum, units);
        ck_assert(min_raised >= max_left - 1e-9 || min_raised == 1);
    }
}
END_TEST

START_TEST(a_mesh_is_dealt_out_by_its_margins)
{
    static const double ratios[] = {4, 2, 1, 1, 3, 1};
    struct sharding s = {
        .n_devices = 6, .n_axes = 2, .mesh = {2, 3}, .n_ratios = 1, .ratios = ratios};
    double rows[2], columns[3];
    int32_t group[3];
    sharding_axis_ratios(&s, 0, 0, rows);
    sharding_axis_ratios(&s, 0, 1, columns);
    ck_assert(rows[0] == 7 && rows[1] == 5);
    ck_assert(columns[0] == 5 && columns[1] == 5 && columns[2] == 2);
    ck_assert(sharding_place(&s, 4, 0) == 1 && sharding_place(&s, 4, 1) == 1);
    sharding_group(&s, 4, 0, group);
    ck_assert(group[0] == 1 && group[1] == 4);
    sharding_group(&s, 4, 1, group);
    ck_assert(group[0] == 3 && group[1] == 4 && group[2] == 5);
}
END_TEST

/* --- text --- */

static enum status read_text(const char *text, int32_t n_devices, struct sharding **out)
{
    struct node *node;
    if (document_parse(arena, "plan.yaml", text, strlen(text), &node, &err) != OK) return ERR_INPUT;
    return sharding_read(arena, node, n_devices, out, &err);
}

static void check_same_text(const struct sharding *s)
{
    struct sharding *again;
    const char *text = sharding_write(arena, s, 2);
    ck_assert_msg(read_text(text, s->n_devices, &again) == OK, "%s in\n%s", err.text, text);
    ck_assert_str_eq(sharding_write(arena, again, 2), text);
    ck_assert_int_eq(again->n_axes, s->n_axes);
    ck_assert_int_eq(again->n_operators, s->n_operators);
    ck_assert_int_eq(again->n_parameters, s->n_parameters);
    ck_assert_int_eq(again->n_algorithms, s->n_algorithms);
    for (int32_t i = 0; i < s->n_ratios * s->n_devices; i++)
        ck_assert_double_eq(again->ratios[i], s->ratios[i]);
    for (int32_t i = 0; i < s->n_operators; i++) {
        ck_assert_str_eq(again->operators[i].match, s->operators[i].match);
        for (int32_t x = 0; x < s->n_axes; x++) {
            ck_assert_int_eq(again->operators[i].choice.index[x], s->operators[i].choice.index[x]);
            ck_assert_int_eq(again->operators[i].choice.ratio[x], s->operators[i].choice.ratio[x]);
        }
    }
}

static const char one_axis[] =
    "ratios: [[4, 4, 2, 2.5], [1, 1, 0, 0.1]]\n"
    "operators:\n"
    "  - {match: \"h.*.attn.*\", shard: heads}\n"
    "  - {match: \"h.*.mlp.c_fc*\", shard: features, ratio: 1}\n"
    "  - {match: \"*\", shard: batch}\n"
    "parameters:\n"
    "  - {match: \"transformer.wte.weight\", reshard_after_forward: false}\n"
    "  - {match: \"lm_head.weight\", reshard_after_forward: true}\n"
    "  - {match: \"*.bias\", sharded: false}\n"
    "collectives:\n"
    "  - {match: \"h.*.ln_1*\", kind: all_gather, algorithm: pairs}\n"
    "  - {match: \"*\", algorithm: hierarchical}\n";
static const char two_axes[] = "mesh: [2, 2]\n"
                               "ratios: [[4, 4, 2, 2]]\n"
                               "operators:\n"
                               "  - {match: \"lm_head\", shard: none}\n"
                               "  - {match: \"*\", shard: [batch, heads], ratio: [0, 0]}\n";

START_TEST(what_is_written_reads_back)
{
    struct sharding *s;
    ck_assert_msg(read_text(one_axis, 4, &s) == OK, "%s", err.text);
    ck_assert_int_eq(s->n_axes, 1);
    ck_assert_int_eq(s->mesh[0], 4);
    ck_assert_int_eq(s->operators[0].choice.index[0], INDEX_heads);
    ck_assert_int_eq(s->operators[1].choice.ratio[0], 1);
    ck_assert_double_eq(s->ratios[7], 0.1);
    ck_assert(s->parameters[0].sharded && s->parameters[1].sharded && !s->parameters[2].sharded);
    ck_assert(sharding_reshards(s, "lm_head.weight"));
    ck_assert(!sharding_reshards(s, "transformer.wte.weight"));
    ck_assert(s->n_algorithms == 2 && s->algorithms[0].kind == COLLECTIVE_ALL_GATHER);
    ck_assert_int_eq(s->algorithms[1].kind, COLLECTIVE_CALL_KINDS);
    ck_assert_int_eq(sharding_algorithm_for(s, "h.3.ln_1.x", COLLECTIVE_ALL_GATHER, 4, true), 0);
    ck_assert_int_eq(sharding_algorithm_for(s, "h.3.ln_2.x", COLLECTIVE_ALL_GATHER, 4, true), 1);
    ck_assert_int_eq(sharding_algorithm_for(s, "h.3.ln_1.x", COLLECTIVE_ALL_TO_ALL, 4, true), -1);
    check_same_text(s);
    ck_assert_msg(read_text(two_axes, 4, &s) == OK, "%s", err.text);
    ck_assert(s->n_axes == 2 && s->mesh[0] == 2 && s->mesh[1] == 2);
    ck_assert_int_eq(s->operators[1].choice.index[1], INDEX_heads);
    check_same_text(s);
    check_same_text(sharding_of_index(arena, INDEX_batch, (const double[]){1, 1.0 / 3, 0}, 3));
}
END_TEST

START_TEST(errors_name_the_place_and_what_would_be_right)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"mesh: [3, 2]", "plan.yaml:1:7"},
        {"mesh: [3, 2]", "6 positions does not match the stage's 4 devices"},
        {"mesh: [1, 2, 2]", "one or two axes"},
        {"ratios: [[1, 2]]", "2 ratios for 4 devices"},
        {"ratios: [[1, -2, 1, 1]]", "1:14"},
        {"ratios: [[0, 0, 0, 0]]", "above 0"},
        {"ratios: []", "1 to 4096"},
        {"operators:\n  - {match: \"*\", shard: lines}", "batch"},
        {"operators:\n  - {match: \"*\"}", "shard"},
        {"operators:\n  - {shard: batch}", "match"},
        {"operators:\n  - {match: \"h\\a\", shard: batch}", "control characters"},
        {"operators:\n  - {match: \"h\\u00e9\", shard: batch}", "printable"},
        {"operators:\n  - {match: \"*\", shard: batch, ratio: 1}", "2:39"},
        {"mesh: [2, 2]\noperators:\n  - {match: \"*\", shard: batch}", "[batch, none]"},
        {"mesh: [2, 2]\noperators:\n  - {match: \"*\", shard: [batch]}",
         "1 value, the mesh has 2 axes"},
        {"parameters:\n  - {match: \"*\", reshard_after_forward: often}", "2:41"},
        {"parameters:\n  - {match: \"*\"}", "reshard_after_forward"},
        {"parameters:\n  - {match: \"*\", sharded: false, reshard_after_forward: true}",
         "a parameter that is not sharded"},
        {"device: 3", "mesh"},
        {"collectives:\n  - {match: \"*\", algorithm: tree}", "2:29"},
        {"collectives:\n  - {match: \"*\", kind: gather, algorithm: ring}", "all_gather"},
        {"collectives:\n  - {match: \"*\"}", "algorithm"},
        {"collectives:\n  - {match: \"*\", kind: all_reduce, algorithm: pairs}", "does not support algorithm pairs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sharding *s;
        ck_assert_msg(read_text(rows[i].text, 4, &s) == ERR_INPUT, "%s", rows[i].text);
        ck_assert_msg(strstr(err.text, rows[i].message), "'%s' in %s", rows[i].message, err.text);
    }
}
END_TEST

/* Some bytes changed: an answer or an error, never anything else. */
START_TEST(mangled_texts_are_read_or_refused)
{
    int n = suites_long() ? 20000 : 2000, refused = 0;
    struct graph *g = gpt2(1);
    for (int c = 0; c < n; c++) {
        const char *from = c % 2 ? one_axis : two_axes;
        char text[512];
        size_t length = strlen(from);
        memcpy(text, from, length + 1);
        for (uint64_t k = 0; k <= rng_below(3, (uint64_t)c, 0, 4); k++) {
            uint64_t at = rng_below(3, (uint64_t)c, 10 + k, length);
            text[at] = (char)(rng_below(3, (uint64_t)c, 20 + k, 2)
                                  ? 32 + rng_below(3, (uint64_t)c, 30 + k, 95)
                                  : (uint64_t)from[rng_below(3, (uint64_t)c, 40 + k, length)]);
        }
        struct arena *keep = arena;
        arena = arena_new();
        struct sharding *s;
        const struct op_choice *choices;
        const bool *gathered;
        err.text[0] = '\0';
        enum status status = read_text(text, 4, &s);
        if (status == OK) {
            check_same_text(s);
            status = sharding_resolve(arena, s, g, &choices, &gathered, &err);
        }
        ck_assert(status == OK || (status == ERR_INPUT && err.text[0]));
        refused += status != OK;
        arena_free(arena);
        arena = keep;
    }
    ck_assert_int_gt(refused, n / 4);
    ck_assert_int_lt(refused, n);
}
END_TEST

/* --- rules and choices --- */

static enum op_index chosen(const char *rules, const char *op, struct graph *g)
{
    struct sharding *s;
    const struct op_choice *choices;
    const bool *gathered;
    const char *text = arena_printf(arena, "operators:\n%s", rules);
    ck_assert_msg(read_text(text, 4, &s) == OK, "%s", err.text);
    ck_assert_msg(sharding_resolve(arena, s, g, &choices, &gathered, &err) == OK, "%s", err.text);
    return choices[op_named(g, op)].index[0];
}

START_TEST(the_first_rule_that_an_operator_can_follow_is_its_own)
{
    struct graph *g = gpt2(2);
    const char *rules = "  - {match: \"h.*.attn.*\", shard: heads}\n"
                        "  - {match: \"h.1.mlp.c_fc*\", shard: features}\n"
                        "  - {match: \"lm_head\", shard: vocabulary}\n"
                        "  - {match: \"h.*\", shard: batch}\n";
    ck_assert_int_eq(chosen(rules, "h.0.attn.c_attn", g), INDEX_heads);
    ck_assert_int_eq(chosen(rules, "h.0.attn.c_attn.bias", g), INDEX_heads);
    ck_assert_int_eq(chosen(rules, "h.1.attn.attention", g), INDEX_heads);
    ck_assert_int_eq(chosen(rules, "h.1.attn.c_proj", g), INDEX_heads);      /* its inputs */
    ck_assert_int_eq(chosen(rules, "h.1.attn.c_proj.bias", g), INDEX_batch); /* has no heads */
    ck_assert_int_eq(chosen(rules, "h.1.attn.residual", g), INDEX_batch);
    ck_assert_int_eq(chosen(rules, "h.1.mlp.c_fc.bias", g), INDEX_features);
    ck_assert_int_eq(chosen(rules, "h.0.mlp.c_fc.bias", g), INDEX_batch);
    ck_assert_int_eq(chosen(rules, "lm_head", g), INDEX_vocabulary);
    ck_assert_int_eq(chosen(rules, "wte", g), INDEX_none);
    /* what people call it, and what it is */
    ck_assert_int_eq(chosen("  - {match: \"*c_attn\", shard: features}\n", "h.0.attn.c_attn", g),
                     INDEX_heads);
    ck_assert_int_eq(chosen("  - {match: \"*\", shard: features}\n", "lm_head", g),
                     INDEX_vocabulary);
}
END_TEST

START_TEST(a_rule_that_is_for_nobody_is_an_error_with_the_choices)
{
    static const char *const rows[][2] = {
        {"{match: \"*.attention\", shard: features}", "can be sharded by features"},
        {"{match: \"*.residual\", shard: heads}",
         "its 2, 'h.0.attn.residual' … 'h.0.mlp.residual', can by none, batch, positions, "
         "features, "
         "partial"},
        {"{match: \"*\", shard: experts}",
         "'wte' … 'loss', can, one or another, by none, batch, positions, features, inputs, heads, "
         "vocabulary, partial"},
        {"{match: \"*.attention\", shard: vocabulary}", "none, batch, positions, heads"},
        {"{match: \"h.7.*\", shard: batch}", "matches no operator"},
        {"{match: \"h.7.*\", shard: batch}", "plan.yaml:2:5"},
    };
    struct graph *g = gpt2(1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sharding *s;
        const struct op_choice *choices;
        const bool *gathered;
        const char *text = arena_printf(arena, "operators:\n  - %s\n", rows[i][0]);
        ck_assert(read_text(text, 4, &s) == OK);
        ck_assert_int_eq(sharding_resolve(arena, s, g, &choices, &gathered, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, rows[i][1]), "%s", err.text);
    }
}
END_TEST

static void check_choices_survive(struct sharding *s, const struct graph *g,
                                  const struct op_choice *choices)
{
    const struct op_choice *back;
    const bool *gathered;
    sharding_set_choices(arena, s, g, choices, NULL);
    check_same_text(s);
    ck_assert_msg(sharding_resolve(arena, s, g, &back, &gathered, &err) == OK, "%s", err.text);
    for (int32_t i = 0; i < g->n_forward; i++)
        for (int32_t x = 0; x < s->n_axes; x++) {
            ck_assert_msg(back[i].index[x] == choices[i].index[x], "%s in\n%s", g->ops[i].name,
                          sharding_write(arena, s, 0));
            bool none = choices[i].index[x] == INDEX_none || choices[i].index[x] == INDEX_partial;
            ck_assert(none || back[i].ratio[x] == choices[i].ratio[x]);
        }
}

START_TEST(blocks_that_agree_are_written_as_one)
{
    struct graph *g = gpt2(12);
    struct sharding *s;
    const struct op_choice *choices;
    const bool *gathered;
    ck_assert(read_text("operators:\n"
                        "  - {match: \"h.*.attn.*\", shard: heads}\n"
                        "  - {match: \"h.*.mlp.c_fc*\", shard: features}\n"
                        "  - {match: \"*\", shard: batch}\n",
                        4, &s) == OK);
    ck_assert(sharding_resolve(arena, s, g, &choices, &gathered, &err) == OK);
    check_choices_survive(s, g, choices);
    ck_assert_int_le(s->n_operators, 8); /* of 12 · 12 operators */
}
END_TEST

START_TEST(random_choices_become_rules_that_give_them_back)
{
    struct graph *g = gpt2(3);
    const struct grain *grains = graph_grains(arena, g);
    for (uint64_t c = 0; c < 60; c++) {
        static const double ratios[] = {1, 2, 3, 4, 4, 3, 2, 1};
        struct sharding s = {.n_devices = 4,
                             .n_axes = c % 2 ? 2 : 1,
                             .mesh = {c % 2 ? 2 : 4, c % 2 ? 2 : 1},
                             .n_ratios = 2,
                             .ratios = ratios};
        struct op_choice *choices = ARENA_ARRAY(arena, struct op_choice, (size_t)g->n_forward);
        for (int32_t i = 0; i < g->n_forward; i++)
            for (int32_t x = 0; x < s.n_axes; x++) {
                uint64_t at = (uint64_t)(2 * i + x);
                uint32_t set = op_index_set(g, &g->ops[i], grains);
                enum op_index index = INDEX_batch;
                if (rng_below(5, c, at, 1 + c / 10) > 0) do
                        index = (enum op_index)rng_below(5, c + 1000, at += 1000, INDEX_COUNT);
                    while (!(set >> index & 1));
                choices[i].index[x] = index;
                choices[i].ratio[x] = index == INDEX_none || index == INDEX_partial
                                          ? 0
                                          : (int32_t)rng_below(6, c, at, 2);
            }
        check_choices_survive(&s, g, choices);
    }
}
END_TEST

Suite *sharding_suite(void)
{
    Suite *suite = suite_create("sharding");
    TCase *c = tcase_create("sharding");
    tcase_add_checked_fixture(c, begin, end);
    const TTest *tests[] = {units_follow_ratios_by_largest_remainder,
                            random_ratios_deal_out_everything_and_nobody_is_a_unit_off,
                            a_mesh_is_dealt_out_by_its_margins,
                            what_is_written_reads_back,
                            errors_name_the_place_and_what_would_be_right,
                            mangled_texts_are_read_or_refused,
                            the_first_rule_that_an_operator_can_follow_is_its_own,
                            a_rule_that_is_for_nobody_is_an_error_with_the_choices,
                            blocks_that_agree_are_written_as_one,
                            random_choices_become_rules_that_give_them_back};
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(c, tests[i]);
    suite_add_tcase(suite, c);
    return suite;
}
