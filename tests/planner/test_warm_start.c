/* Warm starts: old plans on changed clusters; and searches by several threads. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/replan/balance_layers.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tools/team/edit.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

#include <stdlib.h>
#include <string.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* Four nodes of four GPUs of two types, a slow core between them. */
static const char *sixteen =
    "version: 1\n"
    "name: sixteen\n"
    "device_types: [{name: h, device: H100-SXM5}, {name: v, device: V100-SXM2-32}]\n"
    "nodes:\n"
    "  - {name: h, count: 2, devices: {type: h, count: 4}}\n"
    "  - {name: v, count: 2, devices: {type: v, count: 4}}\n"
    "switches: [{name: core}]\n"
    "links:\n"
    "  - {name: nh, count: 2, between: [h], bandwidth: 400 GB/s, latency: 1 us}\n"
    "  - {name: nv, count: 2, between: [v], bandwidth: 100 GB/s, latency: 1 us}\n"
    "  - {name: uh, count: 2, between: [h, core], bandwidth: 25 GB/s, latency: 5 us}\n"
    "  - {name: uv, count: 2, between: [v, core], bandwidth: 12.5 GB/s, latency: 5 us}\n";

static const char *task =
    "version: 1\n"
    "model: {model_type: gpt2, n_embd: 1024, n_layer: 12, n_head: 16, n_positions: 512, "
    "vocab_size: 8192}\n"
    "sequence_length: 512\nglobal_batch: %s\nmicrobatch: [4, 8]\nprecision: fp16\n";

struct made {
    struct cluster cluster;
    struct job job;
    struct profile profile;
};

