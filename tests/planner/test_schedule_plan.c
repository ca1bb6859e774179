/* Plans with searched orders: reported times equal simulated times, memory suffices, equal replicas have equal orders. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/document/document.h"
#include "planner/baseline/baseline.h"
#include "planner/schedule/plan.h"
#include "profiles/team.h"
#include "tests/support/suites.h"

#include <stdio.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

struct made {
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct lower_options lower;
    struct cost *cost;
    struct space space;
    struct scorer *scorer;
};

/* n devices in a row: slowdowns as given, links of `MBps`, a GPT of n blocks, 8 microbatches. */
static void make(struct made *m, int32_t n, const int *slowdown, const int *MBps,
                 const char *memory)
{
    char text[4096];
    struct node *root;
    struct error err = {0};
    int at = snprintf(text, sizeof text, "version: 1\nname: c\ndevice_types:\n");
    for (int32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: t%d, device: host, slowdown: %d, memory: %s}\n", i, slowdown[i],
                       memory);
    at += snprintf(text + at, sizeof text - (size_t)at, "nodes:\n");
    for (int32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: n%d, host: localhost, devices: [{type: t%d}]}\n", i, i);
    at += snprintf(text + at, sizeof text - (size_t)at, "links:\n");
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++)
            at += snprintf(
                text + at, sizeof text - (size_t)at,
                "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: 10 us}\n", j,
                i, j, i, j + 1 == i ? MBps[j] : 1000);
    ck_assert_msg(document_parse(arena, "cluster", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, &m->cluster, &err) == OK, "%s", err.text);
    at = snprintf(
        text, sizeof text,
        "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, "
        "n_positions: 16, vocab_size: 64}\nsequence_length: 16\nglobal_batch: 8\nmicrobatch: 1\n",
        2 * n);
    ck_assert_msg(document_parse(arena, "job", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(arena, root, ".", &m->job, &err) == OK, "%s", err.text);
    ck_assert_msg(profile_prior(arena, &m->cluster, &m->profile, &err) == OK, "%s", err.text);
    m->lower = (struct lower_options){.check_memory = true};
    ck_assert_int_eq(team_fused(arena, &m->cluster, &m->lower, &err), OK);
    m->cost = cost_new(arena, &m->profile, &m->cluster);
    ck_assert_int_eq(
        space_make(arena, &m->job, &m->cluster, m->cost, 1, &m->lower, &m->space, &err), OK);
    m->scorer = scorer_new(&m->lower);
}

/* One replica over `stages` devices each, one after the other, layers in equal parts. */
static struct plan even(const struct made *m, int32_t replicas, int32_t stages)
{
    struct plan p;
    int32_t n[4] = {stages, stages, stages, stages};
    plan_skeleton(arena, &m->space, "even", replicas, n, &p);
    for (int32_t r = 0, device = 0; r < replicas; r++) {
        p.replicas[r].microbatches = 8 / replicas;
        for (int32_t i = 0; i < stages; i++) {
            struct plan_stage *x = &p.replicas[r].stages[i];
            x->device = device++;
            x->first_layer = i * m->space.n_layers / stages;
            x->last_layer = (i + 1) * m->space.n_layers / stages - 1;
        }
    }
    return p;
}

static int64_t score(const struct made *m, const struct plan *p)
{
    struct error err = {0};
    int64_t ns;
    ck_assert_msg(scorer_run(m->scorer, &m->space, p, &ns, &err) == OK, "%s", err.text);
    return ns;
}

/* The iteration with searched orders; *p becomes the plan. */
static int64_t ordered(const struct made *m, struct plan *p, int64_t before)
{
    struct error err = {0};
    int64_t left = 10, ns = before;
    ck_assert_msg(schedule_plan(arena, m->scorer, &m->space, p, &ns, &left, NULL, &err) ==
                      OK,
                  "%s", err.text);
    ck_assert_int_ge(left, 8);
    return ns;
}

