/* The exact search against brute force: same plan class, no pruning, same simulator. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "planner/baseline/baseline.h"
#include "planner/bound/pipeline_bound.h"
#include "planner/candidate/scorer.h"
#include "planner/exact/partition.h"
#include "planner/search.h"
#include "profiles/team.h"

#include "tests/support/brute.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

START_TEST(the_search_finds_what_brute_force_finds_and_no_bound_is_above_a_plan)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    brute_make_case((uint64_t)_i + 1, 2 + _i % 2, &job, &cluster);
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
    struct brute b = {.s = &space, .scorer = scorer_new(&lower), .best_ns = INT64_MAX};
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
    brute_make_case(4242, 4, &job, &cluster);
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
    brute_make_case(1, 2, &job, &cluster);
    struct profile profile;
    struct search_result r;
    struct search_options o = {.top = 1, .baseline = "alpa"};
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &o, &r, &err), ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(err.text, "even-pipeline, data-parallel"));
}
END_TEST

/* Less memory in all than parameters and state take; then enough of it, but not for activations beside them. */
START_TEST(a_model_that_fits_nowhere_is_infeasible_with_the_sum_or_the_nearest_miss)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    struct search_options o = {.top = 1};
    const char *const why[] = {"divided over devices without any copy", "nearest miss"};
    int told[3] = {0};
    enum status st = ERR_INFEASIBLE;
    brute_make_case(1, 2, &job, &cluster);
    for (int64_t bytes = 1000; st == ERR_INFEASIBLE; bytes += bytes / 4) {
        struct error err = {0};
        for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = bytes;
        ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
        st = search_plans(arena, &job, &cluster, &profile, &o, &r, &err);
        int k = st == OK ? 2 : strstr(err.text, why[0]) ? 0 : 1;
        ck_assert(st == OK || strstr(err.text, why[k]));
        ck_assert(k == 2 || !told[k + 1]);
        told[k]++;
    }
    ck_assert(told[0] && told[1] && told[2]);
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
    struct bound_stage s[2] = {{.forward_ns = 1, .backward_ns = 2, .return_ns = 2, .in_flight = 2},
                               {.forward_ns = 1, .backward_ns = 2, .return_ns = 2, .in_flight = 1}};
    int64_t path;
    ck_assert_int_eq(bound_pipeline(s, 2, 4, &path), 15);
    ck_assert_int_eq(path, 15);
}
END_TEST

/* --- memory, refinement, what is handed out --- */

static struct search_result must_search(const struct job *job, const struct cluster *cluster,
                                        const struct search_options *o)
{
    struct error err = {0};
    struct profile profile;
    struct search_result r;
    ck_assert_msg(profile_prior(arena, cluster, &profile, &err) == OK, "%s", err.text);
    ck_assert_msg(search_plans(arena, job, cluster, &profile, o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Small memories too, so that some stages recompute and some fit nowhere. */
START_TEST(pruning_loses_no_optimum)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    uint64_t seed = 1000 + (uint64_t)_i;
    brute_make_case(seed, 2 + _i % 2, &job, &cluster);
    int64_t sizes[] = {1 << 30, 700 << 10, 500 << 10, 400 << 10};
    for (int32_t t = 0; t < cluster.n_types; t++)
        cluster.types[t].memory_bytes = sizes[brute_draw(seed, 0, 3)];
    struct search_options pruned = {.top = 1},
                          all = {.top = 1, .exhaustive = true, .evaluations = 1000000};
    struct profile profile;
    struct search_result a, b;
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    enum status st = search_plans(arena, &job, &cluster, &profile, &pruned, &a, &err);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &all, &b, &err), st);
    if (st == ERR_INFEASIBLE) return;
    ck_assert_msg(st == OK, "%s", err.text);
    ck_assert(a.exact && b.exact);
    ck_assert_int_eq(a.class_ns, b.class_ns);
    ck_assert_int_eq(a.plans[0].iteration_ns, b.plans[0].iteration_ns); /* refined */
}
END_TEST

struct ladder {
    int32_t steps, slower, feasible;
};

static void climb_memory(uint64_t seed, int64_t fine_kib, struct ladder *l)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    struct profile profile;
    struct search_options o = {.top = 1};
    int64_t best = INT64_MAX, class_ns = INT64_MAX;
    brute_make_case(seed, 2, &job, &cluster);
    for (int64_t kib = 100; kib <= 2000; kib += kib < 800 ? fine_kib : 200) {
        struct search_result r;
        for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = kib << 10;
        ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
        enum status st = search_plans(arena, &job, &cluster, &profile, &o, &r, &err);
        ck_assert_msg(st == OK || (st == ERR_INFEASIBLE && best == INT64_MAX), "%d KiB: %s",
                      (int)kib, err.text);
        if (st != OK) continue;
        int64_t ns = r.plans[0].iteration_ns;
        if (best < INT64_MAX) l->steps++, l->slower += ns > best;
        if (ns < best) best = ns;
        l->feasible++;
        ck_assert(r.exact);
        if (!r.class_ns) continue; /* all that fits shards operators */
        ck_assert_msg(r.class_ns <= class_ns, "%d KiB: the class", (int)kib);
        class_ns = r.class_ns;
    }
}