static void make(struct made *m, const char *cluster, const char *batch)
{
    struct error err = {0};
    const char *at = strstr(task, "%s");
    const char *job = arena_printf(arena, "%.*s%s%s", (int)(at - task), task, batch, at + 2);
    ck_assert_msg(cluster_parse(arena, texts_parse(arena, cluster), &m->cluster, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(team_complete(&m->cluster, &err) == OK, "%s", err.text);
    ck_assert_msg(job_parse(arena, texts_parse(arena, job), ".", &m->job, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(profile_prior(arena, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
}

static struct search_result search(const struct made *m, const struct cluster *c,
                                   const struct search_options *o)
{
    struct search_result r;
    struct error err = {0};
    ck_assert_msg(search_plans(arena, &m->job, c, &m->profile, o, &r, &err) == OK, "%s", err.text);
    return r;
}

static struct cluster change(const struct cluster *c, enum team_change_kind kind, const char *text)
{
    struct cluster made;
    struct error err = {0};
    ck_assert_msg(team_edit(arena, c, &(struct team_change){kind, text, NULL}, &made, &err) == OK,
                  "%s", err.text);
    return made;
}

static bool uses(const struct plan *p, const char *device)
{
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t i = 0; i < p->replicas[r].n_stages; i++)
            for (int32_t k = 0; k < plan_stage_devices(&p->replicas[r].stages[i]); k++) {
                int32_t d = plan_stage_device(&p->replicas[r].stages[i], k);
                if (!strcmp(p->cluster.devices[d].name, device)) return true;
            }
    return false;
}

START_TEST(on_the_same_team_an_old_plan_stays_as_fast)
{
    struct made m;
    make(&m, sixteen, "64");
    struct search_result old = search(&m, &m.cluster, &(struct search_options){.top = 1});
    struct search_options o = {.top = 1, .from = &old.plans[0].plan};
    struct search_result r = search(&m, &m.cluster, &o);
    ck_assert_int_le(r.plans[0].iteration_ns, old.plans[0].iteration_ns);
    ck_assert_int_lt(r.evaluated, old.evaluated);
    ck_assert_int_gt(r.lower_bound_ns, 0);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
    for (int32_t i = 0; i < r.n_baselines; i++) ck_assert_ptr_nonnull(r.baselines[i].why);
}
END_TEST

/* Each GPU, or one of each node: the warm plan beside a search from nothing. */
START_TEST(without_a_gpu_the_old_plan_becomes_one_nearly_as_good_as_a_search_finds)
{
    struct made m;
    double sum = 0;
    int64_t warm_work = 0, cold_work = 0;
    int n = 0;
    make(&m, sixteen, "64");
    struct search_result old = search(&m, &m.cluster, &(struct search_options){.top = 1});
    for (int32_t d = 0; d < m.cluster.n_devices; d += suites_long() ? 1 : 9) {
        const char *name = m.cluster.devices[d].name;
        struct cluster less = change(&m.cluster, TEAM_WITHOUT, name);
        struct search_options o = {.top = 1, .from = &old.plans[0].plan};
        struct search_result warm = search(&m, &less, &o);
        struct search_result cold = search(&m, &less, &(struct search_options){.top = 1});
        double regret = (double)warm.plans[0].iteration_ns / (double)cold.plans[0].iteration_ns - 1;
        ck_assert(!uses(&warm.plans[0].plan, name));
        ck_assert_msg(regret < 0.15, "without %s: %.3f", name, regret);
        warm_work += warm.evaluated, cold_work += cold.evaluated;
        sum += regret, n++;
    }
    /* All in all: one that is not trusted costs a search besides. */
    ck_assert_int_lt(4 * warm_work, 3 * cold_work);
    ck_assert_msg(sum / n < 0.06, "mean regret %.3f", sum / n);
}
END_TEST

START_TEST(a_node_more_is_used_where_it_helps)
{
    struct made m;
    make(&m, sixteen, "64");
    struct cluster less = change(&m.cluster, TEAM_WITHOUT, "h1");
    struct search_result old = search(&m, &less, &(struct search_options){.top = 1});
    struct search_options o = {.top = 1, .from = &old.plans[0].plan};
    struct search_result r = search(&m, &m.cluster, &o);
    ck_assert_int_lt(r.plans[0].iteration_ns, old.plans[0].iteration_ns);
    ck_assert(uses(&r.plans[0].plan, "h1.0"));
}
END_TEST

START_TEST(another_batch_is_shared_out_anew)
{
    struct made m, bigger;
    make(&m, sixteen, "64");
    make(&bigger, sixteen, "96");
    struct search_result old = search(&m, &m.cluster, &(struct search_options){.top = 1});
    struct search_options o = {.top = 1, .from = &old.plans[0].plan};
    struct search_result r = search(&bigger, &bigger.cluster, &o);
    int64_t all = 0;
    for (int32_t i = 0; i < r.plans[0].plan.n_replicas; i++)
        all += r.plans[0].plan.replicas[i].microbatches;
    ck_assert_int_eq(all * r.plans[0].plan.microbatch, 96);
}
END_TEST

START_TEST(others_stand_in_where_all_devices_are_gone)
{
    struct made m;
    make(&m, sixteen, "64");
    struct cluster h = change(&m.cluster, TEAM_WITHOUT, "v0,v1,h1");
    struct cluster others = change(&m.cluster, TEAM_WITHOUT, "h0");
    struct search_options small = {.top = 1, .evaluations = 100};
    struct search_result old = search(&m, &h, &small);
    struct search_options o = {.top = 1, .from = &old.plans[0].plan};
    struct search_result r = search(&m, &others, &o);
    ck_assert(uses(&r.plans[0].plan, "h1.0"));
    ck_assert_int_le(r.plans[0].iteration_ns, old.plans[0].iteration_ns);
}
END_TEST

/* Up to 8 devices the search goes on to its end: a warm start may only be as good or better, and the class's best is the same. */
START_TEST(an_exact_search_finds_the_same_best_of_its_class_from_anywhere)
{
    struct made m;
    make(&m, sixteen, "16");
    struct cluster four = change(&m.cluster, TEAM_WITHOUT, "h1,v1,h0.1,h0.2,v0.3,v0.2");
    struct cluster three = change(&four, TEAM_WITHOUT, "h0.3");
    struct search_options o = {.top = 1, .evaluations = 400};
    struct search_result old = search(&m, &four, &o), cold = search(&m, &three, &o);
    o.from = &old.plans[0].plan;
    struct search_result warm = search(&m, &three, &o);
    ck_assert_int_le(warm.plans[0].iteration_ns, cold.plans[0].iteration_ns);
    ck_assert_int_eq(warm.class_ns, cold.class_ns);
}
END_TEST

/* Three unequal devices on a fast bus, where sharding operators is best. The old plan is all that one evaluation may find. */
START_TEST(a_plan_with_sharded_stages_stays_a_candidate)
{
    static const char *three =
        "version: 1\nname: three\n"
        "device_types: [{name: f, device: host, slowdown: 8, memory: 1 GiB}, "
        "{name: s, device: host, slowdown: 12, memory: 1 GiB}]\n"
        "nodes: [{name: n, host: localhost, devices: [{type: f}, {type: s}, {type: s}]}]\n"
        "links: [{name: bus, between: [n], bandwidth: 50 GB/s, latency: 1 us}]\n";
    static const char *small = "version: 1\n"
                               "model: {model_type: gpt2, n_embd: 64, n_layer: 2, n_head: 4, "
                               "n_positions: 64, vocab_size: 256}\n"
                               "sequence_length: 64\nglobal_batch: 4\nmicrobatch: [%s]\n";
    struct made m;
    struct error err = {0};
    make(&m, three, "64");
    ck_assert(job_parse(arena, texts_parse(arena, arena_printf(arena, small, "2, 4")), ".", &m.job,
                        &err) == OK);
    struct search_options hap = {.top = 1, .baseline = "hap"};
    struct search_result old = search(&m, &m.cluster, &hap);
    struct search_options o = {
        .top = 1, .from = &old.plans[0].plan, .evaluations = 1, .no_sharding = true};
    struct search_result r = search(&m, &m.cluster, &o);
    ck_assert_int_eq(r.plans[0].iteration_ns, old.plans[0].iteration_ns);
    ck_assert_ptr_nonnull(r.plans[0].plan.replicas[0].stages[0].sharding);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
    struct cluster less = change(&m.cluster, TEAM_WITHOUT, "n.2");
    r = search(&m, &less, &o); /* the rules go on with the devices that are left */
    ck_assert_ptr_nonnull(r.plans[0].plan.replicas[0].stages[0].sharding);
    ck_assert_int_eq(r.plans[0].plan.replicas[0].stages[0].n_shards, 2);
    ck_assert(!uses(&r.plans[0].plan, "n.2"));
    /* another size than the job's, another batch: nothing is left of it */
    int64_t size = old.plans[0].plan.microbatch;
    ck_assert(job_parse(arena,
                        texts_parse(arena, arena_printf(arena, small, size == 4 ? "2" : "4")), ".",
                        &m.job, &err) == OK);
    r = search(&m, &m.cluster, &o);
    ck_assert_ptr_null(r.plans[0].plan.replicas[0].stages[0].sharding);
}
END_TEST

START_TEST(any_number_of_threads_finds_the_same_plan)
{
    struct made m;
    struct search_result r[2];
    make(&m, sixteen, "64");
    for (int32_t t = 0; t < 2; t++)
        r[t] = search(&m, &m.cluster, &(struct search_options){.top = 3, .threads = 1 + 2 * t});
    for (int32_t t = 1; t < 2; t++) {
        ck_assert_int_eq(r[t].n_plans, r[0].n_plans);
        ck_assert_int_eq(r[t].evaluated, r[0].evaluated);
        ck_assert_int_eq(r[t].candidates, r[0].candidates);
        for (int32_t i = 0; i < r[0].n_plans; i++) {
            ck_assert_int_eq(r[t].plans[i].iteration_ns, r[0].plans[i].iteration_ns);
            ck_assert_uint_eq(plan_hash(arena, &r[t].plans[i].plan),
                              plan_hash(arena, &r[0].plans[i].plan));
        }
    }
}
END_TEST

/* GPUs of 50 MB hold no layer: every search reports the same. */
START_TEST(any_number_of_threads_says_the_same_of_what_does_not_fit)
{
    struct made m;
    struct error err[2] = {{0}, {0}};
    make(&m, sixteen, "64");
    for (int32_t t = 0; t < m.cluster.n_types; t++) m.cluster.types[t].memory_bytes = 50000000;
    for (int32_t t = 0; t < 2; t++) {
        struct search_result r;
        struct search_options o = {.top = 1, .threads = 1 + 2 * t};
        ck_assert_int_eq(search_plans(arena, &m.job, &m.cluster, &m.profile, &o, &r, &err[t]),
                         ERR_INFEASIBLE);
    }
    ck_assert_str_eq(err[0].text, err[1].text);
}
END_TEST

struct stopping {
    volatile sig_atomic_t stop;
    int64_t after;
};

static void stop_after(void *user, int64_t evaluated, int64_t best_ns)
{
    struct stopping *s = user;
    if (evaluated >= s->after && best_ns < INT64_MAX) s->stop = 1;
}

START_TEST(an_interrupted_search_hands_out_the_best_so_far)
{
    struct made m;
    make(&m, sixteen, "64");
    struct search_result all = search(&m, &m.cluster, &(struct search_options){.top = 1});
    for (int64_t after = 1; after < all.evaluated / 2; after = 3 * after + 1) {
        struct stopping s = {.stop = 0, .after = after};
        struct search_options o = {.top = 1, .threads = 2, .stop = &s.stop, .user = &s};
        o.progress = stop_after;
        struct search_result r = search(&m, &m.cluster, &o);
        ck_assert_str_eq(r.stopped, "interrupted");
        ck_assert(!r.exact);
        ck_assert_int_ge(r.n_plans, 1);
        ck_assert_int_ge(r.plans[0].iteration_ns, all.plans[0].iteration_ns);
        ck_assert_int_lt(r.evaluated, all.evaluated);
        ck_assert_int_gt(r.lower_bound_ns, 0);
    }
}
END_TEST

/* Every cut of a replica of three stages, against the one that is dealt out. */
START_TEST(levelled_layers_are_as_even_as_any)
{
    struct made m;
    struct space s;
    struct error err = {0};
    struct lower_options lower = {.check_memory = true};
    make(&m, sixteen, "64");
    ck_assert_int_eq(team_fused(arena, &m.cluster, &lower, &err), OK);
    struct cost *k = cost_new(arena, &m.profile, &m.cluster);
    ck_assert_int_eq(space_make(arena, &m.job, &m.cluster, k, 4, &lower, &s, &err), OK);
    struct warm_prices w = {&s, NULL};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct plan_stage stages[3] = {{0}, {0}, {0}};
        struct plan_replica r = {.microbatches = 16, .n_stages = 3, .stages = stages};
        int32_t first = (int32_t)(16 * rng_uniform(7, seed, 0));
        for (int32_t i = 0; i < 3; i++) stages[i].device = (first + 5 * i) % 16;
        int64_t least = INT64_MAX;
        for (int32_t a = 0; a + 2 < s.n_layers; a++)
            for (int32_t b = a + 1; b + 1 < s.n_layers; b++) {
                stages[0].first_layer = 0, stages[0].last_layer = a;
                stages[1].first_layer = a + 1, stages[1].last_layer = b;
                stages[2].first_layer = b + 1, stages[2].last_layer = s.n_layers - 1;
                int64_t ns = balance_layers_replica_ns(&w, &r, NULL);
                if (ns < least) least = ns;
            }
        ck_assert(balance_layers(&w, &r));
        int64_t ns = balance_layers_replica_ns(&w, &r, NULL);
        ck_assert_int_ge(ns, least);
        ck_assert_msg((double)ns <= 1.002 * (double)least, "%lld and %lld", (long long)ns,
                      (long long)least);
        ck_assert_int_eq(stages[0].first_layer, 0);
        ck_assert_int_eq(stages[1].first_layer, stages[0].last_layer + 1);
        ck_assert_int_eq(stages[2].first_layer, stages[1].last_layer + 1);
        ck_assert_int_eq(stages[2].last_layer, s.n_layers - 1);
    }
}
END_TEST

Suite *warm_start_suite(void)
{
    const TTest *const tests[] = {
        on_the_same_team_an_old_plan_stays_as_fast,
        without_a_gpu_the_old_plan_becomes_one_nearly_as_good_as_a_search_finds,
        a_node_more_is_used_where_it_helps,
        another_batch_is_shared_out_anew,
        others_stand_in_where_all_devices_are_gone,
        an_exact_search_finds_the_same_best_of_its_class_from_anywhere,
        a_plan_with_sharded_stages_stays_a_candidate,
        any_number_of_threads_finds_the_same_plan,
        any_number_of_threads_says_the_same_of_what_does_not_fit,
        an_interrupted_search_hands_out_the_best_so_far,
        levelled_layers_are_as_even_as_any};
    Suite *s = suite_create("warm_start");
    TCase *t = tcase_create("warm");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) tcase_add_test(t, tests[i]);
    suite_add_tcase(s, t);
    return s;
}
