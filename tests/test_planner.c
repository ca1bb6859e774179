/* The search against brute force: same plan class, no pruning, same simulator. */
#include "core/arena.h"
#include "core/document.h"
#include "core/lower.h"
#include "core/rng.h"
#include "planner/baseline.h"
#include "planner/bound.h"
#include "planner/partition.h"
#include "planner/score.h"
#include "planner/search.h"
#include "profiles/team.h"

#include "tests/suites.h"

#include <stdio.h>
#include <stdlib.h>

static struct arena *arena;

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static uint64_t draws;
static int64_t draw(uint64_t seed, int64_t low, int64_t high)
{
    return low + (int64_t)rng_below(seed, 77, draws++, (uint64_t)(high - low + 1));
}

/* A team of n emulated devices on nodes of their own, random speeds and links, and a small job. */
static void make_case(uint64_t seed, int32_t n, struct job *job, struct cluster *cluster)
{
    char text[4096];
    int at = 0;
    struct error err = {0};
    struct node *root = NULL;
    draws = 0;
    at += snprintf(text + at, sizeof text - (size_t)at, "version: 1\nname: c\ndevice_types:\n");
    for (int32_t i = 0; i < n; i++)
        at += snprintf(text + at, sizeof text - (size_t)at,
                       "  - {name: t%d, device: host, slowdown: %d, memory: 1 GiB}\n", (int)i,
                       (int)draw(seed, 1, 6));
    at += snprintf(text + at, sizeof text - (size_t)at, "nodes:\n");
    for (int32_t i = 0; i < n; i++)
        at +=
            snprintf(text + at, sizeof text - (size_t)at,
                     "  - {name: n%d, host: localhost, devices: [{type: t%d}]}\n", (int)i, (int)i);
    at += snprintf(text + at, sizeof text - (size_t)at, "links:\n");
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = 0; j < i; j++)
            at += snprintf(
                text + at, sizeof text - (size_t)at,
                "  - {name: l%d%d, between: [n%d, n%d], bandwidth: %d MB/s, latency: %d us}\n",
                (int)j, (int)i, (int)j, (int)i, (int)draw(seed, 1, 200), (int)draw(seed, 1, 500));
    ck_assert_msg(document_parse(arena, "cluster", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(cluster_parse(arena, root, cluster, &err) == OK, "%s", err.text);
    at = snprintf(text, sizeof text,
                  "version: 1\nmodel: {model_type: gpt2, n_embd: 32, n_layer: %d, n_head: 2, "
                  "n_positions: 16, vocab_size: 256}\n"
                  "sequence_length: 16\nglobal_batch: %d\nmicrobatch: 1\n",
                  (int)draw(seed, 1, 2), (int)draw(seed, 2, 5));
    ck_assert_msg(document_parse(arena, "job", text, (size_t)at, &root, &err) == OK, "%s",
                  err.text);
    ck_assert_msg(job_parse(arena, root, ".", job, &err) == OK, "%s", err.text);
}

/* Everything about brute force: plain recursion over replicas, devices, splits and shares. */
struct brute {
    const struct space *s;
    struct scorer *scorer;
    int64_t best_ns, plans, violations;
    int32_t n_replicas, n_stages[SPACE_DEVICES_MAX], share[SPACE_DEVICES_MAX];
    int32_t device[SPACE_DEVICES_MAX][SPACE_DEVICES_MAX],
        last[SPACE_DEVICES_MAX][SPACE_DEVICES_MAX];
};

static int64_t bound_of(const struct brute *b, int32_t r)
{
    struct bound_stage stages[SPACE_DEVICES_MAX];
    for (int32_t i = 0, first = 0; i < b->n_stages[r]; i++) {
        struct space_stage_time t;
        int32_t left = b->n_stages[r] - i;
        space_stage_time(b->s, b->device[r][i], first, b->last[r][i], 1, &t);
        stages[i] = (struct bound_stage){t.forward_ns, t.backward_ns, t.update_ns, 0,
                                         left < b->share[r] ? left : b->share[r]};
        if (i + 1 < b->n_stages[r])
            stages[i].transfer_ns =
                space_transfer_ns(b->s, b->device[r][i], b->device[r][i + 1], b->last[r][i]);
        first = b->last[r][i] + 1;
    }
    return bound_pipeline(stages, b->n_stages[r], b->share[r]);
}

static void brute_score(struct brute *b)
{
    struct plan p;
    struct error err = {0};
    int64_t ns = 0, missing = 0, bound = 0;
    plan_skeleton(scorer_arena(b->scorer), b->s, "brute", b->n_replicas, b->n_stages, &p);
    for (int32_t r = 0; r < b->n_replicas; r++) {
        p.replicas[r].microbatches = b->share[r];
        for (int32_t i = 0, first = 0; i < b->n_stages[r]; i++) {
            struct plan_stage *stage = &p.replicas[r].stages[i];
            stage->device = b->device[r][i];
            stage->first_layer = first;
            stage->last_layer = b->last[r][i];
            first = stage->last_layer + 1;
        }
        if (bound_of(b, r) > bound) bound = bound_of(b, r);
    }
    ck_assert_msg(scorer_run(b->scorer, b->s, &p, INT64_MAX, &ns, &missing, &err) == OK, "%s",
                  err.text);
    b->plans++;
    if (bound > ns) b->violations++;
    if (ns < b->best_ns) b->best_ns = ns;
}

static void brute_shares(struct brute *b, int32_t r, int32_t left)
{
    if (r == b->n_replicas - 1) {
        if (left < 1) return;
        b->share[r] = left;
        brute_score(b);
        return;
    }
    for (int32_t m = 1; m < left; m++) {
        b->share[r] = m;
        brute_shares(b, r + 1, left - m);
    }
}

static void brute_splits(struct brute *b, int32_t r, int32_t i, int32_t first)
{
    if (r == b->n_replicas) {
        brute_shares(b, 0, b->s->microbatches);
        return;
    }
    int32_t n = b->s->n_layers;
    if (i == b->n_stages[r] - 1) {
        b->last[r][i] = n - 1;
        if (first <= n - 1) brute_splits(b, r + 1, 0, 0);
        return;
    }
    for (int32_t last = first; last < n - 1; last++) {
        b->last[r][i] = last;
        brute_splits(b, r, i + 1, last + 1);
    }
}

/* Next device for the current replica, or close it and open the next one (whose first device is
 * larger: each set once). */
static void brute_devices(struct brute *b, uint32_t unused, int32_t depth)
{
    int32_t r = b->n_replicas;
    if (depth > 0) {
        b->n_stages[r] = depth;
        b->n_replicas = r + 1;
        brute_splits(b, 0, 0, 0);
        for (int32_t d = 0; d < b->s->n_devices; d++)
            if (unused >> d & 1) {
                b->device[r + 1][0] = d;
                brute_devices(b, unused & ~(1u << d), 1);
            }
        b->n_replicas = r;
    }
    for (int32_t d = 0; d < b->s->n_devices; d++)
        if (unused >> d & 1) {
            b->device[r][depth] = d;
            if (depth > 0 || r == 0) brute_devices(b, unused & ~(1u << d), depth + 1);
        }
}

START_TEST(the_search_finds_what_brute_force_finds_and_no_bound_is_above_a_plan)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    make_case((uint64_t)_i + 1, 2 + _i % 2, &job, &cluster);
    struct profile profile;
    ck_assert_msg(profile_prior(arena, &cluster, &profile, &err) == OK, "%s", err.text);
    struct search_options o = {.top = 1};
    struct search_result found;
    ck_assert_msg(search_plans(arena, &job, &cluster, &profile, &o, &found, &err) == OK, "%s",
                  err.text);
    ck_assert(found.exact);

    struct lower_options lower = {.check_memory = true};
    ck_assert_int_eq(team_fused(arena, &cluster, &lower, &err), OK);
    struct cost *cost = cost_new(arena, &profile, &cluster);
    struct space space;
    ck_assert_int_eq(space_make(arena, &job, &cluster, cost, 1, &lower, &space, &err), OK);
    struct brute b = {.s = &space, .scorer = scorer_new(&lower, cost), .best_ns = INT64_MAX};
    brute_devices(&b, (1u << cluster.n_devices) - 1, 0);
    scorer_free(b.scorer);
    ck_assert_int_gt(b.plans, 3);
    ck_assert_int_eq(b.violations, 0);
    ck_assert_int_le(found.plans[0].iteration_ns, b.best_ns);
}
END_TEST

