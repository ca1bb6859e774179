/* Plans of the coarse search: against the exact search on small clusters, and pipelines of measured layers. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/coarse/internal.h"
#include "planner/search.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "profiles/team.h"
#include "tests/support/sailor_cases.h"
#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <stdio.h>
#include <stdlib.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Two halves of two types, 8 nodes of 4 each, and a core that is the narrow place. */
static const char *two_halves =
    "version: 1\n"
    "name: halves\n"
    "device_types: [{name: h, device: H100-SXM5}, {name: v, device: V100-SXM2-32}]\n"
    "nodes:\n"
    "  - {name: h, count: 8, devices: {type: h, count: 4}}\n"
    "  - {name: v, count: 8, devices: {type: v, count: 4}}\n"
    "switches: [{name: sh}, {name: sv}]\n"
    "links:\n"
    "  - {name: nh, count: 8, between: [h], bandwidth: 400 GB/s, latency: 1 us}\n"
    "  - {name: nv, count: 8, between: [v], bandwidth: 100 GB/s, latency: 1 us}\n"
    "  - {name: uh, count: 8, between: [h, sh], bandwidth: 50 GB/s, latency: 5 us}\n"
    "  - {name: uv, count: 8, between: [v, sv], bandwidth: 25 GB/s, latency: 5 us}\n"
    "  - {name: core, between: [sh, sv], bandwidth: 10 GB/s, latency: 50 us}\n";

static const char *small_job =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 1024, n_layer: 8, n_head: 16, n_positions: 512, "
    "vocab_size: 8192}\n"
    "sequence_length: 512\nglobal_batch: 256\nmicrobatch: 2\nprecision: fp16\n";

static int draw(uint64_t seed, uint64_t number, int low, int high)
{
    return low + (int)rng_below(seed, 91, number, (uint64_t)(high - low + 1));
}

/* A team of n emulated devices, unequal in speed, memory and links. */
static void random_case(uint64_t seed, int n, struct job *job, struct cluster *cluster)
{
    char text[4096];
    int at = snprintf(text, sizeof text, "version: 1\nname: c\ndevice_types:\n");
    uint64_t k = 0;
    for (int i = 0; i < n; i++, k += 2)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: t%d, device: host, slowdown: %d, memory: %d KiB}\n", i,
                       draw(seed, k, 1, 6), draw(seed, k + 1, 1, 4) * 1000);
    at += snprintf(text + at, sizeof text - (size_t)at, "nodes:\n");
    for (int i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: n%d, host: localhost, devices: [{type: t%d}]}\n", i, i);
    at += snprintf(text + at, sizeof text - (size_t)at, "links:\n");
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++, k += 2)
            at += snprintf(
                text + at, sizeof text - (size_t)at,
                "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: %d us}\n", j,
                i, j, i, draw(seed, k, 1, 200), draw(seed, k + 1, 1, 500));
    *cluster = texts_cluster(arena, text);
    snprintf(text, sizeof text,
             "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, "
             "n_positions: 16, vocab_size: 256}\n"
             "sequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n",
             draw(seed, k, 1, 3), draw(seed, k + 1, 2, 8));
    *job = texts_job(arena, text);
}

/* Iteration of the best plan that the coarse search finds; INT64_MAX where it finds none. */
static int64_t coarse_finds(const struct job *j, const struct cluster *c,
                           const struct search_options *o)
{
    struct error err = {0};
    struct profile profile;
    struct lower_options lower = {.check_memory = true};
    int64_t sizes[1] = {j->microbatch_sizes[0]};
    ck_assert_int_eq(profile_prior(arena, c, &profile, &err), OK);
    ck_assert_int_eq(team_fused(arena, c, &lower, &err), OK);
    struct search_context t = {.arena = arena,
                               .o = o,
                               .lower = &lower,
                               .scorer = scorer_new(&lower),
                               .spmd_stage = spmd_stage_new(),
                               .budget = 1, .evaluations_left = 20000};
    incumbents_init(&t.incumbents, arena, 32, o, c);
    int32_t n_tried;
    struct search_task task = {j, c, &profile, sizes, 1, NULL};
    struct coarse *q = coarse_new(&t, &task, false);
    ck_assert_msg(coarse_search(q, &n_tried, &err) == OK, "%s", err.text);
    coarse_free(q);
    spmd_stage_free(t.spmd_stage);
    scorer_free(t.scorer);
    return t.incumbents.n ? t.incumbents.plans[0].iteration_ns : INT64_MAX;
}

static double regret_sum;
static int regret_count;

