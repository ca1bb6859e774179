/* The static pass on pipelines with known times: HARP's published values, W1 and W1h, closed forms, memory, replicas. */
#include "core/base/arena.h"
#include "sim/pipeline/program.h"
#include "sim/pipeline/static.h"
#include "tests/support/harp.h"
#include "tests/support/schedules.h"
#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* A pipeline of n equal stages with fused backwards and transfers that occupy their links. */
static struct pipeline equal(int32_t n, int64_t f, int64_t b)
{
    struct pipeline p = {.n_devices = n, .n_stages = n};
    p.stages = ARENA_ARRAY(arena, struct pipeline_stage, (size_t)n);
    p.links = ARENA_ARRAY(arena, struct pipeline_link, (size_t)n);
    for (int32_t i = 0; i < n; i++)
        p.stages[i] = (struct pipeline_stage){.forward_ns = f, .fused_ns = b};
    return p;
}

static void occupy(struct pipeline *p, int32_t link, int64_t ns, int64_t latency)
{
    p->links[link] = (struct pipeline_link){{ns, ns}, {latency, latency}};
}

static struct static_timer *timer_of(const struct schedule *s)
{
    struct static_timer *t;
    struct error err = {0};
    ck_assert_msg(static_new(arena, s, &t, &err) == OK, "%s", err.text);
    return t;
}

static int64_t timed(const struct schedule *s, const struct pipeline *p)
{
    int64_t ns = -1;
    struct error err = {0};
    ck_assert_msg(pipeline_check(p, s, &err) == OK, "%s", err.text);
    ck_assert(static_time(timer_of(s), p, &ns));
    return ns;
}

/* The makespan of one step by the event loop; equals static_time if both apply. */
static enum status pipeline_simulate(struct arena *a, const struct schedule *s,
                                     const struct pipeline *p, enum link_sharing sharing,
                                     int64_t *makespan_ns, struct error *err)
{
    struct pipeline_program *x = ARENA_ARRAY(a, struct pipeline_program, 1);
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    TRY(pipeline_program(a, s, p, NULL, sharing, x, err));
    TRY(sim_run(a, &x->program, x->cost, &o, &r, err));
    *makespan_ns = r.makespan_ns;
    return OK;
}

static int64_t simulated(const struct schedule *s, const struct pipeline *p, enum link_sharing how)
{
    int64_t ns = -1;
    struct error err = {0};
    ck_assert_msg(pipeline_simulate(arena, s, p, how, &ns, &err) == OK, "%s", err.text);
    return ns;
}

static struct schedule warm(int32_t p, int32_t m, const int32_t *w)
{
    struct schedule_spec spec = {
        .kind = SCHEDULE_1F1B, .n_devices = p, .n_microbatches = m, .warmup = w};
    struct schedule s;
    struct error err = {0};
    ck_assert_msg(schedule_make(arena, &spec, &s, &err) == OK, "%s", err.text);
    return s;
}

/* --- HARP's goldens --- */

START_TEST(warm_up_counts_hide_occupied_links_as_worked_by_hand)
{
    const double unit = 1e6;
    for (size_t i = 0; i < sizeof harp_goldens / sizeof *harp_goldens; i++, arena_reset(arena)) {
        const struct harp_golden *g = &harp_goldens[i];
        struct pipeline p = equal(g->stages, (int64_t)(g->f * unit), (int64_t)(g->b * unit));
        for (int32_t l = 0; l + 1 < g->stages; l++)
            occupy(&p, l, (int64_t)(g->c[l] * unit + .5), 0);
        struct schedule s = warm(g->stages, g->microbatches, g->warmup);
        int64_t expected = (int64_t)(g->makespan * unit + .5);
        ck_assert_int_eq(timed(&s, &p), expected);
        ck_assert_int_eq(simulated(&s, &p, LINK_FIFO), expected);
    }
}
END_TEST

