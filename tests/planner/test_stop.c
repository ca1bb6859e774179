/* Long computations end at once when their thread is asked to stop, and a search gives its best plan so far. */
#include "core/base/stop.h"
#include "planner/candidate/scorer.h"
#include "planner/lp.h"
#include "sim/engine/sim.h"
#include "sim/engine/work.h"

#include "tests/support/plans.h"
#include "tests/support/small_teams.h"
#include "tests/support/spmd_cases.h"

static const volatile sig_atomic_t now = 1;

static void unwatch(void)
{
    stop_watch(NULL);
    small_team_teardown();
}

static struct plan long_plan(int32_t microbatches)
{
    struct plan p = plans_new(arena, "gpt2", 2, 2);
    int32_t last = plans_layers(arena, &p) - 1;
    plans_replica(arena, &p, microbatches, 2, (const int32_t[]){last / 2, last});
    return p;
}

START_TEST(a_lowering_ends)
{
    struct plan p = long_plan(8);
    struct lower_options o = {.fused = plans_fused};
    struct program out;
    struct error err = {0};
    stop_watch(&now);
    ck_assert_int_eq(lower_plan(arena, &p, &o, &out, &err), ERR_INTERRUPTED);
    stop_watch(NULL);
    ck_assert_int_eq(lower_plan(arena, &p, &o, &out, &err), OK);
}
END_TEST

static enum status simulate(struct plan *p, const struct program *program,
                            const struct sim_options *o, struct sim_result *out, struct error *err)
{
    struct profile prior;
    ck_assert_msg(profile_prior(arena, &p->cluster, &prior, err) == OK, "%s", err->text);
    return sim_run(arena, program, cost_new(arena, &prior, &p->cluster), o, out, err);
}

START_TEST(a_simulation_ends)
{
    struct plan p = long_plan(1600);
    const struct program *program = plans_lower(arena, &p, true);
    struct sim_options o = {.steps = 4};
    struct sim_result r;
    struct error err = {0};
    stop_watch(&now);
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), ERR_INTERRUPTED);
    o.fold = true;
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), ERR_INTERRUPTED);
    stop_watch(NULL);
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), OK);
    ck_assert_int_gt(r.events, 4096);
    o.fold = false;
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), OK);
    ck_assert_int_eq(r.work_ns,
                     work_setup_ns(program) + r.events * work_event_ns(program->n_devices));
    ck_assert_int_lt(4 * work_event_ns(32), work_event_ns(8192));
    o.most_work_ns = r.work_ns / 2;
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), ERR_RESOURCE);
    ck_assert_ptr_nonnull(strstr(err.text, "takes more than"));
    o.most_work_ns = 2 * r.work_ns;
    ck_assert_int_eq(simulate(&p, program, &o, &r, &err), OK);
}
END_TEST

START_TEST(the_search_of_a_stages_rules_ends)
{
    static const double even[] = {1, 1, 1, 1};
    struct spmd_case *c = spmd_case_new(
        arena,
        "{model_type: llama, hidden_size: 32, intermediate_size: 48, num_hidden_layers: 2, "
        "num_attention_heads: 4, num_key_value_heads: 2, vocab_size: 64, "
        "max_position_embeddings: 32}",
        16, 4, 4, even, 1);
    struct spmd_answer x;
    struct spmd_tables *t;
    struct spmd_found found;
    struct error err = {0};
    ck_assert_int_eq(spmd_tables_new(arena, &c->q, &t, &err), OK);
    stop_watch(&now);
    ck_assert_int_eq(spmd_search(arena, &t->problem, &c->q.limits, &found, &err), ERR_INTERRUPTED);
    ck_assert_int_eq(spmd_best(arena, &c->q, &x, &err), ERR_INTERRUPTED);
    stop_watch(NULL);
    ck_assert_int_eq(spmd_best(arena, &c->q, &x, &err), OK);
    ck_assert_int_lt(x.ns, INT64_MAX);
}
END_TEST

