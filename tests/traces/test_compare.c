/* Two traces joined span by span; expected values by hand. */
#include "traces/compare.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

static struct arena *a;
static struct error err;

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct trace *a_trace(const char *source, int64_t iteration_ns)
{
    static struct program_device devices[] = {{.name = "a.0", .type = "t"},
                                              {.name = "a.1", .type = "t"}};
    struct program p = {
        .name = "p", .plan_hash = 5, .n_devices = 2, .devices = devices, .n_stages = 1};
    struct trace *t = trace_new(a, source, &p);
    t->iteration_ns = iteration_ns;
    return t;
}

static void add(struct trace *t, const char *name, int32_t op, int32_t step, int64_t begin,
                int64_t length)
{
    trace_add(t, (struct span){.kind = SPAN_COMPUTE,
                               .peer = -1,
                               .phase = PHASE_F,
                               .step = step,
                               .op = op,
                               .begin_ns = begin,
                               .end_ns = begin + length,
                               .name = name});
}

static void add_send(struct trace *t, int32_t channel, int64_t length)
{
    trace_add(t, (struct span){.kind = SPAN_SEND,
                               .stream = STREAM_send,
                               .peer = 1,
                               .phase = PHASE_F,
                               .op = channel,
                               .end_ns = length,
                               .name = "lan"});
}

START_TEST(errors_are_relative_to_the_run)
{
    struct trace *sim = a_trace(TRACE_SIM, 90), *run = a_trace("host", 100);
    struct comparison c;
    /* the run's first step is excluded; the median of the others (90 110 100) is 100 */
    int64_t lengths[] = {1000, 90, 110, 100};
    for (int step = 0; step < 4; step++) {
        add(sim, "matmul", 0, step, step * 1000, 80);
        add(run, "matmul", 0, step, step * 5000, lengths[step]);
    }
    for (int op = 1; op <= 3; op++) { /* 30 40 50 against 40: errors −25 %, 0, +25 % */
        add(sim, "add", op, 1, 0, 20 + 10 * op);
        add(run, "add", op, 1, 0, 40);
    }
    ck_assert_msg(compare_traces(a, sim, run, &c, &err) == OK, "%s", err.text);
    ck_assert_double_eq_tol(c.iteration_error, 0.1, 1e-12);
    ck_assert_double_eq_tol(c.iteration_bias, -0.1, 1e-12);
    ck_assert_int_eq(c.sim_iteration_ns, 90);
    ck_assert_int_eq(c.joined, 4);
    ck_assert_int_eq(c.only_sim + c.only_run, 0);
    ck_assert_uint_eq(c.n_kinds, 2);
    ck_assert_str_eq(c.kinds[0].kind, "add"); /* 120 ns against 100 */
    ck_assert_int_eq(c.kinds[0].run_ns, 120);
    ck_assert_int_eq(c.kinds[0].sim_ns, 120);
    ck_assert_double_eq_tol(c.kinds[0].median, 0.25, 1e-12);
    ck_assert_double_eq_tol(c.kinds[0].p95, 0.25, 1e-12);
    ck_assert_double_eq_tol(c.kinds[0].bias, 0, 1e-12);
    ck_assert_str_eq(c.kinds[1].kind, "matmul");
    ck_assert_int_eq(c.kinds[1].joined, 1);
    ck_assert_int_eq(c.kinds[1].run_ns, 100);
    ck_assert_double_eq_tol(c.kinds[1].bias, -0.2, 1e-12);
    ck_assert_double_eq_tol(c.kinds[1].median, 0.2, 1e-12);
}
END_TEST

START_TEST(a_trace_compared_with_itself_has_no_error)
{
    struct trace *t = a_trace(TRACE_SIM, 100);
    struct comparison c;
    for (int i = 0; i < 500; i++) add(t, i % 3 ? "matmul" : "gelu", i % 50, i / 50, i, i % 17);
    for (int i = 0; i < 20; i++) add_send(t, i, 5);
    ck_assert_int_eq(compare_traces(a, t, t, &c, &err), OK);
    ck_assert_double_eq(c.iteration_error, 0);
    for (size_t i = 0; i < c.n_kinds; i++) {
        ck_assert_double_eq(c.kinds[i].median, 0);
        ck_assert_double_eq(c.kinds[i].p95, 0);
        ck_assert_int_eq(c.kinds[i].sim_ns, c.kinds[i].run_ns);
    }
    ck_assert_int_eq(c.only_sim + c.only_run, 0);
}
END_TEST

