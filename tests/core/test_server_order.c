/* A parameter server's order of pushes and pulls (core/program/server_order.h), against the definitions of SSP and of staleness. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/program/server_order.h"

#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { STEPS = 60, N_MAX = 5 };

/* What a reader of the papers keeps himself. */
struct seen {
    int64_t began[N_MAX], finished[N_MAX]; /* steps */
    int64_t updates, pulled[N_MAX], gap;   /* gap: the largest lead of a worker that began a step over the slowest */
    int64_t staleness, dropped;
};

static int64_t least(const int64_t *x, int32_t n)
{
    int64_t y = x[0];
    for (int32_t i = 1; i < n; i++) y = x[i] < y ? x[i] : y;
    return y;
}

/* Workers that have pulled push at random moments. */
static struct seen play(const struct parameter_server *rule, int32_t n, uint64_t seed)
{
    struct server_order o;
    struct seen s = {0};
    bool running[N_MAX] = {0};
    uint64_t draws = 0;
    server_order_start(&o, arena, rule, n);
    o.end = STEPS;
    for (int32_t i = 0; i < n; i++) running[i] = true, s.began[i] = 1;
    for (;;) {
        struct server_turn t = server_order_next(&o);
        if (t.action == SERVER_DONE) break;
        if (t.action == SERVER_WAIT) {
            int32_t w = (int32_t)rng_below(seed, 1, draws++, (uint64_t)n);
            ck_assert_int_eq(running[w], server_order_expects(&o, w));
            if (!running[w] || rng_below(seed, 2, draws++, 8) < (uint64_t)w) continue; /* later ones are slower */
            running[w] = false;
            server_order_arrived(&o, w);
        } else if (t.action == SERVER_REPLY) {
            ck_assert_int_eq(t.step, s.finished[t.worker] - 1);
            int64_t step = s.finished[t.worker]; /* begun now, counted from 0 */
            if (rule->mode == SERVER_SSP) ck_assert_int_ge(least(s.finished, n), step - rule->bound);
            if (step - least(s.finished, n) > s.gap) s.gap = step - least(s.finished, n);
            s.pulled[t.worker] = s.updates;
            s.began[t.worker]++;
            running[t.worker] = step < STEPS;
        } else {
            ck_assert_int_eq(t.step, s.finished[t.worker]);
            ck_assert_int_eq(t.staleness, s.updates - s.pulled[t.worker]);
            bool drops = rule->drop_above >= 0 && t.staleness > rule->drop_above;
            ck_assert_int_eq(t.action, drops ? SERVER_DROP : SERVER_APPLY);
            ck_assert_double_eq(t.rate, rule->rate == SERVER_INVERSE ? 1.0 / (double)(t.staleness + 1) : 1);
            s.updates += !drops, s.dropped += drops, s.staleness += t.staleness;
            s.finished[t.worker]++;
        }
    }
    for (int32_t i = 0; i < n; i++) ck_assert_int_eq(s.finished[i], STEPS);
    ck_assert_int_eq(o.counts.pushes, n * STEPS);
    ck_assert_int_eq(o.counts.dropped, s.dropped);
    ck_assert_int_eq(o.counts.staleness, s.staleness);
    ck_assert_int_eq(o.version, s.updates);
    return s;
}

START_TEST(no_worker_begins_a_step_too_far_in_front)
{
    for (int32_t bound = 1; bound < 6; bound++) {
        int64_t gap = 0;
        for (uint64_t seed = 0; seed < 20; seed++) {
            struct parameter_server rule = {1, SERVER_SSP, bound, SERVER_CONSTANT, -1};
            struct seen s = play(&rule, N_MAX, seed);
            gap = s.gap > gap ? s.gap : gap;
        }
        ck_assert_int_eq(gap, bound); /* and the bound is used */
    }
}
END_TEST

START_TEST(asynchronous_workers_do_not_wait)
{
    struct parameter_server rule = {1, SERVER_ASP, 0, SERVER_CONSTANT, -1};
    ck_assert_int_gt(play(&rule, N_MAX, 3).gap, 6);
    ck_assert_int_eq(play(&rule, 1, 3).staleness, 0);
}
END_TEST