/* Four equal stages, 64 microbatches, f:b = 1:2, t = 3,000,000 ns, the middle link slow: makespans in t. */
static const struct {
    double c, makespan[4]; /* 1F1B, eager, published rule, ceil rule */
} slow_cuts[] = {
    {.05, {70.2, 67.1, 70.2, 67.1}}, {.1, {73.4, 67.2, 67.2, 67.2}},
    {.3, {86.2, 67.6, 67.6, 67.6}},  {.6, {105.4, 215.2 / 3, 68.2, 68.2}},
    {1, {131, 90, 69, 69}},          {2, {197, 137, 135, 135}},
};

START_TEST(a_slow_middle_cut_asks_for_more_microbatches_in_flight)
{
    static const enum schedule_kind kinds[] = {SCHEDULE_1F1B, SCHEDULE_EAGER,
                                               SCHEDULE_H1F1B_PUBLISHED, SCHEDULE_H1F1B};
    const double time[] = {1, 1, 1, 1};
    for (size_t i = 0; i < sizeof slow_cuts / sizeof *slow_cuts; i++)
        for (int k = 0; k < 4; k++, arena_reset(arena)) {
            const double transfer[] = {0, slow_cuts[i].c, 0};
            struct schedule_spec spec = {.kind = kinds[k],
                                         .n_devices = 4,
                                         .n_microbatches = 64,
                                         .time = time,
                                         .transfer = transfer};
            struct schedule s;
            struct error err = {0};
            ck_assert_int_eq(schedule_make(arena, &spec, &s, &err), OK);
            struct pipeline p = equal(4, 1000000, 2000000);
            occupy(&p, 1, (int64_t)(slow_cuts[i].c * 3e6 + .5), 0);
            int64_t expected = (int64_t)(slow_cuts[i].makespan[k] * 3e6 + .5);
            ck_assert_int_eq(timed(&s, &p), expected);
        }
}
END_TEST

/* --- W1 and W1h --- */

static struct pipeline w1(int32_t n, bool hetero)
{
    static const int64_t scale[] = {4, 5, 6, 8}; /* quarters */
    struct pipeline p = equal(n, 1000000, 2000000);
    for (int32_t s = 0; s < n; s++) {
        occupy(&p, s, 400000, 10000);
        if (!hetero) continue;
        p.stages[s].forward_ns = 250000 * scale[s % 4];
        p.stages[s].fused_ns = 500000 * scale[s % 4];
        if (s % 8 == 7) occupy(&p, s, 4000000, 50000);
    }
    return p;
}

START_TEST(w1_ends_to_the_nanosecond)
{
    static const struct {
        int32_t p, m;
        bool hetero;
        int64_t ns;
    } cases[] = {{4, 8, false, 39560000},       {64, 64, false, 483500000},
                 {64, 1024, false, 4138400000}, {4, 8, true, 61710000},
                 {64, 1024, true, 9102660000},  {64, 16384, false, 62616800000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, arena_reset(arena)) {
        struct schedule s = schedule_of(arena, SCHEDULE_1F1B, cases[i].p, 0, cases[i].m, false);
        struct pipeline p = w1(cases[i].p, cases[i].hetero);
        if (cases[i].m > 1024 && !suites_long()) continue;
        ck_assert_int_eq(timed(&s, &p), cases[i].ns);
        if (cases[i].m <= 1024) ck_assert_int_eq(simulated(&s, &p, LINK_FIFO), cases[i].ns);
    }
}
END_TEST

START_TEST(messages_of_one_pair_of_stages_leave_one_after_the_other_on_fair_links_too)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 8, 0, 32, false);
    struct pipeline p = w1(8, true);
    ck_assert_int_eq(simulated(&s, &p, LINK_FAIR), timed(&s, &p));
}
END_TEST

/* --- what is reported --- */

