/* Clusters with a device that only slows the plan, and warm starts after the loss of a device. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "planner/baseline/baseline.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tools/team/edit.h"

#include "tests/support/suites.h"
#include "tests/support/texts.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct made {
    struct cluster cluster;
    struct job job;
    struct profile profile;
};

static void make(struct made *m, const char *cluster, int layers, int batch)
{
    struct error err = {0};
    const char *job = arena_printf(
        arena,
        "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 4, n_positions: "
        "16, vocab_size: 64}\nsequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n"
        "optimizer: {kind: sgd, lr: 0.1}\n",
        layers, batch);
    ck_assert_msg(cluster_parse(arena, texts_parse(arena, cluster), &m->cluster, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(arena, texts_parse(arena, job), ".", &m->job, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(profile_prior(arena, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
}

static struct search_result search(const struct made *m, const struct cluster *c,
                                   const struct plan *from)
{
    struct search_options o = {.top = 1, .from = from};
    struct search_result r;
    struct error err = {0};
    ck_assert_msg(search_plans(arena, &m->job, c, &m->profile, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

static struct cluster without(const struct cluster *c, int32_t device)
{
    struct cluster made;
    struct error err = {0};
    struct team_change change = {TEAM_WITHOUT, c->devices[device].name, NULL};
    ck_assert_msg(team_edit(arena, c, &change, &made, &err) == OK, "%s", err.text);
    return made;
}

/* A device behind a slow wire, and two or three of about equal speed on a bus. */
static const char *random_team(uint64_t seed)
{
    const char *text = "version: 1\nname: c\ndevice_types:\n";
    int n = 2 + (int)rng_below(seed, 1, 0, 2);
    for (int i = 0; i <= n; i++)
        text =
            arena_printf(arena, "%s  - {name: t%d, device: host, slowdown: %.2f, memory: 1 GiB}\n",
                         text, i, 5 + 0.01 * (double)rng_below(seed, 2, (uint64_t)i, 120));
    text = arena_printf(arena,
                        "%snodes:\n  - {name: n0, host: localhost, devices: [{type: t0}]}\n"
                        "  - {name: n1, host: localhost, devices: [",
                        text);
    for (int i = 1; i <= n; i++)
        text = arena_printf(arena, "%s%s{type: t%d}", text, i > 1 ? ", " : "", i);
    return arena_printf(arena,
                        "%s]}\nlinks:\n  - {name: b, between: [n1], bandwidth: 2 GB/s, latency: 20 "
                        "us}\n  - {name: l, between: [n0, n1], bandwidth: 1 MB/s, latency: 1 ms}\n",
                        text);
}

START_TEST(a_device_less_never_makes_a_small_team_faster)
{
    int32_t divided = 0;
    for (uint64_t seed = 0; seed < (suites_long() ? 30 : 7); seed++) {
        struct made m;
        make(&m, random_team(seed), 1 + (int)(seed % 2), 2 + (int)rng_below(seed, 3, 0, 5));
        struct search_result all = search(&m, &m.cluster, NULL);
        ck_assert(all.exact);
        for (int32_t d = 0; d < m.cluster.n_devices; d++) {
            struct cluster less = without(&m.cluster, d);
            struct search_result r = search(&m, &less, NULL);
            ck_assert_msg(all.plans[0].iteration_ns <= r.plans[0].iteration_ns,
                          "team %d: %ld ns, without %s %ld ns", (int)seed,
                          (long)all.plans[0].iteration_ns, m.cluster.devices[d].name,
                          (long)r.plans[0].iteration_ns);
        }
        divided += all.plans[0].plan.replicas[0].stages[0].zero > 0 &&
                   all.plans[0].plan.n_replicas < m.cluster.n_devices;
    }
    ck_assert_int_gt(divided, 0); /* what only presets know, of a part of the team */
}
END_TEST

START_TEST(an_old_plan_never_passes_for_the_optimum_of_the_class)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 30 : 4); seed++) {
        struct made m;
        make(&m, random_team(seed), 1 + (int)(seed % 2), 2 + (int)rng_below(seed, 3, 0, 5));
        struct search_result old = search(&m, &m.cluster, NULL);
        for (int32_t d = -1; d < m.cluster.n_devices; d++) {
            struct cluster less = d < 0 ? m.cluster : without(&m.cluster, d);
            struct search_result cold = search(&m, &less, NULL),
                                 warm = search(&m, &less, &old.plans[0].plan);
            ck_assert(cold.exact && warm.exact);
            ck_assert_int_eq(warm.class_ns, cold.class_ns);
            ck_assert_int_le(warm.plans[0].iteration_ns, cold.plans[0].iteration_ns);
        }
    }
}
END_TEST

/* One stage each: what a plan of so many microbatches is charged for being lowered. */
static int64_t lowering_work(int batch)
{
    struct made m;
    struct space s;
    struct plan p;
    struct error err = {0};
    const struct program *program;
    const int32_t one = 1;
    struct lower_options lower = {.check_memory = true};
    make(&m, random_team(1), 1, batch);
    ck_assert_int_eq(team_fused(arena, &m.cluster, &lower, &err), OK);
    struct cost *cost = cost_new(arena, &m.profile, &m.cluster);
    ck_assert_int_eq(space_make(arena, &m.job, &m.cluster, cost, 1, &lower, &s, &err), OK);
    plan_skeleton(arena, &s, "x", 1, &one, &p);
    p.replicas[0].microbatches = batch;
    p.replicas[0].stages[0].last_layer = s.n_layers - 1;
    struct scorer *w = scorer_new(&lower);
    ck_assert_int_eq(scorer_program(w, &s, &p, &program, &err), OK);
    int64_t work = scorer_work(w);
    scorer_free(w);
    return work;
}

START_TEST(every_microbatch_more_is_work_for_lowering)
{
    int64_t few = lowering_work(2), many = lowering_work(202);
    ck_assert_int_gt(few, 0);
    ck_assert_int_eq(many - few, 200 * 2 * 100); /* a forward and a backward each, 100 ns a call */
}
END_TEST

Suite *subteam_suite(void)
{
    Suite *s = suite_create("subteam");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_device_less_never_makes_a_small_team_faster);
    tcase_add_test(t, an_old_plan_never_passes_for_the_optimum_of_the_class);
    tcase_add_test(t, every_microbatch_more_is_work_for_lowering);
    suite_add_tcase(s, t);
    return s;
}
