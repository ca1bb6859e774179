/* Estimates and templates of the coarse search on slow network links, which activations and gradients share. */
#include "core/base/arena.h"
#include "planner/schedule/refine.h"

#include "tests/support/coarse_rack.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static const struct coarse_need any = {0};

/* A message of 33.5 MB takes 27 ms between nodes, a block of a stage 62 ms. */
static const char *ethernet =
    "version: 1\nname: ethernet\ndevice_types: [{name: g, device: RTX-4090}]\n"
    "nodes: [{name: n, count: 6, devices: {type: g, count: 4}}]\nswitches: [{name: core}]\nlinks:\n"
    "  - {name: in, count: 6, between: [n], bandwidth: 25 GB/s, latency: 2 us}\n"
    "  - {name: up, count: 6, between: [n, core], bandwidth: %s, latency: 30 us}\n";

static const char *llama =
    "version: 1\n"
    "model: {model_type: llama, vocab_size: 32000, tie_word_embeddings: false, hidden_size: 4096, intermediate_size: 14336, "
    "num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, max_position_embeddings: 8192}\n"
    "sequence_length: 4096\nglobal_batch: 96\nprecision: bf16\noptimizer: {kind: adamw, lr: 1e-4}\n";

/* Estimates of the templates of two replicas with one GPU a stage, and their simulated times. */
static int32_t compare(const char *rate, double *least, double *most)
{
    struct error err = {0};
    struct coarse_rack m;
    struct coarse *q = &m.coarse;
    struct coarse_offer one = {.n = 1};
    coarse_rack_make(arena, &m, texts_cluster(arena, arena_printf(arena, ethernet, rate)), llama);
    q->offer = &one;
    ck_assert_int_eq(coarse_classes(q, &err), OK);
    ck_assert_msg(coarse_space(q, 0, &err) == OK, "%s", err.text);
    struct space s = q->spaces[0];
    s.cluster = &m.cluster;
    struct coarse_template x[2 * COARSE_TEMPLATE_LISTS];
    int32_t n = coarse_templates(q, 1, 2, 2, false, any, x), simulated = 0;
    *least = 1e9, *most = 0;
    for (int32_t i = 0; i < n; i++) {
        struct coarse_candidate c = {.n_teams = 1, .team = {&x[i]}, .share = {s.microbatches}};
        struct plan p;
        int64_t ns, estimate = x[i].fill_ns + (s.microbatches / 2 - 1) * x[i].pace_ns +
                               coarse_tail_ns(q, &x[i], 2, NULL, 0);
        ck_assert(coarse_place(q, &c, arena, &p));
        for (int32_t r = 0; r < p.n_replicas; r++) (void)refine_schedule(&p.replicas[r], x[i].schedule);
        ck_assert_msg(coarse_trial(q, &s, &p, &ns, &err) == OK, "%s", err.text);
        double ratio = (double)ns / (double)estimate;
        if (ratio < *least) *least = ratio;
        if (ratio > *most) *most = ratio;
        simulated += ns < INT64_MAX;
    }
    coarse_rack_end(&m);
    return simulated;
}

/* Where replicas lie stage by stage, a node's activations and gradients meet on its link; with the messages as if alone these plans took up to
 * 1.29 times the estimate. Between that and the slowest stage lies the estimate, and orders make up for the rest. */
START_TEST(messages_that_meet_on_a_link_are_part_of_the_pace)
{
    double least, most;
    ck_assert_int_ge(compare("1.25 GB/s", &least, &most), 2);
    ck_assert_msg(least > 0.9 && most < 1.1, "%.3f to %.3f of the estimate", least, most);
    ck_assert_int_ge(compare("50 GB/s", &least, &most), 2);
    ck_assert_msg(least > 0.93 && most < 1.07, "%.3f to %.3f of the estimate", least, most);
}
END_TEST

/* Eight A100 of a node, and ten T4 with a node each. */
static const char *a100_and_t4 =
    "version: 1\nname: mixed\ndevice_types: [{name: a, device: A100-SXM4-80}, {name: t, device: T4}]\n"
    "nodes: [{name: a, devices: {type: a, count: 8}}, {name: t, count: 10, devices: {type: t}}]\n"
    "switches: [{name: core}]\nlinks:\n"
    "  - {name: in, between: [a], bandwidth: 300 GB/s, latency: 1 us}\n"
    "  - {name: ua, between: [a, core], bandwidth: 12.5 GB/s, latency: 5 us}\n"
    "  - {name: ut, count: 10, between: [t, core], bandwidth: 1.25 GB/s, latency: 5 us}\n";

static const char *gpt2 =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 1600, n_head: 25, n_layer: 48, n_positions: 1024, vocab_size: 50257}\n"
    "sequence_length: 1024\nglobal_batch: 256\nprecision: fp16\noptimizer: {kind: adamw, lr: 3e-4}\n";

/* The T4 in front would sum the embedding's gradients over their links, and behind would compute the output matrix alone. */
START_TEST(one_type_of_gpu_may_be_at_both_ends)
{
    struct error err = {0};
    struct coarse_rack m;
    struct coarse *q = &m.coarse;
    struct coarse_offer one = {.n = 1};
    struct coarse_template x[2 * COARSE_TEMPLATE_LISTS];
    const struct coarse_template *best = NULL;
    int64_t least = INT64_MAX;
    coarse_rack_make(arena, &m, texts_cluster(arena, a100_and_t4), gpt2);
    q->offer = &one;
    ck_assert_int_eq(coarse_classes(q, &err), OK);
    ck_assert_msg(coarse_space(q, 0, &err) == OK, "%s", err.text);
    int32_t n = coarse_templates(q, 3, 2, 2, false, any, x);
    for (int32_t i = 0; i < n; i++) {
        int64_t ns = x[i].fill_ns + 127 * x[i].pace_ns + coarse_tail_ns(q, &x[i], 2, NULL, 0);
        if (ns < least) least = ns, best = &x[i];
    }
    ck_assert(best != NULL);
    ck_assert_int_eq(best->n_stages, 9);
    ck_assert_int_eq(q->classes[best->stages[0].of].n, 8);
    ck_assert_int_eq(q->classes[best->stages[8].of].n, 8);
    coarse_rack_end(&m);
}
END_TEST

Suite *coarse_links_suite(void)
{
    Suite *suite = suite_create("coarse_links");
    TCase *c = tcase_create("coarse_links");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, messages_that_meet_on_a_link_are_part_of_the_pace);
    tcase_add_test(c, one_type_of_gpu_may_be_at_both_ends);
    suite_add_tcase(suite, c);
    return suite;
}