START_TEST(the_found_plan_is_at_least_as_good_as_each_baseline_and_a_second_search_is_the_same)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    make_case(4242, 4, &job, &cluster);
    struct profile profile;
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    struct search_options o = {.top = 3};
    struct search_result a, b;
    ck_assert_msg(search_plans(arena, &job, &cluster, &profile, &o, &a, &err) == OK, "%s",
                  err.text);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &o, &b, &err), OK);
    for (int32_t i = 0; i < a.n_baselines; i++)
        ck_assert_int_le(a.plans[0].iteration_ns, a.baselines[i].iteration_ns);
    ck_assert_int_eq(a.n_plans, b.n_plans);
    for (int32_t i = 0; i < a.n_plans; i++) {
        ck_assert_uint_eq(plan_hash(arena, &a.plans[i].plan), plan_hash(arena, &b.plans[i].plan));
        if (i) ck_assert_int_ge(a.plans[i].iteration_ns, a.plans[i - 1].iteration_ns);
    }
}
END_TEST

START_TEST(an_unknown_baseline_lists_the_known_ones)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    make_case(1, 2, &job, &cluster);
    struct profile profile;
    struct search_result r;
    struct search_options o = {.top = 1, .baseline = "alpa"};
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &o, &r, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "even-pipeline, data-parallel"));
}
END_TEST