/* Two equal devices. The best of the class is never slower, since the class is searched to its end and a plan of it computes no
 * more with more memory. What is handed out is climbed to from there, and memory says where a climb begins and what it may pass:
 * that it is slower must be rare, no more can be promised. */
START_TEST(more_memory_hardly_ever_gives_a_slower_plan)
{
    struct ladder l = {0};
    uint64_t cases = suites_long() ? 40 : 1;
    for (uint64_t i = 0; i < cases; i++, arena_reset(arena))
        climb_memory(77 + i, suites_long() ? 20 : 50, &l);
    ck_assert_int_gt(l.feasible, 12 * (int32_t)cases);
    ck_assert_msg(100 * l.slower <= l.steps, "%d of %d steps to more memory", (int)l.slower,
                  (int)l.steps);
}
END_TEST

/* Steps at which something was once lost: sharded operators (a cap that led to nothing was an end), orders (the same one
 * that does not fit was found three times), replicas (all climbs began at pipelines). */
static const struct {
    uint64_t seed;
    int64_t less_kib, more_kib;
} steps[] = {{84, 300, 320},  {88, 280, 300},  {91, 440, 460},
             {108, 580, 600}, {110, 620, 640}, {112, 380, 400}};

START_TEST(what_less_memory_leads_to_is_found_with_more)
{
    struct job job;
    struct cluster cluster;
    int64_t ns[2];
    brute_make_case(steps[_i].seed, 2, &job, &cluster);
    for (int more = 0; more < 2; more++) {
        struct search_options o = {.top = 1};
        int64_t kib = more ? steps[_i].more_kib : steps[_i].less_kib;
        for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = kib << 10;
        ns[more] = must_search(&job, &cluster, &o).plans[0].iteration_ns;
    }
    ck_assert_int_le(ns[1], ns[0]);
}
END_TEST

START_TEST(the_example_fits_20_mebibytes_a_device)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    ck_assert_msg(job_read(arena, "examples/job.yaml", &job, &err) == OK, "%s", err.text);
    ck_assert_msg(cluster_read(arena, "examples/team.yaml", &cluster, &err) == OK, "%s", err.text);
    ck_assert_msg(team_complete(&cluster, &err) == OK, "%s", err.text);
    for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = 20 << 20;
    struct search_options o = {.top = 1};
    ck_assert_int_eq(must_search(&job, &cluster, &o).n_plans, 1);
}
END_TEST

/* "… lacks N …" of the message, in bytes. */
static double lacks(const char *text)
{
    const char *at = strstr(text, "lacks ");
    double bytes = 0;
    char number[32];
    ck_assert_msg(at != NULL, "%s", text);
    snprintf(number, sizeof number, "%.*s", (int)strcspn(at + 6, ":"), at + 6);
    ck_assert_msg(units_parse_bytes(number, &bytes), "'%s' of %s", number, text);
    return bytes;
}

START_TEST(the_nearest_miss_comes_nearer_with_memory)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    struct search_options o = {.top = 1};
    double before = INFINITY;
    int32_t misses = 0;
    brute_make_case(5, 2, &job, &cluster);
    for (int64_t kib = 20; kib < 1000; kib += 10) {
        struct error err = {0};
        for (int32_t t = 0; t < cluster.n_types; t++) cluster.types[t].memory_bytes = kib << 10;
        ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
        if (search_plans(arena, &job, &cluster, &profile, &o, &r, &err) == OK) break;
        if (strstr(err.text, "without any copy")) continue; /* the sum over all devices */
        ck_assert_ptr_nonnull(strstr(err.text, "(the nearest miss: 1 replica"));
        ck_assert_msg(lacks(err.text) < before, "%d KiB: %s", (int)kib, err.text);
        before = lacks(err.text);
        misses++;
    }
    ck_assert_int_gt(misses, 3);
}
END_TEST