/* Teams in which no device is like another are what classes are worst at; the exact search is the measure. */
START_TEST(on_small_teams_the_coarse_search_comes_near_the_exact_one)
{
    int cases = getenv("MUSHER_LONG") ? 40 : 12;
    regret_sum = 0, regret_count = 0;
    for (int i = 0; i < cases; i++) {
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct search_result exact;
        struct error err = {0};
        struct search_options o = {.top = 1};
        random_case((uint64_t)i + 1, 2 + i % 3, &job, &cluster);
        ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
        if (search_plans(arena, &job, &cluster, &profile, &o, &exact, &err) != OK) continue;
        int64_t ns = coarse_finds(&job, &cluster, &o);
        ck_assert_int_lt(ns, INT64_MAX);
        ck_assert_int_le(exact.lower_bound_ns, ns);
        regret_sum += (double)ns / (double)exact.plans[0].iteration_ns - 1;
        regret_count++;
    }
    ck_assert_int_gt(regret_count, cases / 2);
    if (getenv("MUSHER_LONG"))
        fprintf(stderr, "coarse: mean regret %.2f %% of %d\n", 100 * regret_sum / regret_count,
                regret_count);
    ck_assert_msg(regret_sum / regret_count < 0.25, "mean regret %.2f %%",
                  100 * regret_sum / regret_count);
}
END_TEST

START_TEST(a_fleet_of_64_is_planned_the_same_twice)
{
    struct cluster cluster = texts_cluster(arena, two_halves);
    struct job job = texts_job(arena, small_job);
    struct search_options o = {.top = 1};
    int64_t first = coarse_finds(&job, &cluster, &o);
    ck_assert_int_lt(first, INT64_MAX);
    ck_assert_int_eq(first, coarse_finds(&job, &cluster, &o));
}
END_TEST

/* Of a batch of the team alone. */
static int64_t estimate(const struct coarse *q, const struct coarse_template *x)
{
    return x->fill_ns + (q->spaces->microbatches / x->replicas - 1) * x->pace_ns +
           coarse_tail_ns(q, &x, 1, x->replicas);
}

/* 8 A100 and 8 V100, taken by ones, twos and fours; microbatches of two of OPT-350. */
START_TEST(stages_of_measured_layers_are_of_any_class_and_degree)
{
    static const struct sailor_case two = {"a8-v8", "opt", "OPT-350", 0};
    static const struct lower_options lower = {.check_memory = true};
    static const int64_t sizes[] = {2};
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct error err = {0};
    ck_assert_msg(sailor_case_read(arena, &two, &job, &cluster, &profile, &err) == OK, "%s",
                  err.text);
    struct search_options o = {.top = 1};
    struct search_context t = {.arena = arena,
                               .o = &o,
                               .lower = &lower,
                               .scorer = scorer_new(&lower),
                               .spmd_stage = spmd_stage_new(),
                               .budget = 1, .evaluations_left = 1000};
    struct search_task task = {&job, &cluster, &profile, sizes, 1, NULL};
    struct space space;
    struct coarse q = {.t = &t,
                       .task = &task,
                       .arena = arena,
                       .templates = arena_new(),
                       .spaces = &space,
                       .at_size = ARENA_ARRAY(arena, struct coarse_class *, 1)};
    q.offer = &q.offers[0];
    ck_assert_int_eq(coarse_classes(&q, &err), OK);
    ck_assert_msg(coarse_space(&q, 0, &err) == OK, "%s", err.text);
    ck_assert_int_eq(q.n_classes, 2);
    bool faster = false;
    for (int32_t replicas = 1; replicas <= 8; replicas++) {
        struct coarse_template alike[6 * COARSE_TEMPLATE_LISTS], any[6 * COARSE_TEMPLATE_LISTS];
        int32_t n = coarse_templates(&q, 3, replicas, 6, false, (struct coarse_need){0}, alike);
        int64_t before = n ? estimate(&q, &alike[0]) : INT64_MAX;
        n = coarse_templates(&q, 3, replicas, 6, true, (struct coarse_need){0}, any);
        ck_assert_int_gt(n, 0);
        ck_assert_int_le(estimate(&q, &any[0]), before);
        faster |= estimate(&q, &any[0]) < before;
        for (int32_t i = 0; i < n; i++) {
            int32_t used[2] = {0}, next = 0;
            for (int32_t k = 0; k < any[i].n_stages; k++) {
                const struct coarse_stage *x = &any[i].stages[k];
                used[x->of] += q.classes[x->of].degree[x->degree].n;
                ck_assert_int_eq(x->first, next);
                ck_assert_int_ge(x->last, x->first);
                next = x->last + 1;
            }
            ck_assert_int_eq(next, space.n_layers);
            ck_assert_int_le(used[0] * replicas, 8);
            ck_assert_int_le(used[1] * replicas, 8);
        }
    }
    ck_assert(faster);
    spmd_stage_free(t.spmd_stage);
    arena_free(q.templates);
    scorer_free(t.scorer);
}
END_TEST

Suite *coarse_plans_suite(void)
{
    Suite *s = suite_create("coarse_plans");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, a_fleet_of_64_is_planned_the_same_twice);
    tcase_add_test(t, on_small_teams_the_coarse_search_comes_near_the_exact_one);
    tcase_add_test(t, stages_of_measured_layers_are_of_any_class_and_degree);
    tcase_set_timeout(t, 600);
    suite_add_tcase(s, t);
    return s;
}
