/* HARP's own cases (tests/data/harp): splits, times, the sweep of bandwidths; classes of pipelines contain one another. */
#include "core/base/arena.h"
#include "core/lower/lower.h"
#include "core/sharding/sharding.h"
#include "sim/engine/sim.h"
#include "tests/validate/harp.h"
#include "tests/validate/published.h"

#include "tests/support/suites.h"

#include <math.h>

static const char folder[] = "tests/data/harp";
static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

START_TEST(every_time_of_the_sweep_is_reproduced_to_its_last_digit)
{
    struct harp_sweep *x;
    struct error err = {0};
    int32_t n;
    ck_assert_msg(harp_sweep_read(arena, folder, &n, &x, &err) == OK, "%s", err.text);
    ck_assert_int_eq(n, 4);
    for (int32_t i = 0; i < n; i++)
        for (int k = 0; k < HARP_RULES; k++)
            ck_assert_double_eq_tol(1e-9 * (double)x[i].simulated_ns[k], x[i].published_s[k], 0.05);
}
END_TEST

START_TEST(with_one_constant_from_the_first_case_splits_and_times_of_all_are_found_again)
{
    struct harp_cases c;
    struct error err = {0};
    ck_assert_msg(harp_cases_read(arena, folder, &c, &err) == OK, "%s", err.text);
    ck_assert_int_eq(c.n, 3);
    ck_assert(c.pace > 1 && c.pace < 2);
    for (int32_t i = 0; i < c.n; i++) {
        const struct harp_case *x = &c.cases[i];
        double simulated_s = 1e-9 * (double)x->iteration_ns;
        ck_assert_double_eq_tol(simulated_s / x->measured_s, 1, i ? 0.1 : 1e-4);
        ck_assert_msg(x->apart <= 2, "%s: %d layers apart", x->name, (int)x->apart);
        /* the pass without lowering agrees with lowering and the event loop */
        ck_assert_double_eq_tol((double)x->published.iteration_ns / (double)x->iteration_ns, 1,
                                0.02);
        ck_assert(x->best.best.iteration_ns <= x->published.iteration_ns);
        /* Gradients here are of twice the bytes: whole parameters of 2, gradients of 4, and a GPU's part of the state. */
        for (int32_t s = 0; s < x->published.n; s++) {
            double ratio = 1e-9 * (double)x->peak_bytes[s] / x->peak_GB[s];
            ck_assert_msg(ratio > 0.85 && ratio < 1.55, "%s: stage %d: %g", x->name, (int)s, ratio);
        }
    }
}
END_TEST

static struct harp_team team_of_sharing(const char *name, enum harp_sharing sharing)
{
    struct harp_team t;
    struct error err = {0};
    const char *job = arena_printf(arena, "%s/%s.job.yaml", folder, name),
               *cluster = arena_printf(arena, "%s/%s.yaml", folder, name);
    ck_assert_msg(harp_team_read(arena, job, cluster, sharing, 1, &t, &err) == OK, "%s", err.text);
    return t;
}

static struct harp_team team_of(const char *name) { return team_of_sharing(name, HARP_SEQUENCES); }

static struct harp_result best_of(const struct harp_team *t, struct harp_class class)
{
    struct harp_result r;
    struct error err = {0};
    ck_assert_msg(harp_model_search(arena, t, &class, &r, &err) == OK, "%s", err.text);
    return r;
}

START_TEST(pruning_changes_nothing_but_the_count)
{
    const char *names[] = {"760m", "2.6b"};
    for (int i = 0; i < 2; i++, arena_reset(arena)) {
        struct harp_team t = team_of(names[i]);
        for (int k = 0; k < HARP_RULES; k++) {
            struct harp_class class = {.rule = HARP_RULE[k], .any_order = true};
            struct harp_result pruned = best_of(&t, class);
            class.exhaustive = true;
            struct harp_result all = best_of(&t, class);
            ck_assert_int_eq(pruned.best.iteration_ns, all.best.iteration_ns);
            ck_assert_mem_eq(&pruned.best, &all.best, sizeof all.best);
            ck_assert_int_eq(all.timed, all.pipelines);
            ck_assert_int_lt(pruned.timed, all.timed);
        }
    }
}
END_TEST

START_TEST(a_class_that_holds_another_is_no_slower)
{
    struct harp_team t = team_of("2.6b");
    struct harp_class all = {.rule = SCHEDULE_H1F1B, .any_order = true};
    struct harp_result best = best_of(&t, all),
                       ordered = best_of(&t, (struct harp_class){.rule = all.rule});
    /* 3 nodes, 68 layers: 6 orders of C(67, 2) splits, 6 of 67, 3 of one; in the file's order one of the first */
    ck_assert_int_eq(best.pipelines, 6 * 67 * 66 / 2 + 6 * 67 + 3);
    ck_assert_int_eq(ordered.pipelines, 67 * 66 / 2);
    ck_assert(best.best.iteration_ns <= ordered.best.iteration_ns);
    for (int32_t coarse = 4; coarse <= 34; coarse += 5) {
        struct harp_class some = all;
        some.coarse = coarse;
        struct harp_result r = best_of(&t, some);
        ck_assert_int_eq(r.pipelines, 6 * (coarse - 1) * (coarse - 2) / 2 + 6 * (coarse - 1) + 3);
        ck_assert(best.best.iteration_ns <= r.best.iteration_ns);
    }
}
END_TEST