START_TEST(a_model_that_fits_nowhere_is_infeasible_and_names_the_nearest_miss)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    make_case(1, 2, &job, &cluster);
    for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = 1000;
    struct profile profile;
    struct search_result r;
    struct search_options o = {.top = 1};
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &o, &r, &err), ERR_INFEASIBLE);
    ck_assert_ptr_nonnull(strstr(err.text, "nearest miss"));
}
END_TEST

/* By hand: 6 over weights 1, 2, 3: whoever gets less than 4 in all leaves one replica with at least
 * 4 (4·1, 2·2 or 2·3), and 4·1, 1·2, 1·3 reaches 4. */
START_TEST(shares_are_the_best_integer_ones)
{
    int64_t weight[3] = {1, 2, 3};
    int32_t share[3];
    ck_assert_int_eq(partition_shares(weight, 3, 6, share), 4);
    ck_assert_int_eq(share[0] + share[1] + share[2], 6);
}
END_TEST

/* Two equal stages, F=1 B=2, no transfer, K = 2, 1: 1F1B takes (m + p - 1)(F + B) = (4 + 1) 3. */
START_TEST(the_bound_of_a_uniform_pipeline_is_its_closed_form)
{
    struct bound_stage s[2] = {{1, 2, 0, 0, 2}, {1, 2, 0, 0, 1}};
    ck_assert_int_eq(bound_pipeline(s, 2, 4), 15);
}
END_TEST

Suite *planner_suite(void)
{
    Suite *s = suite_create("planner");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    int cases = getenv("MUSHER_LONG") ? 200 : 16;
    tcase_add_loop_test(t, the_search_finds_what_brute_force_finds_and_no_bound_is_above_a_plan, 0,
                        cases);
    tcase_add_test(
        t, the_found_plan_is_at_least_as_good_as_each_baseline_and_a_second_search_is_the_same);
    tcase_add_test(t, an_unknown_baseline_lists_the_known_ones);
    tcase_add_test(t, a_model_that_fits_nowhere_is_infeasible_and_names_the_nearest_miss);
    tcase_add_test(t, shares_are_the_best_integer_ones);
    tcase_add_test(t, the_bound_of_a_uniform_pipeline_is_its_closed_form);
    suite_add_tcase(s, t);
    return s;
}