START_TEST(a_plan_with_searched_orders_is_never_slower_and_takes_what_was_said)
{
    int32_t quicker = 0, count = suites_long() ? 60 : 12;
    double saved = 0;
    for (int32_t seed = 0; seed < count; seed++) {
        int slowdown[4], MBps[4];
        struct made m;
        int32_t n = 2 + seed % 3;
        for (int k = 0; k < 4; k++) {
            slowdown[k] = 1 + (int)rng_below((uint64_t)seed, 1, (uint64_t)k, 3);
            MBps[k] = 5 + (int)rng_below((uint64_t)seed, 2, (uint64_t)k, 100);
        }
        make(&m, n, slowdown, MBps, "1 GiB");
        struct plan p = even(&m, 1, n);
        int64_t before = score(&m, &p), after = ordered(&m, &p, before);
        ck_assert_int_le(after, before);
        ck_assert_int_eq(score(&m, &p), after);
        ck_assert((p.replicas[0].stages[0].order != NULL) == (after < before));
        quicker += after < before, saved += 1 - (double)after / (double)before;
        scorer_free(m.scorer);
    }
    if (suites_long()) fprintf(stderr, "searched orders: %.1f %% quicker\n", 100 * saved / count);
    ck_assert_int_ge(10 * quicker, 9 * count);
}
END_TEST

START_TEST(four_equal_stages_without_slow_links_lose_most_of_their_bubble)
{
    /* 1F1B takes (8 + 3) (F + I + W) of the longest stage and messages; without the return path of W at most (8 + 3) (F + I) +
     * 8 W would remain. A tenth at least is saved where W is about a third. */
    const int slowdown[4] = {2, 2, 2, 2}, MBps[4] = {100000, 100000, 100000, 100000};
    struct made m;
    make(&m, 4, slowdown, MBps, "1 GiB");
    struct plan p = even(&m, 1, 4);
    int64_t before = score(&m, &p), after = ordered(&m, &p, before);
    ck_assert_int_lt(100 * after, 95 * before);
    scorer_free(m.scorer);
}
END_TEST

START_TEST(less_memory_gives_orders_that_fit_or_leaves_the_plan_as_it_is)
{
    const int slowdown[4] = {2, 1, 3, 1}, MBps[4] = {20, 50, 20, 20};
    int32_t fitting = 0, ordered_plans = 0;
    for (int kib = 200; kib <= 1200; kib += 50) {
        struct made m;
        make(&m, 3, slowdown, MBps, arena_printf(arena, "%d KiB", kib));
        struct plan p = even(&m, 1, 3);
        int64_t before = score(&m, &p);
        if (before < INT64_MAX) {
            int64_t after = ordered(&m, &p, before);
            ck_assert_int_le(after, before);
            ck_assert_int_eq(score(&m, &p), after); /* INT64_MAX where it did not fit */
            fitting++, ordered_plans += after < before;
        }
        scorer_free(m.scorer);
    }
    ck_assert_int_ge(fitting, 5);
    ck_assert_int_ge(ordered_plans, 3);
}
END_TEST

/* A budgeted search promises no more than that it is rare. */
START_TEST(orders_that_less_memory_leads_to_are_found_with_more)
{
    int32_t steps = 0, slower = 0, count = suites_long() ? 40 : 12;
    for (int32_t seed = 0; seed < count; seed++) {
        int slowdown[4], MBps[4];
        int64_t best = INT64_MAX;
        for (int k = 0; k < 4; k++) {
            slowdown[k] = 1 + (int)rng_below((uint64_t)seed, 1, (uint64_t)k, 6);
            MBps[k] = 5 + (int)rng_below((uint64_t)seed, 2, (uint64_t)k, 100);
        }
        for (int kib = 200; kib <= 900; kib += suites_long() ? 10 : 25) {
            struct made m;
            make(&m, 2 + seed % 3, slowdown, MBps, arena_printf(arena, "%d KiB", kib));
            struct plan p = even(&m, 1, 2 + seed % 3);
            int64_t ns = score(&m, &p);
            if (ns < INT64_MAX) {
                ns = ordered(&m, &p, ns);
                steps++, slower += ns > best;
                if (ns < best) best = ns;
            }
            scorer_free(m.scorer);
        }
    }
    ck_assert_int_gt(steps, 80);
    ck_assert_msg(50 * slower <= steps, "%d of %d steps to more memory", (int)slower, (int)steps);
}
END_TEST