START_TEST(the_order_of_spans_changes_nothing)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 2),
                 *back = a_trace("host", 2);
    struct comparison c, d;
    for (int i = 0; i < 300; i++) {
        add(sim, i % 2 ? "add" : "bias", i % 30, i / 30, i, 10 + i % 7);
        add(run, i % 2 ? "add" : "bias", i % 30, i / 30, i, 10 + i % 11);
    }
    for (int i = 300; i-- > 0;) add(back, i % 2 ? "add" : "bias", i % 30, i / 30, i, 10 + i % 11);
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), OK);
    ck_assert_int_eq(compare_traces(a, sim, back, &d, &err), OK);
    ck_assert_uint_eq(c.n_kinds, d.n_kinds);
    for (size_t i = 0; i < c.n_kinds; i++) {
        ck_assert_str_eq(c.kinds[i].kind, d.kinds[i].kind);
        ck_assert_double_eq(c.kinds[i].median, d.kinds[i].median);
        ck_assert_double_eq(c.kinds[i].p95, d.kinds[i].p95);
        ck_assert_int_eq(c.kinds[i].run_ns, d.kinds[i].run_ns);
    }
}
END_TEST

START_TEST(spans_without_a_partner_are_counted)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 1);
    struct comparison c;
    add(sim, "add", 0, 0, 0, 5);
    add(sim, "add", 1, 0, 0, 5);
    add(sim, "add", 2, 0, 0, 5);
    add(run, "add", 2, 0, 0, 5);
    add_send(run, 2, 5); /* another stream */
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), OK);
    ck_assert_int_eq(c.only_sim, 2);
    ck_assert_int_eq(c.only_run, 1);
    ck_assert_int_eq(c.joined, 1);
}
END_TEST

START_TEST(a_span_of_no_length_has_no_relative_error)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 1);
    struct comparison c;
    add(sim, "add", 0, 0, 0, 5);
    add(run, "add", 0, 0, 0, 0);
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), OK);
    ck_assert_double_eq(c.kinds[0].median, 0);
    ck_assert_int_eq(c.kinds[0].sim_ns, 5);
}
END_TEST

START_TEST(collectives_are_told_apart_by_kind_and_from_sums)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 1);
    struct comparison c;
    for (int32_t k = 0; k <= COLLECTIVE_CALL_KINDS; k++) {
        struct span s = {.kind = SPAN_REDUCE,
                         .stream = STREAM_collective,
                         .peer = -1,
                         .phase = PHASE_F,
                         .op = k,
                         .collective = k,
                         .end_ns = 10 + k};
        trace_add(sim, s);
        s.end_ns *= 2;
        trace_add(run, s);
    }
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), OK);
    ck_assert_uint_eq(c.n_kinds, COLLECTIVE_CALL_KINDS + 1);
    for (int32_t k = 0; k <= COLLECTIVE_CALL_KINDS; k++) { /* the longest first */
        const struct compare_kind *x = &c.kinds[COLLECTIVE_CALL_KINDS - k];
        ck_assert_str_eq(x->kind,
                         k ? collective_kind_word((enum collective_kind)(k - 1)) : "reduce");
        ck_assert_int_eq(x->run_ns, 20 + 2 * k);
        ck_assert_double_eq(x->bias, -0.5);
    }
}
END_TEST

START_TEST(traces_of_different_plans_are_refused)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 1);
    struct comparison c;
    run->plan_hash = 6;
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "different plans"));
    run->plan_hash = 5;
    run->iteration_ns = 0;
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), ERR_INPUT);
}
END_TEST

START_TEST(many_spans_join_in_any_number_of_groups)
{
    struct trace *sim = a_trace(TRACE_SIM, 1), *run = a_trace("host", 1);
    struct comparison c;
    for (int i = 0; i < 20000; i++) {
        add(sim, "add", i, 0, i, 10);
        add(run, "add", 19999 - i, 0, i, 20);
    }
    ck_assert_int_eq(compare_traces(a, sim, run, &c, &err), OK);
    ck_assert_int_eq(c.joined, 20000);
    ck_assert_double_eq(c.kinds[0].bias, -0.5);
    ck_assert_int_eq(c.kinds[0].run_ns, 400000);
}
END_TEST

Suite *compare_suite(void)
{
    Suite *s = suite_create("compare");
    TCase *c = tcase_create("compare");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, errors_are_relative_to_the_run);
    tcase_add_test(c, a_trace_compared_with_itself_has_no_error);
    tcase_add_test(c, the_order_of_spans_changes_nothing);
    tcase_add_test(c, spans_without_a_partner_are_counted);
    tcase_add_test(c, a_span_of_no_length_has_no_relative_error);
    tcase_add_test(c, collectives_are_told_apart_by_kind_and_from_sums);
    tcase_add_test(c, traces_of_different_plans_are_refused);
    tcase_add_test(c, many_spans_join_in_any_number_of_groups);
    suite_add_tcase(s, c);
    return s;
}