START_TEST(a_report_adds_up)
{
    /* Two devices, two microbatches, F 1, I 2, W 3, latency 1: by hand. */
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 2, 0, 2, true);
    struct pipeline p = equal(2, 1, 0);
    struct pipeline_device devices[] = {{100, 119}, {5, PIPELINE_NO_LIMIT}};
    p.devices = devices;
    for (int i = 0; i < 2; i++) {
        p.stages[i] = (struct pipeline_stage){1, 2, 3, 0, 10, -4, -6};
        occupy(&p, i, 0, 1);
    }
    struct static_report r;
    ck_assert(static_report(timer_of(&s), &p, arena, &r));
    /* Device 0: F0 F1 I0 W0 I1 W1; device 1: F0 I0 W0 F1 I1 W1. */
    static const int64_t begin[] = {0, 1, 6, 8, 12, 14, 2, 3, 5, 8, 9, 11};
    for (int i = 0; i < 12; i++) ck_assert_int_eq(r.spans[i].begin_ns, begin[i]);
    ck_assert_int_eq(r.makespan_ns, 17);
    ck_assert_int_eq(r.devices[0].busy_ns, 12);
    ck_assert_int_eq(r.devices[0].idle_ns, 5);
    ck_assert_int_eq(r.devices[0].peak_bytes, 120);
    ck_assert_int_eq(r.devices[0].peak_ns, 1);
    ck_assert(!r.devices[0].fits && !r.fits);
    ck_assert_int_eq(r.tightest, 0);
    ck_assert_int_eq(r.devices[1].begin_ns, 2);
    ck_assert_int_eq(r.devices[1].end_ns, 14);
    ck_assert_int_eq(r.devices[1].peak_bytes, 15);
    ck_assert_int_eq(r.devices[1].peak_ns, 2);
    ck_assert(r.devices[1].fits);
    ck_assert_int_eq(r.bubble_ns, 5);
    ck_assert_double_eq_tol(r.bubble_rate, 10. / 34, 1e-12);
    int64_t peak[2];
    ck_assert(!static_memory(timer_of(&s), &p, peak));
    ck_assert_int_eq(peak[0], 120);
    ck_assert_int_eq(peak[1], 15);
    devices[0].limit_bytes = 120;
    ck_assert(static_memory(timer_of(&s), &p, peak));
}
END_TEST

START_TEST(memory_may_peak_at_the_end_of_an_input_gradient)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 1, 0, 2, true);
    struct pipeline p = equal(1, 4, 0);
    p.stages[0] = (struct pipeline_stage){4, 5, 6, 0, 10, 3, -13};
    struct static_report r;
    ck_assert(static_report(timer_of(&s), &p, arena, &r));
    ck_assert_int_eq(r.devices[0].peak_bytes, 13);
    ck_assert_int_eq(r.devices[0].peak_ns, 9);
}
END_TEST

START_TEST(several_chunks_on_one_occupied_link_are_left_to_the_event_loop)
{
    for (int k = 0; k < SCHEDULE_KIND_COUNT; k++) {
        if (schedule_kind_chunks(k) == 1) continue;
        struct schedule s = schedule_of(arena, k, 4, 0, 8, true);
        struct pipeline p = equal(8, 10, 20);
        p.n_devices = 4;
        int64_t ns;
        for (int32_t v = 0; v < 8; v++)
            p.stages[v].input_ns = p.stages[v].weight_ns = 10, occupy(&p, v, 0, 3);
        ck_assert(static_time(timer_of(&s), &p, &ns)); /* latency never contends */
        ck_assert_int_eq(ns, simulated(&s, &p, LINK_FIFO));
        occupy(&p, 1, 1, 3);
        ck_assert(!static_time(timer_of(&s), &p, &ns));
        struct static_report r;
        ck_assert(!static_report(timer_of(&s), &p, arena, &r));
        ck_assert_int_ge(simulated(&s, &p, LINK_FIFO), 8 * 2 * 30);
    }
}
END_TEST

