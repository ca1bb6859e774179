/* Breakdown of an iteration, by hand and as a property; quantiles. */
#include "traces/stats.h"

#include "core/base/arena.h"
#include "core/base/rng.h"
#include "tests/support/suites.h"
#include "traces/quantile.h"

static struct arena *a;

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static struct trace *a_trace(void)
{
    static struct program_device devices[] = {{.name = "a.0", .type = "t"},
                                              {.name = "a.1", .type = "t"}};
    struct program p = {.name = "p", .n_devices = 2, .devices = devices, .n_stages = 2};
    return trace_new(a, TRACE_SIM, &p);
}

static struct span a_span(enum span_kind kind, enum stream stream, int32_t device, enum phase phase,
                          int32_t step, int64_t begin, int64_t end)
{
    return (struct span){.kind = kind,
                         .stream = stream,
                         .device = device,
                         .peer = -1,
                         .stage = device,
                         .phase = phase,
                         .step = step,
                         .begin_ns = begin,
                         .end_ns = end,
                         .name = "x"};
}

/* Window 100 … 200. Device 1 computes 110-130 and 150-200 (an update from 190), a message is in flight 95-110, a
 * collective runs 105-145: idle 100-110 (message) and 130-150 (130-145 collective, 145-150 nothing). */
START_TEST(the_statistics_say_where_an_iteration_went)
{
    struct trace *t = a_trace();
    struct stats s;
    trace_add(t, a_span(SPAN_COMPUTE, STREAM_compute, 1, 'U', 0, 90, 100));
    trace_add(t, a_span(SPAN_COMPUTE, STREAM_compute, 1, 'F', 1, 110, 130));
    trace_add(t, a_span(SPAN_COMPUTE, STREAM_compute, 1, 'B', 1, 150, 190));
    trace_add(t, a_span(SPAN_COMPUTE, STREAM_compute, 1, 'U', 1, 190, 200));
    trace_add(t, a_span(SPAN_SEND, STREAM_send, 0, 'F', 1, 95, 100));
    trace_add(t, a_span(SPAN_RECEIVE, STREAM_receive, 1, 'F', 1, 95, 110));
    trace_add(t, a_span(SPAN_REDUCE, STREAM_collective, 1, 'U', 1, 105, 145));
    stats_of_trace(a, t, &s);
    ck_assert_int_eq(s.begin_ns, 100);
    ck_assert_int_eq(s.end_ns, 200);
    const struct stats_device *d = &s.devices[1];
    ck_assert_int_eq(d->busy_ns, 70);
    ck_assert_int_eq(d->idle_ns, 30);
    ck_assert_int_eq(d->phase_ns[STATS_F], 20);
    ck_assert_int_eq(d->phase_ns[STATS_B], 40);
    ck_assert_int_eq(d->phase_ns[STATS_U], 10);
    ck_assert_int_eq(d->receive_ns, 10);
    ck_assert_int_eq(d->collective_ns, 40);
    ck_assert_int_eq(d->idle_message_ns, 10);
    ck_assert_int_eq(d->idle_collective_ns, 15);
    ck_assert_int_eq(d->bubble_ns, 5);
    ck_assert_int_eq(s.devices[0].busy_ns, 0);
    ck_assert_int_eq(s.devices[0].bubble_ns, 100);
    ck_assert_int_eq(s.devices[0].send_ns, 0); /* it had left when the window opened */
}
END_TEST

START_TEST(the_parts_of_an_iteration_add_up)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct trace *t = a_trace();
        struct stats s;
        for (uint64_t i = 0; i < 60; i++) {
            enum stream stream = (enum stream)rng_below(seed, 0, i, STREAM_step);
            int64_t begin = (int64_t)rng_below(seed, 1, i, 1000),
                    length = (int64_t)rng_below(seed, 2, i, 200);
            trace_add(t,
                      a_span(stream == STREAM_compute ? SPAN_COMPUTE : SPAN_SEND, stream,
                             (int32_t)rng_below(seed, 3, i, 2), "FBIWU"[rng_below(seed, 4, i, 5)],
                             (int32_t)rng_below(seed, 5, i, 4), begin, begin + length));
        }
        stats_of_trace(a, t, &s);
        for (int32_t d = 0; d < 2; d++) {
            const struct stats_device *x = &s.devices[d];
            ck_assert_int_eq(x->busy_ns + x->idle_ns, s.end_ns - s.begin_ns);
            ck_assert_int_eq(x->idle_message_ns + x->idle_collective_ns + x->bubble_ns, x->idle_ns);
            ck_assert(x->idle_message_ns >= 0 && x->idle_collective_ns >= 0 && x->bubble_ns >= 0);
        }
    }
}
END_TEST

START_TEST(quantiles_are_of_nearest_rank_and_medians_of_the_middle)
{
    double v[] = {5, 1, 4, 2, 3}, w[20];
    int64_t n[] = {4, 1, 3, 2};
    for (int i = 0; i < 20; i++) w[i] = 20 - i;
    ck_assert_double_eq(quantile_median_double(v, 5), 3);
    ck_assert_double_eq(quantile_median_double(v, 4), 2.5); /* sorted by now: 1 2 3 4 */
    ck_assert_double_eq(quantile(w, 20, 0.95), 19);
    ck_assert_double_eq(quantile(w, 1, 0.95), 1);
    ck_assert_int_eq(quantile_median_ns(n, 4), 2);
    ck_assert_int_eq(quantile_median_ns(n, 0), 0);
}
END_TEST

Suite *stats_suite(void)
{
    Suite *s = suite_create("stats");
    TCase *c = tcase_create("stats");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_statistics_say_where_an_iteration_went);
    tcase_add_test(c, the_parts_of_an_iteration_add_up);
    tcase_add_test(c, quantiles_are_of_nearest_rank_and_medians_of_the_middle);
    suite_add_tcase(s, c);
    return s;
}