START_TEST(a_linear_program_ends)
{
    struct lp *p = lp_new(arena, LP_MAX);
    int32_t x = lp_column(p, 0, INFINITY, 1);
    lp_put(p, x, 2);
    lp_row(p, -INFINITY, 3);
    stop_watch(&now);
    ck_assert_int_eq(lp_solve(p, NULL), LP_FAILED);
    stop_watch(NULL);
    ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
    lp_free(p);
}
END_TEST

struct stopping {
    volatile sig_atomic_t stop;
    int64_t calls, after, best_ns;
};

static void stop_after(void *user, int64_t evaluated, int64_t best_ns)
{
    struct stopping *s = user;
    (void)evaluated;
    if (++s->calls < s->after) return;
    if (!s->stop) s->best_ns = best_ns;
    s->stop = 1;
}

/* At every place where a search of all kinds of plans reports: the best plan until then, or none. */
START_TEST(a_search_ends_with_its_best_plan)
{
    struct job j = small_team_job(4, 16, "microbatch: [1, 2]\n");
    struct cluster c = small_team(_i, "1221", 20);
    struct profile p;
    struct error err = {0};
    int32_t with = 0, without = 0;
    ck_assert_int_eq(profile_prior(arena, &c, &p, &err), OK);
    struct stopping all = {.after = INT64_MAX};
    struct search_options o = {.top = 1, .user = &all, .progress = stop_after};
    small_team_search(&j, &c, &o);
    for (int64_t after = 1; after < all.calls; after += 1 + after / 4) {
        struct stopping s = {.after = after};
        struct search_result r;
        o.stop = &s.stop, o.user = &s;
        enum status st = search_plans(arena, &j, &c, &p, &o, &r, &err);
        ck_assert_msg(st == OK || st == ERR_INTERRUPTED, "%d: %s", (int)st, err.text);
        ck_assert(!stop_requested());
        if (st == OK) {
            ck_assert_str_eq(r.stopped, "interrupted");
            ck_assert_int_le(r.plans[0].iteration_ns, s.best_ns);
        } else {
            ck_assert_int_eq(s.best_ns, INT64_MAX);
            ck_assert_str_eq(err.text, "interrupted before any plan was found");
        }
        *(st == OK ? &with : &without) += 1;
    }
    ck_assert_int_gt(with, 5);
    ck_assert_int_gt(without, 0);
}
END_TEST

/* Limits of work are counted, so they hold on every machine. */
START_TEST(a_plan_beyond_the_limit_of_work_is_given_up)
{
    struct plan p = long_plan(800);
    struct lower_options lower = {.fused = plans_fused};
    struct scorer *w = scorer_new(&lower);
    struct profile prior;
    struct space s;
    struct error err = {0};
    int64_t ns;
    ck_assert_int_eq(profile_prior(arena, &p.cluster, &prior, &err), OK);
    ck_assert_int_eq(space_make(arena, &p.job, &p.cluster, cost_new(arena, &prior, &p.cluster),
                                p.microbatch, &lower, &s, &err),
                     OK);
    scorer_limit(w, 1000);
    ck_assert_int_eq(scorer_run(w, &s, &p, &ns, &err), OK);
    ck_assert_int_eq(ns, INT64_MAX);
    ck_assert_ptr_nonnull(strstr(scorer_why(w), "takes more than"));
    scorer_limit(w, 0);
    ck_assert_int_eq(scorer_run(w, &s, &p, &ns, &err), OK);
    ck_assert_int_lt(ns, INT64_MAX);
    scorer_free(w);
}
END_TEST

Suite *stop_suite(void)
{
    Suite *s = suite_create("stop");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, small_team_setup, unwatch);
    tcase_add_test(t, a_lowering_ends);
    tcase_add_test(t, a_simulation_ends);
    tcase_add_test(t, the_search_of_a_stages_rules_ends);
    tcase_add_test(t, a_linear_program_ends);
    tcase_add_loop_test(t, a_search_ends_with_its_best_plan, 2, 5);
    tcase_add_test(t, a_plan_beyond_the_limit_of_work_is_given_up);
    suite_add_tcase(s, t);
    return s;
}