START_TEST(a_report_of_the_event_loop_has_the_same_form)
{
    for (int k = 0; k < SCHEDULE_KIND_COUNT; k++)
        for (int fair = 0; fair < 2; fair++, arena_reset(arena)) {
            struct schedule s = schedule_of(arena, k, 4, 0, 8, true);
            int32_t n = 4 * s.n_chunks;
            struct pipeline p = equal(n, 10, 0);
            struct static_report r;
            struct trace *trace;
            struct error err = {0};
            bool events;
            enum link_sharing how = fair ? LINK_FAIR : LINK_FIFO;
            p.n_devices = 4;
            for (int32_t v = 0; v < n; v++) {
                p.stages[v] = (struct pipeline_stage){10, 11, 9, 0, 5, -2, -3};
                occupy(&p, v, 4 + v, 3);
            }
            ck_assert_msg(pipeline_report(arena, &s, &p, how, &r, &events, NULL, &err) == OK, "%s",
                          err.text);
            ck_assert_int_eq(events, fair || s.n_chunks > 1);
            ck_assert_int_eq(r.makespan_ns, simulated(&s, &p, how));
            const struct static_span *x = r.spans;
            for (int32_t d = 0; d < 4; d++) {
                ck_assert_int_eq(r.devices[d].busy_ns, 8 * s.n_chunks * 30);
                ck_assert_int_ge(r.devices[d].peak_bytes, 5);
                for (int64_t i = 0; i < s.lanes[d].n_ops; i++, x++) {
                    enum phase phase = s.lanes[d].ops[i].phase;
                    ck_assert_int_eq(x->end_ns - x->begin_ns, phase == PHASE_F   ? 10
                                                              : phase == PHASE_I ? 11
                                                                                 : 9);
                    if (i) ck_assert_int_ge(x->begin_ns, x[-1].end_ns);
                }
            }
            struct static_report again;
            ck_assert_int_eq(pipeline_report(arena, &s, &p, how, &again, &events, &trace, &err),
                             OK);
            ck_assert(trace != NULL && trace->n_spans > 0);
            ck_assert_int_eq(again.makespan_ns, r.makespan_ns);
        }
}
END_TEST

START_TEST(updates_follow_the_last_operation)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 2, 0, 3, false);
    struct pipeline p = equal(2, 1000, 2000);
    struct pipeline_program x;
    struct sim_options o = {.steps = 1};
    struct sim_result r;
    struct error err = {0};
    const int64_t update[] = {500, 5000};
    ck_assert_int_eq(pipeline_program(arena, &s, &p, update, LINK_FIFO, &x, &err), OK);
    ck_assert_int_eq(sim_run(arena, &x.program, x.cost, &o, &r, &err), OK);
    ck_assert_int_eq(r.makespan_ns, 10000 + 5000); /* stage 1 ends at 10,000, stage 0 at 12,000 */
}
END_TEST

START_TEST(two_latencies_on_one_occupied_link_have_no_program)
{
    struct schedule s = schedule_of(arena, SCHEDULE_INTERLEAVED, 2, 2, 2, false);
    struct pipeline p = equal(4, 1, 2);
    struct error err = {0};
    int64_t ns;
    p.n_devices = 2;
    occupy(&p, 0, 5, 1), occupy(&p, 2, 5, 2);
    ck_assert_int_eq(pipeline_simulate(arena, &s, &p, LINK_FIFO, &ns, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "share a link with two latencies: 1 ns and 2 ns") != NULL, "%s",
                  err.text);
    struct schedule mixed = schedule_of(arena, SCHEDULE_1F1B, 1, 0, 2, true);
    struct schedule_lane *l = &mixed.lanes[0];
    struct pipeline one = equal(1, 1, 2);
    l->ops[1].phase = PHASE_B;
    memmove(l->ops + 2, l->ops + 3, 3 * sizeof *l->ops), l->n_ops--;
    ck_assert(static_time(timer_of(&mixed), &one, &ns));
    ck_assert_int_eq(ns, 1 + 2 + 1);
    ck_assert_int_eq(pipeline_simulate(arena, &mixed, &one, LINK_FIFO, &ns, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "B for 1 of 2 microbatches"));
}
END_TEST

