#include "core/base/arena.h"
#include "exec/straggler_team.h"

#include <check.h>
#include <math.h>

/* A step of n values; returns in which of them, from 1, a change was reported; 0: none. */
static int feed(struct straggler_series *s, double value, int n)
{
    int at = 0;
    for (int i = 1; i <= n; i++)
        if (straggler_add(s, value, 0, 0) && !at) at = i;
    return at;
}

START_TEST(slow_device_is_named_and_recovers)
{
    struct straggler_series s = {0};
    ck_assert_int_eq(feed(&s, 10, 100), 0);
    ck_assert_int_eq(feed(&s, 20, 100), STRAGGLER_WINDOW); /* once */
    ck_assert_double_eq_tol(s.level, 2, 1e-12);
    ck_assert_int_eq(feed(&s, 10, 100), STRAGGLER_WINDOW);
    ck_assert_double_eq_tol(s.level, 1, 1e-12);
    ck_assert_int_eq(feed(&s, 5, 100), STRAGGLER_WINDOW); /* faster than at first */
}
END_TEST

START_TEST(some_slow_steps_are_not_reported)
{
    struct straggler_series s = {0};
    ck_assert_int_eq(feed(&s, 10, 50), 0);
    for (int k = 0; k < 200; k++) {
        ck_assert_int_eq(feed(&s, 1000, STRAGGLER_WINDOW - 1), 0);
        ck_assert_int_eq(feed(&s, 10, 1), 0);
    }
    ck_assert_int_eq(feed(&s, 10 * STRAGGLER_FACTOR * 0.999, 1000), 0);
    ck_assert_int_eq(feed(&s, 10 / STRAGGLER_FACTOR * 1.001, 1000), 0);
}
END_TEST