START_TEST(twice_the_pace_is_twice_the_time_but_for_the_messages)
{
    struct harp_team t = team_of("760m"), twice;
    struct error err = {0};
    struct harp_pipeline one = {.n = 1, .last = {t.n_layers - 1}}, two = one;
    ck_assert_int_eq(harp_team_read(arena, "tests/data/harp/760m.job.yaml",
                                    "tests/data/harp/760m.yaml", HARP_SEQUENCES, 2, &twice, &err),
                     OK);
    one.node[0] = two.node[0] = 1; /* one GPU: no message at all */
    ck_assert_int_eq(harp_model_time(arena, &t, SCHEDULE_1F1B, false, &one, &err), OK);
    ck_assert_int_eq(harp_model_time(arena, &twice, SCHEDULE_1F1B, false, &two, &err), OK);
    ck_assert_double_eq_tol((double)two.iteration_ns / (double)one.iteration_ns, 2, 1e-5);
}
END_TEST

/* The eight V100 of node v and the pairs of a and b: one GPU's shards, the collectives between them, and as many copies of an activation
 * as there are receivers, timed with lowering and without. */
START_TEST(gpus_that_share_operators_are_priced_by_the_view_of_one)
{
    struct harp_team t = team_of_sharing("2.6b", HARP_OPERATORS), whole = team_of("2.6b");
    struct harp_pipeline p = {.n = 3, .node = {0, 1, 2}, .last = {29, 48, 67}};
    struct plan plan;
    struct program program;
    struct sim_result r;
    struct lower_options lower = {0};
    struct error err = {0};
    ck_assert_int_eq(t.n_layers, 68);
    const struct stage_cost *one = &t.stage[t.n_layers + 20], *all = &whole.stage[t.n_layers + 20];
    /* Layers 1 to 20 of node v: weights are sharded, norms and biases of sums replicated; all GPUs do the work of all sequences. */
    ck_assert_double_eq_tol(8 * (double)one->parameter_bytes / (double)all->parameter_bytes, 1,
                            0.01);
    ck_assert_int_gt(one->forward_ns, all->forward_ns);
    ck_assert_msg(harp_model_time(arena, &t, SCHEDULE_H1F1B_PUBLISHED, false, &p, &err) == OK, "%s",
                  err.text);
    harp_model_plan(arena, &t, &p, &plan);
    for (int32_t s = 0; s < 3; s++) {
        const struct plan_stage *x = &plan.replicas[0].stages[s];
        ck_assert_int_eq(x->n_shards, s ? 2 : 8);
        ck_assert_str_eq(sharding_kind(arena, x->sharding), "tensor");
        ck_assert_ptr_null(x->sequences);
    }
    ck_assert_int_eq(plan.cluster.n_devices, 12);
    published_fused(&lower);
    ck_assert_msg(lower_plan(arena, &plan, &lower, &program, &err) == OK, "%s", err.text);
    ck_assert_msg(sim_run(arena, &program, cost_new(arena, &t.profile, &plan.cluster),
                          &(struct sim_options){.detail = SIM_STAGE}, &r, &err) == OK,
                  "%s", err.text);
    ck_assert_double_eq_tol((double)p.iteration_ns / (double)r.iteration_ns, 1, 0.02);
}
END_TEST

START_TEST(teams_that_are_no_such_case_are_refused)
{
    struct harp_team t;
    struct harp_cases c;
    struct error err = {0};
    ck_assert_int_eq(harp_team_read(arena, "examples/job.yaml", "tests/data/harp/2.6b.yaml",
                                    HARP_SEQUENCES, 1, &t, &err),
                     ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "node v: 8 GPUs do not divide a microbatch of 2"));
    ck_assert_int_eq(harp_cases_read(arena, "tests/data", &c, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "cases.csv"));
}
END_TEST

Suite *harp_suite(void)
{
    Suite *s = suite_create("harp");
    TCase *t = tcase_create("harp");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_set_timeout(t, 600);
    tcase_add_test(t, every_time_of_the_sweep_is_reproduced_to_its_last_digit);
    tcase_add_test(t,
                   with_one_constant_from_the_first_case_splits_and_times_of_all_are_found_again);
    tcase_add_test(t, pruning_changes_nothing_but_the_count);
    tcase_add_test(t, a_class_that_holds_another_is_no_slower);
    tcase_add_test(t, twice_the_pace_is_twice_the_time_but_for_the_messages);
    tcase_add_test(t, gpus_that_share_operators_are_priced_by_the_view_of_one);
    tcase_add_test(t, teams_that_are_no_such_case_are_refused);
    suite_add_tcase(s, t);
    return s;
}
