#include "sim/goodput/goodput.h"

#include "core/base/arena.h"
#include "tests/support/suites.h"

#define S INT64_C(1000000000)

static struct arena *arena;
static struct error err;
static void begin(void) { arena = arena_new(); }
static void end(void) { arena_free(arena); }

static const char *const names[] = {"a.0", "a.1"};
static const int64_t both[] = {1, 1}, second[] = {0, 1};
static double half_of_one(const void *user, const int64_t *devices)
{
    (void)user;
    return (double)(devices[0] + devices[1]) / 2;
}

/* 100 steps of 1 s, a checkpoint of 2 s after every tenth; detection 3 s, restart 5 s, re-planning 7 s. */
static struct goodput_tally walk(const struct goodput_event *events, size_t n, int64_t failures_max)
{
    struct goodput_tally t;
    struct goodput_job j = {.horizon_ns = INT64_C(1000000) * S,
                            .work_ns = 100 * S,
                            .n_types = 2,
                            .types = names,
                            .devices = both,
                            .speed = half_of_one,
                            .checkpoint_ns = 2 * S,
                            .restart_ns = 5 * S,
                            .replan_ns = 7 * S,
                            .step_ns = S,
                            .n_events = n,
                            .events = events,
                            .failures_max = failures_max};
    ck_assert_msg(goodput_walk(arena, &j, 10 * S, 1, 0, &t, &err) == OK, "%s", err.text);
    return t;
}
static double seconds(const struct goodput_tally *t, enum goodput_part p) { return t->part_ns[p] / (double)S; }

START_TEST(without_events_only_checkpoints_cost_time)
{
    struct goodput_tally t = walk(NULL, 0, 0);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 120, 1e-6);
    ck_assert_double_eq(t.checkpoints, 10);
}
END_TEST

/* Before step 34: 30 steps are safe, three are lost; a second failure at 100 s of wall time. */
START_TEST(failures_happen_once_and_lose_the_steps_since_the_checkpoint)
{
    const struct goodput_event e[] = {{.kind = GOODPUT_EVENT_FAILURE, .at_work_ns = 33 * S, .detect_ns = 3 * S},
                                      {.kind = GOODPUT_EVENT_FAILURE, .at_work_ns = -1, .time_ns = 100 * S, .detect_ns = 3 * S}};
    struct goodput_tally t = walk(e, 1, 1);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 120 + 3 + 3 + 5, 1e-6);
    ck_assert_double_eq(t.lost_steps, 3);
    ck_assert_double_eq_tol(t.event_ns[0] / (double)S, 33 + 6, 1e-6);
    t = walk(e, 2, 2);
    /* at 100 s: 100 − 11 = 89 s of the undisturbed run: 7 checkpoints and 75 steps, 5 of them behind the last one */
    ck_assert_double_eq(t.lost_steps, 3 + 5);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 120 + 11 + 13, 1e-6);
    t = walk(e, 2, 1);
    ck_assert(t.ended_early);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 100, 1e-6);
}
END_TEST

/* Half the speed for ten steps; the repeated ones of a failure in between count. */
START_TEST(slow_steps_are_counted_as_they_are_executed)
{
    const struct goodput_event e[] = {{.kind = GOODPUT_EVENT_SLOW, .at_work_ns = 30 * S, .speed = 0.5, .lasts_ns = 10 * S},
                                      {.kind = GOODPUT_EVENT_FAILURE, .at_work_ns = 33 * S, .detect_ns = 3 * S}};
    struct goodput_tally t = walk(e, 1, 0);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 130, 1e-6);
    ck_assert_double_eq_tol(seconds(&t, GOODPUT_slow), 10, 1e-6);
    t = walk(e, 2, 1);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 130 + 3 + 8, 1e-6); /* three steps repeated, ten slow ones in all */
    ck_assert_double_eq(t.lost_steps, 3);
}
END_TEST

/* The checkpoint after step 30 is not written, so that a failure before step 34 loses 13 steps. */
START_TEST(a_full_disk_loses_the_checkpoint)
{
    const struct goodput_event e[] = {{.kind = GOODPUT_EVENT_DISK_FULL, .at_work_ns = 25 * S},
                                      {.kind = GOODPUT_EVENT_FAILURE, .at_work_ns = 33 * S, .detect_ns = 3 * S}};
    ck_assert_double_eq(walk(e, 2, 1).lost_steps, 13);
    const struct goodput_event last = {.kind = GOODPUT_EVENT_DISK_FULL, .at_work_ns = 95 * S, .lasts_ns = 50 * S};
    ck_assert(walk(&last, 1, 1).ended_early);
}
END_TEST

/* Without a.1 half the speed, after re-planning; before step 51 it is back, which costs a checkpoint and a restart. */
START_TEST(a_lost_device_comes_back)
{
    struct goodput_event e = {.kind = GOODPUT_EVENT_FAILURE, .at_work_ns = 30 * S, .detect_ns = 3 * S, .devices = second, .back_work_ns = 50 * S};
    struct goodput_tally t = walk(&e, 1, 1);
    ck_assert_double_eq_tol(seconds(&t, GOODPUT_fewer), 20, 1e-6);
    ck_assert_double_eq_tol(seconds(&t, GOODPUT_replan), 7, 1e-6); /* the first plan is known */
    ck_assert_double_eq_tol(seconds(&t, GOODPUT_restart), 10, 1e-6);
    ck_assert_double_eq(t.reconfigurations, 1);
    /* With ten steps left, 20 s, the change would take 7 + 5 s and save 10. */
    e.back_work_ns = 90 * S;
    t = walk(&e, 1, 1);
    ck_assert_double_eq(t.reconfigurations, 0);
    ck_assert_double_eq_tol(seconds(&t, GOODPUT_fewer), 70, 1e-6);
    e.back_work_ns = 0;
    t = walk(&e, 1, 1);
    ck_assert_double_eq_tol(t.elapsed_ns / (double)S, 120 + 3 + 7 + 5 + 70, 1e-6); /* never */
}
END_TEST

Suite *goodput_script_suite(void)
{
    Suite *s = suite_create("goodput_script");
    TCase *c = tcase_create("walk");
    tcase_add_checked_fixture(c, begin, end);
    tcase_add_test(c, without_events_only_checkpoints_cost_time);
    tcase_add_test(c, failures_happen_once_and_lose_the_steps_since_the_checkpoint);
    tcase_add_test(c, slow_steps_are_counted_as_they_are_executed);
    tcase_add_test(c, a_full_disk_loses_the_checkpoint);
    tcase_add_test(c, a_lost_device_comes_back);
    suite_add_tcase(s, c);
    return s;
}