/* Ten steps of 50 ms are half a second. */
START_TEST(wall_times_must_last)
{
    struct straggler_series s = {0};
    int64_t ns = 0;
    for (int i = 0; i < 50; i++) ck_assert(!straggler_add(&s, 10, ns += 50000000, STRAGGLER_NS));
    for (int i = 0; i < 10; i++) ck_assert(!straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
    ck_assert(!straggler_add(&s, 10, ns += 50000000, STRAGGLER_NS));
    for (int i = 0; i < 20; i++) ck_assert(!straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
    ck_assert(straggler_add(&s, 40, ns += 50000000, STRAGGLER_NS));
}
END_TEST

START_TEST(base_is_a_median)
{
    struct straggler_series s = {0};
    for (int i = 0; i < STRAGGLER_BASE; i++) ck_assert(!straggler_add(&s, i < 3 ? 1000 : 10, 0, 0));
    ck_assert_double_eq_tol(s.base, 10, 1e-12);
}
END_TEST

/* Uniform noise of half the factor in each direction: none of a million steps is reported. */
START_TEST(noise_is_not_reported)
{
    struct straggler_series s = {0};
    uint64_t state = 1;
    for (int i = 0; i < 1000000; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        double noise = (double)(state >> 40) / (double)(1 << 24) - 0.5;
        ck_assert(!straggler_add(&s, 100 * (1 + (STRAGGLER_FACTOR - 1) * noise), 0, 0));
    }
}
END_TEST

/* What a rank adds up: operators of a step together, messages by byte and peer, the first step left out. */
START_TEST(ranks_report)
{
    struct arena *a = arena_new();
    struct program p = {.n_devices = 3, .emulated = true};
    struct straggler_table *t = ARENA_ARRAY(a, struct straggler_table, 1);
    struct straggler_watch *w = straggler_open(a, &p, 1, t);
    ck_assert_ptr_null(straggler_open(a, &p, 1, NULL));
    straggler_operator(NULL, 3, 5);
    straggler_inputs(NULL, 3, 5);
    straggler_ended(NULL, 3);
    straggler_message(NULL, 2, 3, 5, 5);
    for (int64_t step = 0; step < 60; step++) {
        int64_t slow = step >= 30 ? 2 : 1, link = step >= 40 ? 10 : 1;
        for (int i = 0; i < 7; i++) straggler_operator(w, step, step ? 100 * slow : 100000);
        straggler_inputs(w, step + 1, step + 1); /* in front of the operators */
        straggler_inputs(w, step + 1, step + 1);
        straggler_message(w, 0, step, 1000 * (step % 3 + 1), 500 * (step % 3 + 1)); /* sizes differ */
        straggler_message(w, 2, step, 4000, 800 * link);
        ck_assert_int_eq(atomic_load(&t->ranks[1].step), step);
    }
    ck_assert_int_eq(atomic_load(&t->ranks[1].ended), 59);
    straggler_ended(w, 59);
    ck_assert_int_eq(atomic_load(&t->ranks[1].ended), 60);
    for (int64_t step = 1; step < 60; step++) {
        const struct straggler_row *row = &t->ranks[1].rows[step];
        ck_assert_double_eq(row->operators_ns, step >= 30 ? 1400 : 700);
        ck_assert_double_eq(row->inputs_ns, 2 * (double)step);
        ck_assert_int_eq(row->step, step);
    }
    ck_assert_int_eq(atomic_load(&t->ranks[1].link_ppm), 10000000);
    ck_assert_int_eq(atomic_load(&t->ranks[1].link_step), 40 + STRAGGLER_WINDOW);
    ck_assert_int_eq(atomic_load(&t->ranks[1].peer), 2);
    for (int i = 0; i < 3; i++)
        if (i != 1) ck_assert_int_eq(atomic_load(&t->ranks[i].ended) + atomic_load(&t->ranks[i].step), 0);
    arena_free(a);
}
END_TEST

/* ---- a team: operators of 10 ms a step, times factors ---- */

#define MS 1e6
enum { TEAM = 6 };
struct fixture {
    struct arena *a;
    struct straggler_team t;
    int64_t now_ns;
    uint64_t noise; /* state; 0: none */
};

static void begin(struct fixture *f, int32_t n, const int32_t *node, const int32_t *type)
{
    *f = (struct fixture){.a = arena_new()};
    straggler_team_open(&f->t, f->a, n, node[n - 1] + 1, true);
    for (int32_t i = 0; i < n; i++) f->t.members[i].node = node[i], f->t.members[i].type = type[i];
}

static double noisy(struct fixture *f)
{
    if (!f->noise) return 1;
    f->noise = f->noise * 6364136223846793005u + 1442695040888963407u;
    return 0.9 + 0.2 * ((double)(f->noise >> 40) / (double)(1 << 24));
}

/* Steps of 200 ms of these factors; bit i: device i was slower or starved. */
static int steps(struct fixture *f, int n, const double *factor, double inputs_ms)
{
    int seen = 0;
    struct straggler_row rows[TEAM];
    for (int s = 0; s < n; s++) {
        f->now_ns += 200000000;
        for (int32_t i = 0; i < f->t.n; i++)
            rows[i] = (struct straggler_row){.operators_ns = 10 * MS * factor[i] * (1 + i) * noisy(f), .inputs_ns = inputs_ms * MS, .end_ns = f->now_ns};
        straggler_team_step(&f->t, rows);
        for (int32_t i = 0; i < f->t.n; i++) seen |= (f->t.members[i].slower || f->t.members[i].starved) << i;
    }
    return seen;
}

static const int32_t two_nodes[] = {0, 0, 1}, one_type[] = {0, 0, 0, 0, 0, 0}, three_nodes[] = {0, 0, 1, 1, 2, 2}, two_types[] = {0, 0, 0, 0, 1, 1};
static const double equal[] = {1, 1, 1, 1, 1, 1};

/* The load of a machine that all devices share ends, at times that differ by some steps: 0.63 and 0.7 of the base. */
START_TEST(load_of_all_devices_is_no_straggler)
{
    struct fixture f;
    begin(&f, 3, two_nodes, one_type);
    f.noise = 1;
    ck_assert_int_eq(steps(&f, 100, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 3, (double[]){0.7, 0.63, 1}, 0), 0);
    ck_assert_int_eq(steps(&f, 100, (double[]){0.7, 0.63, 0.63}, 0), 0);
    ck_assert_int_eq(steps(&f, 100, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 100, (double[]){4, 4, 4}, 0), 0);
    ck_assert_int_eq(steps(&f, 100, (double[]){4, 4, 8}, 0), 4); /* beside the load one is slow */
    ck_assert_double_eq_tol(f.t.members[2].operators.level, 2, 0.3);
    arena_free(f.a);
}
END_TEST

START_TEST(slow_device_is_named_beside_its_team)
{
    struct fixture f;
    begin(&f, 3, two_nodes, one_type);
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, STRAGGLER_WINDOW - 1, (double[]){1, 3, 1}, 0), 0);
    ck_assert_int_eq(steps(&f, 1, (double[]){1, 3, 1}, 0), 2);
    ck_assert_double_eq_tol(f.t.members[1].operators.level, 3, 1e-9);
    ck_assert_int_eq(steps(&f, 50, (double[]){1, 3, 1}, 0), 0);
    ck_assert_int_eq(steps(&f, 50, equal, 0), 2);
    arena_free(f.a);
    begin(&f, 2, (int32_t[]){0, 1}, one_type); /* of two devices the one that has changed */
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 50, (double[]){3, 1}, 0), 1);
    arena_free(f.a);
    begin(&f, 2, (int32_t[]){0, 0}, one_type); /* on one node too */
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 50, (double[]){1, 0.4}, 0), 2);
    arena_free(f.a);
}
END_TEST