START_TEST(asking_for_more_plans_changes_none_and_each_is_named)
{
    struct job job;
    struct cluster cluster;
    brute_make_case(31 + (uint64_t)_i, 3, &job, &cluster);
    struct search_options one = {.top = 1}, eight = {.top = 8};
    struct search_result a = must_search(&job, &cluster, &one),
                         b = must_search(&job, &cluster, &eight);
    ck_assert_int_eq(a.n_plans, 1);
    ck_assert_int_eq(b.n_plans, 8);
    ck_assert_int_eq(a.plans[0].iteration_ns, b.plans[0].iteration_ns);
    ck_assert_uint_eq(plan_hash(arena, &a.plans[0].plan), plan_hash(arena, &b.plans[0].plan));
    ck_assert_str_eq(b.plans[0].plan.name, "found");
    ck_assert_str_eq(b.plans[1].plan.name, "found-2");
    for (int32_t i = 0; i < b.n_plans; i++)
        for (int32_t k = 0; k < i; k++)
            ck_assert_str_ne(plan_describe(arena, &b.plans[i].plan),
                             plan_describe(arena, &b.plans[k].plan));
}
END_TEST

START_TEST(nine_devices_are_searched_too_and_no_baseline_is_faster)
{
    struct job job;
    struct cluster cluster;
    brute_make_case(3, 9, &job, &cluster);
    job.global_batch = 9;
    struct search_options o = {.top = 1, .baseline = "data-parallel"},
                          search = {.top = 1, .evaluations = 2000};
    ck_assert_int_eq(must_search(&job, &cluster, &o).plans[0].plan.n_replicas, 9);
    struct search_result r = must_search(&job, &cluster, &search);
    ck_assert(!r.exact);
    ck_assert_int_gt(r.lower_bound_ns, 0);
    ck_assert_int_le(r.lower_bound_ns, r.plans[0].iteration_ns);
    for (int32_t i = 0; i < r.n_baselines; i++)
        ck_assert_int_le(r.plans[0].iteration_ns, r.baselines[i].iteration_ns);
}
END_TEST

static int progress_calls;
static void note_progress(void *user, int64_t evaluated, int64_t best_ns)
{
    (void)user;
    if (!progress_calls++) ck_assert(evaluated == 0 && best_ns == INT64_MAX);
}

START_TEST(a_stop_before_the_first_score_is_an_interruption)
{
    struct job job;
    struct cluster cluster;
    struct error err = {0};
    struct profile profile;
    struct search_result r;
    volatile sig_atomic_t stop = 0;
    brute_make_case(3, 2, &job, &cluster);
    struct search_options o = {.top = 1, .stop = &stop, .progress = note_progress};
    progress_calls = 0;
    must_search(&job, &cluster, &o);
    ck_assert_int_gt(progress_calls, 2);
    stop = 1;
    ck_assert_int_eq(profile_prior(arena, &cluster, &profile, &err), OK);
    ck_assert_int_eq(search_plans(arena, &job, &cluster, &profile, &o, &r, &err), ERR_INTERRUPTED);
}
END_TEST

Suite *planner_suite(void)
{
    Suite *s = suite_create("planner");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    int cases = suites_long() ? 200 : 5;
    tcase_add_loop_test(t, the_search_finds_what_brute_force_finds_and_no_bound_is_above_a_plan, 0,
                        cases);
    tcase_add_test(
        t, the_found_plan_is_at_least_as_good_as_each_baseline_and_a_second_search_is_the_same);
    tcase_add_loop_test(t, pruning_loses_no_optimum, 0, suites_long() ? 1000 : 5);
    tcase_add_loop_test(t, what_less_memory_leads_to_is_found_with_more, 0,
                        sizeof steps / sizeof *steps);
    tcase_add_test(t, the_example_fits_20_mebibytes_a_device);
    tcase_add_test(t, the_nearest_miss_comes_nearer_with_memory);
    tcase_add_loop_test(t, asking_for_more_plans_changes_none_and_each_is_named, 0, 4);
    tcase_add_test(t, nine_devices_are_searched_too_and_no_baseline_is_faster);
    tcase_add_test(t, a_stop_before_the_first_score_is_an_interruption);
    tcase_add_test(t, an_unknown_baseline_lists_the_known_ones);
    tcase_add_test(t, a_model_that_fits_nowhere_is_infeasible_with_the_sum_or_the_nearest_miss);
    tcase_add_test(t, shares_are_the_best_integer_ones);
    tcase_add_test(t, the_bound_of_a_uniform_pipeline_is_its_closed_form);
    suite_add_tcase(s, t);
    TCase *memory = tcase_create("memory");
    tcase_add_checked_fixture(memory, setup, teardown);
    tcase_set_timeout(memory, suites_long() ? 3000 : 300);
    tcase_add_test(memory, more_memory_hardly_ever_gives_a_slower_plan);
    suite_add_tcase(s, memory);
    return s;
}
