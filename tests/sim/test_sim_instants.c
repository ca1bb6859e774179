/* Very long pipelines, very many events at one instant, very many steps, and factors that are none: it ends, within a second of CPU time. */
#include "tests/support/cpu_limit.h"
#include "tests/support/pipeline_workload.h"
#include "tests/support/pipelines.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void setup_limited(void) { setup(), cpu_limit(); }
static void teardown(void) { arena_free(arena); }

static const struct {
    const char *name;
    double factor;
    int what; /* device, link, kind */
} scales[] = {
    {"a negative factor on a device", -1, 0},
    {"a factor on a device that is no number", NAN, 0},
    {"an infinite factor on a device", INFINITY, 0},
    {"a negative factor on a link", -0.5, 1},
    {"a factor on a link that is no number", NAN, 1},
    {"an infinite factor on a link", INFINITY, 1},
    {"a negative factor on a kind", -1e-9, 2},
    {"an infinite factor on a kind", INFINITY, 2},
};
enum { N_SCALES = sizeof scales / sizeof *scales };

START_TEST(a_factor_that_is_none_is_refused)
{
    struct pipes in = {.n_stages = 2, .microbatches = 2};
    for (int32_t s = 0; s < 2; s++)
        in.forward_ns[s] = 10, in.backward_ns[s] = 20, in.transfer_ns[s] = 5, in.latency_ns[s] = 3;
    struct pipes_made *m = pipes_make(arena, &in);
    double f[OP_KIND_COUNT];
    for (int i = 0; i < OP_KIND_COUNT; i++) f[i] = scales[_i].factor;
    struct sim_scale scale = {.device = scales[_i].what == 0 ? f : NULL,
                              .link = scales[_i].what == 1 ? f : NULL,
                              .kind = scales[_i].what == 2 ? f : NULL};
    struct sim_options o = {.steps = 1, .scale = &scale};
    struct sim_result r;
    struct error err = {0};
    ck_assert_msg(sim_run(arena, &m->program, m->cost, &o, &r, &err) == ERR_INPUT, "%s",
                  scales[_i].name);
    ck_assert_msg(strstr(err.text, "gives no duration") != NULL, "%s", err.text);
}
END_TEST

/* All forwards, then all backwards, coded as two runs: as many as one likes. */
static struct pipes_made *of_no_length(int32_t n_stages, int32_t microbatches)
{
    struct pipes in = {.n_stages = n_stages, .microbatches = 1};
    struct pipes_made *m = pipes_make(arena, &in);
    for (int32_t s = 0; s < n_stages; s++) {
        struct order *o = &m->program.orders[s];
        *o = (struct order){.n_runs = 3, .runs = ARENA_ARRAY(arena, struct order_run, 3)};
        for (int32_t i = 0; i < 3; i++) {
            o->runs[i] =
                (struct order_run){i < 2 ? microbatches : 1, 1, ARENA_ARRAY(arena, struct call, 1)};
            o->runs[i].calls[0] = (struct call){i, i < 2 ? 0 : -1, 0};
        }
        m->program.stages[s].microbatches = microbatches;
    }
    return m;
}

START_TEST(a_million_messages_at_one_instant_are_simulated)
{
    struct pipes_made *m = of_no_length(2, 500000);
    struct sim_result r = pipes_run(m, 1, false);
    ck_assert_int_eq(r.makespan_ns, 0);
    ck_assert_int_eq(r.events, 1000000);
}
END_TEST

START_TEST(a_million_operators_of_no_length_are_simulated)
{
    struct sim_result r = pipes_run(of_no_length(1, 500000), 1, false);
    ck_assert_int_eq(r.makespan_ns, 0);
    ck_assert_int_eq(r.operators, 1000001);
}
END_TEST

START_TEST(the_last_of_half_a_million_that_is_missing_is_named)
{
    struct pipes_made *m = of_no_length(2, 500000);
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    m->program.orders[0].runs[0].repeat--;
    ck_assert_int_eq(sim_run(arena, &m->program, m->cost, &o, &r, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "d1 at F499999 (waits for activation 499999 from d0)"), "%s",
                  err.text);
}
END_TEST

START_TEST(a_program_without_calls_takes_no_time)
{
    struct pipes in = {.n_stages = 3, .microbatches = 2};
    struct pipes_made *m = pipes_make(arena, &in);
    for (int32_t s = 0; s < 3; s++) m->program.orders[s] = (struct order){0};
    struct sim_result r = pipes_run(m, 5, true);
    ck_assert_int_eq(r.makespan_ns, 0);
    ck_assert_int_eq(r.operators, 0);
}
END_TEST

START_TEST(more_steps_than_anybody_wants_end_where_they_repeat)
{
    struct pipes in = {.n_stages = 3, .microbatches = 2};
    for (int32_t s = 0; s < 3; s++) in.forward_ns[s] = 10, in.backward_ns[s] = 20;
    struct sim_result r = pipes_run(pipes_make(arena, &in), 1000000, false);
    ck_assert_int_eq(r.makespan_ns, INT64_C(1000000) * r.iteration_ns);
    ck_assert_int_lt(r.steps, 10);
}
END_TEST

START_TEST(long_pipelines_end_when_they_are_known_to)
{
    struct pipes_made *m = pipeline_workload_make(arena, w1_known[_i].stages,
                                                  w1_known[_i].microbatches, w1_known[_i].mixed);
    ck_assert_int_eq(pipes_run(m, 1, false).makespan_ns, w1_known[_i].makespan_ns);
}
END_TEST

/* Messages beside one another on a link, at equal rates: another makespan than in line (w1_known), and a known one. */
START_TEST(fluid_links_of_the_mixed_pipeline_give_the_known_makespan)
{
    struct pipes_made *m = pipeline_workload_make(arena, 64, 1024, true);
    for (int32_t i = 0; i < m->program.n_links; i++) m->program.links[i].sharing = LINK_FLUID;
    for (int32_t i = 0; i < m->program.n_stages; i++)
        for (int32_t r = 0; r < m->program.stages[i].n_buffer_rings; r++)
            m->program.stages[i].buffer_rings[r].count = PIPES_UNBOUND;
    for (int32_t i = 0; i < m->program.n_channels; i++)
        m->program.channels[i].receive_ahead = PIPES_UNBOUND;
    ck_assert_int_eq(pipes_run(m, 1, false).makespan_ns, INT64_C(9143473284));
}
END_TEST

Suite *sim_instants_suite(void)
{
    Suite *s = suite_create("sim/engine/sim, many at once");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup_limited, teardown);
    tcase_add_loop_test(t, a_factor_that_is_none_is_refused, 0, N_SCALES);
    tcase_add_test(t, a_million_messages_at_one_instant_are_simulated);
    tcase_add_test(t, a_million_operators_of_no_length_are_simulated);
    tcase_add_test(t, the_last_of_half_a_million_that_is_missing_is_named);
    tcase_add_test(t, a_program_without_calls_takes_no_time);
    tcase_add_test(t, more_steps_than_anybody_wants_end_where_they_repeat);
    tcase_add_test(t, fluid_links_of_the_mixed_pipeline_give_the_known_makespan);
    suite_add_tcase(s, t);
    t = tcase_create("long");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_loop_test(t, long_pipelines_end_when_they_are_known_to, 0, W1_KNOWN);
    suite_add_tcase(s, t);
    return s;
}
