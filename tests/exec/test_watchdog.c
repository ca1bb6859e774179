/* Suite of exec/device_transport/watchdog: when no progress is a failure. */
#include "exec/device_transport/watchdog.h"

#include "exec/clock.h"
#include "tests/support/suites.h"

#define MS INT64_C(1000000)

enum { LOOK_US = 200 };

static void pause_ns(int64_t ns) { clock_sleep_until(clock_wall_ns() + ns); }

/* Looks until it has expired; -1 where it has not within ns, else after how long. */
static int64_t look_for(struct watchdog *w, bool under_algorithm, int64_t ns)
{
    int64_t begin_ns = clock_wall_ns();
    while (clock_wall_ns() - begin_ns < ns) {
        if (watchdog_expired(w, under_algorithm)) return clock_wall_ns() - begin_ns;
        pause_ns(LOOK_US * 1000);
    }
    return -1;
}

START_TEST(it_expires_after_its_limit_of_looks_without_progress)
{
    struct watchdog w = {.limit_ns = 80 * MS};
    int64_t after_ns = look_for(&w, true, 60000 * MS);
    ck_assert_int_ge(after_ns, 80 * MS);
    ck_assert(watchdog_under_algorithm(&w));
}
END_TEST

START_TEST(it_does_not_expire_while_nothing_is_under_algorithm)
{
    struct watchdog w = {.limit_ns = 10 * MS};
    ck_assert_int_eq(look_for(&w, false, 60 * MS), -1);
    ck_assert(!watchdog_under_algorithm(&w));
}
END_TEST

START_TEST(progress_starts_the_time_again)
{
    struct watchdog w = {.limit_ns = 20 * MS};
    for (int i = 0; i < 400; i++) {
        watchdog_progress(&w);
        ck_assert(!watchdog_expired(&w, true));
        pause_ns(LOOK_US * 1000);
    }
}
END_TEST

START_TEST(a_pause_between_two_looks_does_not_count)
{
    struct watchdog w = {.limit_ns = 20 * MS};
    ck_assert(!watchdog_expired(&w, true));
    pause_ns(100 * MS);
    ck_assert(!watchdog_expired(&w, true));
}
END_TEST

/* Events below a number have been reached. */
static enum status reached(struct backend *b, int32_t event, bool *out, struct error *err)
{
    (void)err;
    *out = event < *(const int32_t *)b->state;
    return OK;
}

START_TEST(what_has_ended_is_counted_in_order)
{
    int32_t until = 2;
    struct backend b = {.event_done = reached, .state = &until};
    struct watchdog w = {.limit_ns = MS};
    const int32_t events[] = {0, 1, 2, 3};
    int64_t done = 0;
    ck_assert_int_eq(watchdog_count(&w, &b, 4, &done, events, 4, NULL), OK);
    ck_assert_int_eq(done, 2);
    ck_assert_int_eq(w.changes, 2);
    until = 4;
    ck_assert_int_eq(watchdog_count(&w, &b, 3, &done, events, 4, NULL), OK);
    ck_assert_int_eq(done, 3); /* the fourth has not been issued */
}
END_TEST

SUITE_OF(watchdog, it_expires_after_its_limit_of_looks_without_progress,
         it_does_not_expire_while_nothing_is_under_algorithm, progress_starts_the_time_again,
         a_pause_between_two_looks_does_not_count, what_has_ended_is_counted_in_order)