START_TEST(the_turn_of_a_v_is_free_whatever_its_link_says)
{
    struct schedule s = schedule_of(arena, SCHEDULE_ZB_V, 1, 0, 4, true);
    struct pipeline p = equal(2, 1, 0);
    p.n_devices = 1;
    for (int v = 0; v < 2; v++) p.stages[v].input_ns = p.stages[v].weight_ns = 1;
    occupy(&p, 0, 1000, 1000);
    ck_assert_int_eq(timed(&s, &p), 24);
}
END_TEST

START_TEST(prices_that_do_not_fit_are_refused)
{
    struct schedule s = schedule_of(arena, SCHEDULE_1F1B, 2, 0, 2, false);
    struct pipeline p = equal(3, 1, 2);
    struct error err = {0};
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(
        strstr(err.text, "a pipeline of 3 devices and 3 stages cannot follow a schedule of 2"));
    p = equal(2, 1, 2);
    p.stages[1].forward_ns = -1;
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "stage 1: forward of -1 ns"));
    p = equal(2, 1, INT64_MAX);
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "stage 0: backward of"));
    p = equal(2, 1, 2);
    occupy(&p, 0, 0, -7);
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "link 0: latency of -7 ns"));
    /* sums stay inside int64, those of memory too */
    s.n_microbatches = 1000000;
    p = equal(2, 1, PIPELINE_MAX_NS);
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "nanoseconds of all 1000000 microbatches add up to"));
    p = equal(2, 1, 2);
    p.stages[1].forward_bytes = (int64_t)1e13, p.stages[1].input_bytes = -(int64_t)1e13;
    ck_assert_int_eq(pipeline_check(&p, &s, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "bytes of a device of all 1000000 microbatches add up to"));
    s.n_microbatches = 2;
    p = equal(2, 1, 2);
    p.stages[0] = (struct pipeline_stage){1, 1, 1, 0, 5, -4, 0};
    int64_t ns;
    ck_assert_int_eq(pipeline_simulate(arena, &s, &p, LINK_FIFO, &ns, &err), ERR_INPUT);
    ck_assert_msg(strstr(err.text, "stage 0: F, I and W change memory by 5, -4 and 0 bytes"), "%s",
                  err.text);
    struct schedule bad = s;
    bad.lanes[0].n_ops--;
    struct static_timer *t;
    ck_assert_int_eq(static_new(arena, &bad, &t, &err), ERR_INPUT);
    ck_assert(strstr(err.text, "is missing"));
}
END_TEST

Suite *static_suite(void)
{
    Suite *s = suite_create("sim/pipeline/static");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, warm_up_counts_hide_occupied_links_as_worked_by_hand);
    tcase_add_test(t, a_slow_middle_cut_asks_for_more_microbatches_in_flight);
    tcase_add_test(t, w1_ends_to_the_nanosecond);
    tcase_add_test(t, messages_of_one_pair_of_stages_leave_one_after_the_other_on_fair_links_too);
    tcase_add_test(t, a_report_adds_up);
    tcase_add_test(t, memory_may_peak_at_the_end_of_an_input_gradient);
    tcase_add_test(t, several_chunks_on_one_occupied_link_are_left_to_the_event_loop);
    tcase_add_test(t, a_report_of_the_event_loop_has_the_same_form);
    tcase_add_test(t, updates_follow_the_last_operation);
    tcase_add_test(t, two_latencies_on_one_occupied_link_have_no_program);
    tcase_add_test(t, the_turn_of_a_v_is_free_whatever_its_link_says);
    tcase_add_test(t, prices_that_do_not_fit_are_refused);
    suite_add_tcase(s, t);
    return s;
}
