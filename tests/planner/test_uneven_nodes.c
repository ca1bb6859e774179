/* Nodes whose number of GPUs is no power of two: stages of unequal numbers of their GPUs in one pipeline. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/group.h"
#include "planner/search.h"
#include "tests/support/coarse_rack.h"
#include "tests/support/random_teams.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Nodes of n GPUs of a type behind a switch, with a link to the core. */
static const char *nodes_text = "  - {name: n%d, count: %d, devices: {type: t%d, count: %d}}\n";
static const char *links_text =
    "  - {name: nv%d, count: %d, between: [n%d.*, s%d], bandwidth: %g GB/s, latency: 1 us}\n"
    "  - {name: up%d, count: %d, between: [n%d, core], bandwidth: %g GB/s, latency: 5 us}\n";

struct nodes {
    const char *device; /* as in the catalogue, with its own memory if it has any */
    int count, gpus;
    double inside_GBps, outside_GBps;
};

static const char *cluster_text(const struct nodes *x, int n)
{
    const char *types = "", *nodes = "", *switches = "", *links = "";
    for (int i = 0; i < n; i++) {
        int gpus = x[i].count * x[i].gpus;
        types = arena_printf(arena, "%s  - {name: t%d, device: %s}\n", types, i, x[i].device);
        nodes = arena_printf(arena, "%s%s", nodes, arena_printf(arena, nodes_text, i, x[i].count, i, x[i].gpus));
        switches = arena_printf(arena, "%s  - {name: s%d, count: %d}\n", switches, i, x[i].count);
        links = arena_printf(arena, "%s%s", links,
                             arena_printf(arena, links_text, i, gpus, i, i, x[i].inside_GBps, i, x[i].count, i,
                                          x[i].outside_GBps));
    }
    return arena_printf(arena, "version: 1\nname: c\ndevice_types:\n%snodes:\n%sswitches:\n  - {name: core}\n%slinks:\n%s",
                        types, nodes, switches, links);
}

/* ns of the best plan of a search with little work; INT64_MAX: none. */
static int64_t best_ns(const char *job, const char *cluster)
{
    struct search_options o = {.top = 1, .evaluations = 300};
    struct search_result r;
    struct error err = {0};
    struct job j = texts_job(arena, job);
    struct cluster c = texts_cluster(arena, cluster);
    struct profile p;
    ck_assert_msg(profile_prior(arena, &c, &p, &err) == OK, "%s", err.text);
    enum status st = search_plans(arena, &j, &c, &p, &o, &r, &err);
    ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s", err.text);
    return st == OK ? r.plans[0].iteration_ns : INT64_MAX;
}

/* Questions with plans by hand, and the seconds of these: groups of 4 and 3 of 7 GPUs, or of 3 and 2 of 5, in one pipeline or in two. */
static const struct {
    const char *model, *precision;
    int length, batch, n;
    struct nodes nodes[2];
    double hand_s;
} by_hand[] = {
    {"llama-3.1-70b", "bf16", 4096, 64, 2, {{"H100-SXM5", 2, 7, 450, 50}, {"A100-SXM4-80", 1, 7, 300, 25}}, 20.3},
    {"mixtral-8x7b", "bf16", 4096, 64, 2, {{"H100-SXM5", 1, 7, 450, 50}, {"A100-SXM4-80", 1, 8, 300, 25}}, 7.65},
    {"llama-3.1-8b", "fp16", 4096, 30, 1, {{"V100-SXM2-16", 3, 5, 150, 12.5}}, 8.88},
    {"llama-3.1-8b", "bf16", 131072, 4, 2, {{"H100-SXM5", 1, 7, 450, 50}, {"A100-SXM4-80", 1, 8, 300, 25}}, 27.1},
};
enum { BY_HAND = sizeof by_hand / sizeof *by_hand };

START_TEST(no_plan_by_hand_is_faster)
{
    const char *job = arena_printf(arena,
                                   "version: 1\nmodel: tests/data/models/%s.json\nsequence_length: %d\nglobal_batch: %d\n"
                                   "precision: %s\noptimizer: {kind: adamw, lr: 1e-4}\n",
                                   by_hand[_i].model, by_hand[_i].length, by_hand[_i].batch, by_hand[_i].precision);
    double s = (double)best_ns(job, cluster_text(by_hand[_i].nodes, by_hand[_i].n)) / 1e9;
    ck_assert_msg(s <= by_hand[_i].hand_s, "%s: %.3g s, by hand %.3g s", by_hand[_i].model, s, by_hand[_i].hand_s);
}
END_TEST