START_TEST(stale_gradients_are_slowed_or_dropped)
{
    for (int32_t above = 0; above < 6; above += 2) {
        struct parameter_server rule = {1, SERVER_ASP, 0, SERVER_INVERSE, above};
        ck_assert_int_gt(play(&rule, N_MAX, 5).dropped, 0);
    }
}
END_TEST

START_TEST(the_slowest_pulls_first)
{
    struct parameter_server rule = {1, SERVER_SSP, 1, SERVER_CONSTANT, -1};
    struct server_order o;
    server_order_start(&o, arena, &rule, 2);
    o.end = 10;
    for (int64_t step = 0; step < 2; step++) { /* worker 0 runs until the bound */
        server_order_arrived(&o, 0);
        ck_assert_int_eq(server_order_next(&o).action, SERVER_APPLY);
        struct server_turn t = server_order_next(&o);
        ck_assert_int_eq(t.action, step < 1 ? SERVER_REPLY : SERVER_WAIT);
    }
    server_order_arrived(&o, 1);
    struct server_turn t = server_order_next(&o);
    ck_assert(t.action == SERVER_APPLY && t.worker == 1 && t.staleness == 2);
    for (int32_t i = 1; i >= 0; i--) {
        t = server_order_next(&o);
        ck_assert(t.action == SERVER_REPLY && t.worker == i);
    }
    ck_assert_int_eq(server_order_next(&o).action, SERVER_WAIT);
}
END_TEST

START_TEST(a_worker_that_is_gone_delays_no_other)
{
    struct parameter_server rule = {1, SERVER_SSP, 1, SERVER_CONSTANT, -1};
    struct server_order o;
    server_order_start(&o, arena, &rule, 2);
    o.end = 3;
    for (int64_t step = 0; step < 2; step++) {
        server_order_arrived(&o, 0);
        ck_assert_int_eq(server_order_next(&o).action, SERVER_APPLY);
        if (!step) ck_assert_int_eq(server_order_next(&o).action, SERVER_REPLY);
    }
    ck_assert_int_eq(server_order_next(&o).action, SERVER_WAIT);
    server_order_gone(&o, 1);
    ck_assert(!server_order_expects(&o, 1));
    ck_assert_int_eq(server_order_next(&o).action, SERVER_REPLY);
    server_order_arrived(&o, 0);
    ck_assert_int_eq(server_order_next(&o).action, SERVER_APPLY);
    ck_assert_int_eq(server_order_next(&o).action, SERVER_REPLY);
    ck_assert_int_eq(server_order_next(&o).action, SERVER_DONE);
}
END_TEST

START_TEST(an_iteration_is_the_time_of_a_steps_samples)
{
    enum { N = 3, S = 40 };
    static const int64_t step_ns[N] = {1000, 2000, 5000};
    static const int32_t microbatches[N] = {4, 2, 1};
    int64_t ends[N * S];
    for (int32_t w = 0; w < N; w++)
        for (int32_t s = 0; s < S; s++) ends[w * S + s] = 777 * w + (s + 1) * step_ns[w];
    ck_assert_int_eq(server_order_iteration_ns(ends, microbatches, N, S), 1346); /* 7 / (4/1000 + 2/2000 + 1/5000) */
    ck_assert_int_eq(server_order_iteration_ns(ends, microbatches, 1, S), 1000);
    ck_assert_int_eq(server_order_iteration_ns(ends, microbatches, 1, 1), 1000);
}
END_TEST

Suite *server_order_suite(void)
{
    Suite *s = suite_create("server_order");
    TCase *t = tcase_create("server_order");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, no_worker_begins_a_step_too_far_in_front);
    tcase_add_test(t, asynchronous_workers_do_not_wait);
    tcase_add_test(t, stale_gradients_are_slowed_or_dropped);
    tcase_add_test(t, the_slowest_pulls_first);
    tcase_add_test(t, a_worker_that_is_gone_delays_no_other);
    tcase_add_test(t, an_iteration_is_the_time_of_a_steps_samples);
    suite_add_tcase(s, t);
    return s;
}