/* Two of three devices are of the slow host, so that the median of devices would name the third. */
START_TEST(slow_host_has_all_its_devices_named)
{
    struct fixture f;
    begin(&f, 3, two_nodes, one_type);
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 50, (double[]){3, 3, 1}, 0), 3);
    arena_free(f.a);
    begin(&f, 6, three_nodes, two_types); /* the third node alone has its type */
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 50, (double[]){1, 1, 1, 1, 2, 2}, 0), 16 + 32);
    arena_free(f.a);
}
END_TEST

/* Nodes of the type 0 alone carry a load, which is not one of type 1. */
START_TEST(load_of_one_type_is_no_straggler)
{
    struct fixture f;
    begin(&f, 6, three_nodes, two_types);
    ck_assert_int_eq(steps(&f, 50, equal, 0), 0);
    ck_assert_int_eq(steps(&f, 50, (double[]){2, 2, 2, 2, 1.2, 1.2}, 0) & 15, 0);
    arena_free(f.a);
}
END_TEST

/* 28 ms of inputs beside 10, 20 and 30 ms of operators: a step of the first takes 3.8 times as long, of the last 1.9 times; the second loads while it
 * computes and waits for 8 ms. A second must pass, and five steps; inputs within the operators' time are no cause. */
START_TEST(input_data_is_a_cause)
{
    struct fixture f;
    begin(&f, 3, two_nodes, one_type);
    f.t.members[1].overlaps = true;
    ck_assert_int_eq(steps(&f, 50, equal, 0.1), 0);
    ck_assert_int_eq(steps(&f, 50, equal, 3), 0);
    ck_assert_int_eq(steps(&f, STRAGGLER_WINDOW, equal, 28), 0);
    ck_assert_int_eq(steps(&f, 1, equal, 28), 1 + 4);
    ck_assert_double_eq_tol(f.t.members[0].inputs.level, 3.8 / 1.01, 1e-2);
    ck_assert_int_eq(steps(&f, 50, equal, 28), 0);
    ck_assert_int_eq(steps(&f, 50, equal, 60), 1 + 2 + 4);
    ck_assert_int_eq(steps(&f, 50, equal, 0.1), 7);
    for (int i = 0; i < 3; i++) ck_assert_double_eq_tol(f.t.members[i].operators.level, 1, 1e-9);
    arena_free(f.a);
}
END_TEST

/* Steps are judged when all ranks have ended them; those that were overwritten are left out. */
START_TEST(rows_of_all_ranks_are_judged)
{
    struct arena *a = arena_new();
    struct program p = {.n_devices = 2, .emulated = true};
    struct straggler_table *table = ARENA_ARRAY(a, struct straggler_table, 1);
    struct straggler_watch *w[] = {straggler_open(a, &p, 0, table), straggler_open(a, &p, 1, table)};
    struct straggler_team t;
    bool changed;
    straggler_team_open(&t, a, 2, 2, true);
    t.members[1].node = 1;
    int named = 0;
    for (int64_t step = 0; step < 1000; step++) {
        straggler_operator(w[0], step, 100);
        if (step >= 3) straggler_operator(w[1], step - 3, step >= 53 ? 300 : 100);
        if (step >= 3) straggler_ended(w[1], step - 3);
        while (step < 200 && straggler_team_next(&t, table, &changed)) {
            ck_assert_int_eq(t.next, step - 2);
            ck_assert(!t.members[0].slower);
            if (changed) named = (int)t.next;
        }
    }
    ck_assert_int_eq(named, 50 + STRAGGLER_WINDOW);
    ck_assert(straggler_team_next(&t, table, &changed));
    ck_assert_int_gt(t.next, 1000 - STRAGGLER_ROWS);
    arena_free(a);
}
END_TEST

Suite *straggler_suite(void)
{
    Suite *s = suite_create("straggler");
    TCase *c = tcase_create("straggler");
    tcase_add_test(c, slow_device_is_named_and_recovers);
    tcase_add_test(c, some_slow_steps_are_not_reported);
    tcase_add_test(c, wall_times_must_last);
    tcase_add_test(c, base_is_a_median);
    tcase_add_test(c, noise_is_not_reported);
    tcase_add_test(c, ranks_report);
    tcase_add_test(c, load_of_all_devices_is_no_straggler);
    tcase_add_test(c, slow_device_is_named_beside_its_team);
    tcase_add_test(c, slow_host_has_all_its_devices_named);
    tcase_add_test(c, load_of_one_type_is_no_straggler);
    tcase_add_test(c, input_data_is_a_cause);
    tcase_add_test(c, rows_of_all_ranks_are_judged);
    suite_add_tcase(s, c);
    return s;
}