/* GPT of random size, whose state takes from a tenth of the GPUs' memory to more than all of it. */
static const char *random_job(struct draw *d)
{
    int heads = 32 << random_teams_below(d, 2);
    return arena_printf(arena,
                        "version: 1\nmodel: {model_type: gpt2, n_embd: %d, n_layer: %d, n_head: %d, n_positions: 1024, "
                        "vocab_size: 8192}\nsequence_length: 1024\nglobal_batch: %d\nprecision: fp16\n",
                        128 * heads, 4 + 4 * (int)random_teams_below(d, 4), heads, 24 << random_teams_below(d, 2));
}

/* A plan on nodes of fewer GPUs is one on the same nodes with idle GPUs. */
START_TEST(more_gpus_of_a_node_give_no_slower_plan)
{
    struct draw d = {(uint64_t)_i, 4301};
    const char *job = random_job(&d), *device[2];
    static const char *kinds[] = {"V100-SXM2-16", "A100-SXM4-40", "RTX-4090"};
    for (int i = 0; i < 2; i++)
        device[i] = arena_printf(arena, "%s, memory: %d GiB", kinds[random_teams_below(&d, 3)], 12 + (int)random_teams_below(&d, 21));
    int n = 1 + (int)random_teams_below(&d, 2), count = 1 + (int)random_teams_below(&d, 2),
        most = 5 + (int)random_teams_below(&d, 3);
    int64_t before = INT64_MAX;
    for (int gpus = most - 3; gpus <= most; gpus++) {
        struct nodes x[2] = {{device[0], count, gpus, 100, 10}, {device[1], 1, 4, 100, 10}};
        int64_t ns = best_ns(job, cluster_text(x, n));
        ck_assert_msg(before == INT64_MAX || ns <= before / 1000 * 1005, "seed %d: %d GPUs a node %.4g s, %d %.4g s", _i, gpus, (double)ns / 1e9,
                      gpus - 1, (double)before / 1e9);
        before = units_min(before, ns);
    }
}
END_TEST

/* Mixtral's layers on the GPUs of a node of seven, with the prices of one sequence a microbatch. */
static void priced(struct coarse_rack *m)
{
    static const struct nodes seven = {"H100-SXM5", 1, 7, 450, 50};
    struct error err = {0};
    coarse_rack_make(arena, m, texts_cluster(arena, cluster_text(&seven, 1)),
                     "version: 1\nmodel: tests/data/models/mixtral-8x7b.json\nsequence_length: 4096\nglobal_batch: 64\n"
                     "precision: bf16\noptimizer: {kind: adamw, lr: 1e-4}\n");
    ck_assert_msg(coarse_classes(&m->coarse, &err) == OK, "%s", err.text);
    ck_assert_msg(coarse_space(&m->coarse, 0, &err) == OK, "%s", err.text);
}

static const struct coarse_degree *degree(const struct coarse_rack *m, int32_t n, enum group_rules kind)
{
    const struct coarse_class *k = &m->coarse.classes[0];
    for (int32_t d = 0; d < k->n_degrees; d++)
        if (k->degree[d].n == n && k->degree[d].kind == kind) return &k->degree[d];
    return NULL;
}

/* One of three GPUs has three of eight experts, a part that ZeRO does not divide within the group. */
START_TEST(a_gpu_with_more_experts_has_more_optimizer_state)
{
    struct coarse_rack m;
    priced(&m);
    const struct space *s = &m.coarse.spaces[0];
    const struct coarse_degree *three = degree(&m, 3, GROUP_RULES_UNBATCHED), *four = degree(&m, 4, GROUP_RULES_UNBATCHED);
    ck_assert(three && four && three->sharding && four->sharding);
    double whole = (double)space_stage_type(s, m.coarse.classes[0].type, 10, 19)->state_bytes;
    ck_assert_double_eq_tol(4 * (double)group_zero_bytes(s, four->type, 10, 19, 1) / whole, 1, 0.001);
    double share = (double)group_zero_bytes(s, three->type, 10, 19, 1) / whole;
    ck_assert_msg(share > 0.36 && share < 0.376, "%g", share);
    ck_assert_double_eq_tol(share, 2 * (double)group_zero_bytes(s, three->type, 10, 19, 2) / whole, 0.001);
    coarse_rack_end(&m);
}
END_TEST

