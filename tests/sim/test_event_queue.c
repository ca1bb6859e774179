#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/event_queue.h"

#include "tests/support/suites.h"

static struct arena *arena;
static struct event_queue *queue;

static void setup(void)
{
    arena = arena_new();
    queue = event_queue_new(arena, 2);
}

static void teardown(void) { arena_free(arena); }

static void push(int64_t time_ns, int32_t index)
{
    event_queue_push(queue, (struct event){.time_ns = time_ns, .index = index});
}

START_TEST(pops_the_soonest_first)
{
    push(30, 0), push(10, 1), push(20, 2);
    ck_assert_int_eq(event_queue_pop(queue).time_ns, 10);
    ck_assert_int_eq(event_queue_pop(queue).time_ns, 20);
    ck_assert_int_eq(event_queue_pop(queue).time_ns, 30);
}
END_TEST

START_TEST(events_of_one_instant_leave_in_the_order_they_came)
{
    for (int32_t i = 0; i < 100; i++) push(7, i);
    for (int32_t i = 0; i < 100; i++) ck_assert_int_eq(event_queue_pop(queue).index, i);
}
END_TEST

START_TEST(a_thousand_random_events_leave_in_the_order_of_time_and_push)
{
    for (int32_t i = 0; i < 1000; i++) push((int64_t)rng_below(1, 2, (uint64_t)i, 50), i);
    struct event last = event_queue_pop(queue);
    while (event_queue_size(queue)) {
        struct event e = event_queue_pop(queue);
        ck_assert(e.time_ns > last.time_ns || (e.time_ns == last.time_ns && e.index > last.index));
        last = e;
    }
}
END_TEST

START_TEST(events_of_one_instant_leave_by_their_order_first)
{
    for (int32_t i = 0; i < 100; i++)
        event_queue_push(queue, (struct event){.time_ns = 7, .seq = (uint64_t)(i % 4), .index = i});
    push(6, 100);
    ck_assert_int_eq(event_queue_pop(queue).index, 100);
    for (int32_t k = 0; k < 4; k++)
        for (int32_t i = k; i < 100; i += 4) ck_assert_int_eq(event_queue_pop(queue).index, i);
}
END_TEST

START_TEST(popping_an_empty_queue_is_a_bug) { event_queue_pop(queue); }
END_TEST

Suite *event_queue_suite(void)
{
    Suite *s = suite_create("sim/event_queue");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, pops_the_soonest_first);
    tcase_add_test(t, events_of_one_instant_leave_in_the_order_they_came);
    tcase_add_test(t, events_of_one_instant_leave_by_their_order_first);
    tcase_add_test(t, a_thousand_random_events_leave_in_the_order_of_time_and_push);
    tcase_add_test_raise_signal(t, popping_an_empty_queue_is_a_bug, SIGABRT);
    suite_add_tcase(s, t);
    return s;
}