/* Recomputation was for a schedule by name. */
START_TEST(orders_do_without_recomputation_where_memory_is_ample)
{
    const int slowdown[4] = {2, 1, 3, 1}, MBps[4] = {20, 50, 20, 20};
    struct made m;
    make(&m, 3, slowdown, MBps, "1 GiB");
    struct plan p = even(&m, 1, 3), plain = even(&m, 1, 3);
    for (int i = 0; i < 3; i++) p.replicas[0].stages[i].recompute = RECOMPUTE_STAGE;
    int64_t after = ordered(&m, &p, score(&m, &p));
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(p.replicas[0].stages[i].recompute, RECOMPUTE_NONE);
    ck_assert_int_eq(after, ordered(&m, &plain, score(&m, &plain)));
    scorer_free(m.scorer);
}
END_TEST

START_TEST(equal_replicas_have_equal_orders)
{
    const int slowdown[4] = {1, 2, 1, 2}, MBps[4] = {50, 1000, 50, 50};
    struct made m;
    make(&m, 4, slowdown, MBps, "1 GiB");
    struct plan p = even(&m, 2, 2);
    int64_t before = score(&m, &p), after = ordered(&m, &p, before);
    ck_assert_int_lt(after, before);
    for (int i = 0; i < 2; i++)
        ck_assert_str_eq(p.replicas[0].stages[i].order, p.replicas[1].stages[i].order);
    scorer_free(m.scorer);
}
END_TEST

/* Explicit orders of the rule alone replace the schedule by name. */
START_TEST(a_named_schedule_becomes_orders_if_they_are_faster)
{
    const int slowdown[4] = {2, 2, 2, 2}, MBps[4] = {100, 100, 100, 100};
    struct made m;
    struct error err = {0};
    make(&m, 4, slowdown, MBps, "1 GiB");
    for (int k = 0; k < 2; k++) {
        struct plan p = even(&m, 1, 4);
        p.replicas[0].schedule = k ? "1f1b" : "gpipe", p.replicas[0].split = true;
        int64_t left = 10, before = score(&m, &p), after = before;
        ck_assert_int_eq(schedule_plan(arena, m.scorer, &m.space, &p, &after, &left, NULL, &err),
                         OK);
        ck_assert_int_lt(after, before);
        ck_assert_int_eq(score(&m, &p), after);
        ck_assert_ptr_null(p.replicas[0].schedule);
        ck_assert(!p.replicas[0].split);
        ck_assert_ptr_nonnull(p.replicas[0].stages[0].order);
    }
    scorer_free(m.scorer);
}
END_TEST

Suite *schedule_plan_suite(void)
{
    Suite *s = suite_create("schedule_plan");
    TCase *t = tcase_create("schedule_plan");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_plan_with_searched_orders_is_never_slower_and_takes_what_was_said);
    tcase_add_test(t, four_equal_stages_without_slow_links_lose_most_of_their_bubble);
    tcase_add_test(t, less_memory_gives_orders_that_fit_or_leaves_the_plan_as_it_is);
    tcase_add_test(t, orders_that_less_memory_leads_to_are_found_with_more);
    tcase_add_test(t, orders_do_without_recomputation_where_memory_is_ample);
    tcase_add_test(t, equal_replicas_have_equal_orders);
    tcase_add_test(t, a_named_schedule_becomes_orders_if_they_are_faster);
    suite_add_tcase(s, t);
    return s;
}