/* Unequal shards have algorithms of their own for some collectives. None is stated for a single layer, which other stages lack. */
START_TEST(rules_of_any_stage_suit_every_stage)
{
    struct coarse_rack m;
    int32_t stated = 0;
    priced(&m);
    const struct space *s = &m.coarse.spaces[0];
    for (int32_t d = 1; d < m.coarse.classes[0].n_degrees; d++) {
        const struct coarse_degree *x = &m.coarse.classes[0].degree[d];
        int32_t two = 2, n = s->n_layers;
        struct plan p;
        const struct program *program;
        struct error err = {0};
        if (!x->sharding || 2 * x->n > 7) continue;
        plan_skeleton(arena, s, "two stages", 1, &two, &p);
        p.cluster = m.cluster;
        p.replicas[0].microbatches = s->microbatches;
        for (int32_t i = 0; i < 2; i++) {
            struct plan_stage *y = &p.replicas[0].stages[i];
            y->first_layer = i * n / 2, y->last_layer = i ? n - 1 : n / 2 - 1;
            y->devices = m.coarse.classes[0].device + i * x->n, y->device = y->devices[0];
            y->n_shards = x->n, y->sharding = x->sharding;
        }
        ck_assert_msg(scorer_program(m.context.scorer, s, &p, &program, &err) == OK && program, "%d GPUs, rules %d: %s", (int)x->n,
                      (int)x->kind, scorer_why(m.context.scorer));
        stated += x->sharding->n_algorithms > 0;
    }
    ck_assert_int_ge(stated, 1);
    coarse_rack_end(&m);
}
END_TEST

/* 4 + 3 of 7 in the order of the nodes, the larger part of each first. */
START_TEST(parts_of_divided_nodes_alternate)
{
    static const struct nodes seven = {"A100-SXM4-40", 3, 7, 450, 50};
    struct coarse_rack m;
    struct error err = {0};
    struct coarse_template t[COARSE_ALIKE * COARSE_TEMPLATE_LISTS];
    int32_t alternating = 0;
    coarse_rack_make(arena, &m, texts_cluster(arena, cluster_text(&seven, 1)), coarse_rack_job);
    ck_assert_msg(coarse_classes(&m.coarse, &err) == OK, "%s", err.text);
    struct coarse *x = coarse_divided(&m.coarse, COARSE_BY_POWER);
    ck_assert(x && !coarse_divided(&m.coarse, COARSE_BY_HALF));
    ck_assert_int_eq(x->n_classes, 2);
    ck_assert(x->classes[0].n == 12 && x->classes[0].per_node == 4 && x->classes[1].n == 9 && x->classes[1].per_node == 3);
    ck_assert_msg(coarse_space(&m.coarse, 0, &err) == OK, "%s", err.text);
    coarse_divided_take(x, &m.coarse);
    int32_t n = coarse_templates(x, 3, 1, COARSE_ALIKE, false, (struct coarse_need){0}, t);
    for (int32_t i = 0; i < n; i++)
        if (t[i].n_stages == 6) {
            for (int32_t k = 0; k < 6; k++) ck_assert_int_eq(t[i].stages[k].of, k % 2);
            alternating++;
        }
    ck_assert_int_ge(alternating, 1);
    coarse_rack_end(&m);
}
END_TEST

/* Four of seven GPUs of each of three nodes: three groups, not five. */
START_TEST(groups_of_a_class_are_each_on_one_node)
{
    struct coarse_class k = {.n = 21, .per_node = 7};
    ck_assert_int_eq(coarse_class_groups(&k, 4), 3);
    ck_assert_int_eq(coarse_class_groups(&k, 3), 6);
    k.n = 18;
    ck_assert_int_eq(coarse_class_groups(&k, 4), 3);
    ck_assert_int_eq(coarse_class_groups(&k, 3), 5);
}
END_TEST

Suite *uneven_nodes_suite(void)
{
    Suite *s = suite_create("uneven_nodes");
    TCase *t = tcase_create("uneven_nodes");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_loop_test(t, no_plan_by_hand_is_faster, 0, BY_HAND);
    tcase_add_loop_test(t, more_gpus_of_a_node_give_no_slower_plan, 1, suites_long() ? 31 : 4);
    tcase_add_test(t, a_gpu_with_more_experts_has_more_optimizer_state);
    tcase_add_test(t, rules_of_any_stage_suit_every_stage);
    tcase_add_test(t, parts_of_divided_nodes_alternate);
    tcase_add_test(t, groups_of_a_class_are_each_on_one_node);
    suite_add_tcase(s, t);
    return s;
}
