/* Both levels of detail of the simulator over devices that share stages. */
#include "core/rng.h"
#include "tests/hybrid.h"

static struct arena *arena;
#define DRAW(low, high)                                                                            \
    ((low) + (int64_t)rng_below(7, seed, draws++, (uint64_t)((high) - (low) + 1)))

static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static struct sim_result run(struct hybrid_made *m, enum sim_detail detail, const double *slow,
                             int32_t steps, bool trace)
{
    struct sim_scale scale = {.device = slow};
    struct sim_options o = {.steps = steps, .detail = detail, .scale = &scale, .keep_trace = trace};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(m->arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

START_TEST(members_start_when_the_last_has_come_and_go_on_together)
{
    /* Two devices, one stage, one layer of two operators, F 10 B 20, meeting: 8 elements of 4 B on two: chunks of 16 B
     * over 1 GB/s: 2 steps of 16 ns. Alike: F = 10 + 32 + 10 + 32, B = 20 + 32 + 20 + 32, U 5. */
    struct hybrid h = {.tensor = 2,
                       .pipeline = 1,
                       .data = 1,
                       .microbatches = 1,
                       .layers = 1,
                       .ops = 2,
                       .forward_ns = 10,
                       .backward_ns = 20,
                       .update_ns = 5,
                       .meeting_elements = 8};
    double slow[2] = {1, 1.5};
    struct hybrid_made *m = hybrid_make(arena, &h);
    ck_assert_int_eq(run(m, SIM_OPERATOR, NULL, 1, false).makespan_ns, 84 + 104 + 5);
    /* One of them half as slow again: it sets the pace between meetings. Rounded: 5 · 1.5 = 8. */
    ck_assert_int_eq(run(m, SIM_OPERATOR, slow, 1, false).makespan_ns, 84 + 104 + 10 + 20 + 8);
    ck_assert_int_eq(run(m, SIM_STAGE, slow, 1, false).makespan_ns, 84 + 104 + 10 + 20 + 8);
}
END_TEST

START_TEST(stage_and_operator_detail_agree_to_the_nanosecond)
{
    for (uint64_t seed = 0; seed < (test_long() ? 2000 : 150); seed++) {
        uint64_t draws = 0;

        struct hybrid h = {.tensor = (int32_t)DRAW(1, 5),
                           .pipeline = (int32_t)DRAW(1, 4),
                           .data = (int32_t)DRAW(1, 3),
                           .microbatches = (int32_t)DRAW(1, 8),
                           .layers = (int32_t)DRAW(1, 3),
                           .ops = 2 * (int32_t)DRAW(1, 3),
                           .forward_ns = DRAW(0, 100),
                           .backward_ns = DRAW(0, 200),
                           .update_ns = DRAW(0, 50),
                           .transfer_bytes = DRAW(0, 300),
                           .meeting_elements = DRAW(0, 40),
                           .gradient_elements = DRAW(0, 100),
                           .latency_ns = DRAW(0, 20)};
        double slow[64];
        for (int i = 0; i < 60; i++) slow[i] = 0.5 + (double)DRAW(0, 100) / 50;
        struct hybrid_made *m = hybrid_make(arena, &h);
        struct sim_result whole = run(m, SIM_OPERATOR, slow, 3, false),
                          stage = run(m, SIM_STAGE, slow, 3, false);
        struct sim_result traced = run(m, SIM_OPERATOR, slow, 3, true),
                          drawn = run(m, SIM_STAGE, slow, 3, true);
        ck_assert_int_eq(whole.makespan_ns, stage.makespan_ns);
        ck_assert_int_eq(whole.makespan_ns, traced.makespan_ns);
        ck_assert_int_eq(whole.makespan_ns, drawn.makespan_ns);
        ck_assert_int_le((int64_t)drawn.trace->n_spans, (int64_t)traced.trace->n_spans);
        ck_assert_int_eq(traced.operators, drawn.operators);
        for (int32_t i = 0; i < m->program.n_devices; i++) {
            ck_assert_int_eq(whole.devices[i].busy_ns, stage.devices[i].busy_ns);
            ck_assert_int_eq(whole.devices[i].peak_bytes, stage.devices[i].peak_bytes);
        }
        arena_reset(arena);
    }
}
END_TEST

static struct sim_result run_folded(struct hybrid_made *m, const double *slow)
{
    struct sim_scale scale = {.device = slow};
    struct sim_options o = {.steps = 3, .scale = &scale, .fold = true};
    struct sim_result r = {0};
    struct error err = {0};
    ck_assert_msg(sim_run(m->arena, &m->program, m->cost, &o, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Replicas, or members of a stage, or single devices, have speeds of their own, at random; chunks of rings are equal. */
START_TEST(devices_that_do_the_same_are_simulated_once_without_a_difference)
{
    int32_t fewer = 0;
    for (uint64_t seed = 0; seed < (test_long() ? 3000 : 200); seed++) {
        uint64_t draws = 0;
        struct hybrid h = {.tensor = (int32_t)DRAW(1, 4),
                           .pipeline = (int32_t)DRAW(1, 4),
                           .data = (int32_t)DRAW(1, 4),
                           .microbatches = (int32_t)DRAW(1, 8),
                           .layers = (int32_t)DRAW(1, 3),
                           .ops = 2 * (int32_t)DRAW(1, 3),
                           .forward_ns = DRAW(0, 100),
                           .backward_ns = DRAW(0, 200),
                           .update_ns = DRAW(0, 50),
                           .transfer_bytes = DRAW(0, 300),
                           .meeting_elements = DRAW(0, 40),
                           .gradient_elements = 12 * DRAW(0, 20),
                           .latency_ns = DRAW(0, 20)};
        double slow[64];
        int64_t by = DRAW(0, 4);
        for (int32_t i = 0; i < 64; i++) {
            int32_t of = by == 0   ? 0
                         : by == 1 ? i % h.tensor
                         : by == 2 ? i / (h.tensor * h.pipeline)
                         : by == 3 ? i / h.tensor % h.pipeline
                                   : i;
            slow[i] = 1 + 0.25 * (double)rng_below(8, seed, (uint64_t)of, 3);
        }
        struct hybrid_made *m = hybrid_make(arena, &h);
        struct sim_result whole = run(m, SIM_OPERATOR, slow, 3, false),
                          folded = run_folded(m, slow);
        ck_assert_int_eq(whole.makespan_ns, folded.makespan_ns);
        ck_assert_int_eq(whole.iteration_ns, folded.iteration_ns);
        for (int32_t i = 0; i < m->program.n_devices; i++) {
            ck_assert_int_eq(whole.devices[i].busy_ns, folded.devices[i].busy_ns);
            ck_assert_int_eq(whole.devices[i].peak_bytes, folded.devices[i].peak_bytes);
        }
        fewer += folded.operators < whole.operators;
        arena_reset(arena);
    }
    ck_assert_int_gt(fewer, 50);
}
END_TEST

START_TEST(a_member_that_never_comes_is_in_the_blocked_set)
{
    struct hybrid h = {.tensor = 2,
                       .pipeline = 1,
                       .data = 1,
                       .microbatches = 1,
                       .layers = 1,
                       .ops = 2,
                       .forward_ns = 10,
                       .backward_ns = 20,
                       .update_ns = 5,
                       .meeting_elements = 8};
    struct hybrid_made *m = hybrid_make(arena, &h);
    struct procedure *f = &m->program.stages[1].procedures[0];
    f->n_instrs = 1; /* without its meetings */
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "blocked set: d0 at B0 (waits for group meeting)") != NULL, "%s",
                  err.text);
}
END_TEST

Suite *detail_suite(void)
{
    Suite *s = suite_create("sim/levels of detail");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, members_start_when_the_last_has_come_and_go_on_together);
    tcase_add_test(t, stage_and_operator_detail_agree_to_the_nanosecond);
    tcase_add_test(t, devices_that_do_the_same_are_simulated_once_without_a_difference);
    tcase_add_test(t, a_member_that_never_comes_is_in_the_blocked_set);
    suite_add_tcase(s, t);
    return s;
}
