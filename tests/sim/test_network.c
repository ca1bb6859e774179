/* Messages on links and routes: their times in whole nanoseconds, by hand. */
#include "core/base/arena.h"
#include "sim/network/network.h"

#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { LINKS = 4, MESSAGES = 16, READY = 0, FLOW = 1 };

/* Links 0 … 3 of 1, 2, 4 and 1 B/ns and latencies 10, 20, 40 and 100 ns; then routes. */
struct net {
    struct cluster cluster;
    struct profile profile;
    struct program program;
    struct cost *cost;
    struct event_queue *queue;
    struct network *network;
    int32_t n, resource[MESSAGES];
    int64_t bytes[MESSAGES];
    struct passage passage[MESSAGES];
};

static struct net *make(enum link_sharing sharing)
{
    static const double speed[LINKS] = {1e9, 2e9, 4e9, 1e9}, late[LINKS] = {10, 20, 40, 100};
    struct net *x = ARENA_ARRAY(arena, struct net, 1);
    x->profile = (struct profile){.pace = 1};
    x->cluster = (struct cluster){
        .name = "c", .n_links = LINKS, .links = ARENA_ARRAY(arena, struct link, LINKS)};
    x->program = (struct program){.n_links = LINKS,
                                  .links = ARENA_ARRAY(arena, struct program_link, LINKS + 8)};
    for (int32_t i = 0; i < LINKS; i++) {
        const char *name = arena_printf(arena, "l%d", (int)i);
        x->cluster.links[i] = (struct link){.name = name,
                                            .bandwidth_Bps = speed[i],
                                            .latency_s = late[i] / 1e9,
                                            .stated = true,
                                            .sharing = sharing};
        x->program.links[i] = (struct program_link){.name = name, .sharing = (int32_t)sharing};
    }
    x->cost = cost_new(arena, &x->profile, &x->cluster);
    return x;
}

static int32_t route(struct net *x, int32_t a, int32_t b, int32_t c)
{
    int32_t *hops = ARENA_ARRAY(arena, int32_t, 3), *direction = ARENA_ARRAY(arena, int32_t, 3);
    hops[0] = a, hops[1] = b, hops[2] = c;
    x->program.links[x->program.n_links] = (struct program_link){.name = "algorithm",
                                                                 .sharing = LINK_FAIR,
                                                                 .n_hops = c < 0 ? 2 : 3,
                                                                 .hop = hops,
                                                                 .hop_direction = direction};
    return x->program.n_links++;
}

static void begin(struct net *x)
{
    x->queue = event_queue_new(arena, 8);
    x->network = network_new(arena, &x->program, x->queue, FLOW, NULL);
}

static void message(struct net *x, int32_t link, int32_t direction, int64_t at_ns, int64_t bytes)
{
    struct error err = {0};
    ck_assert_msg(
        network_join(x->network, x->cost, link, direction, bytes, &x->resource[x->n], &err) == OK,
        "%s", err.text);
    x->bytes[x->n] = bytes;
    event_queue_push(x->queue, (struct event){.time_ns = at_ns, .kind = READY, .index = x->n++});
}

static void run(struct net *x)
{
    network_start(x->network, arena);
    while (event_queue_size(x->queue)) {
        struct event e = event_queue_pop(x->queue);
        int32_t owner = e.index, resource = x->resource[owner];
        struct passage passage;
        bool known =
            e.kind == READY
                ? network_ready(x->network, owner, resource,
                                network_occupancy_ns(x->network, resource, x->bytes[owner]),
                                e.time_ns, &passage)
                : network_flow(x->network, &e, &owner, &passage);
        if (!known) continue;
        x->passage[owner] = passage;
        if (e.kind == FLOW) ck_assert_int_eq(passage.left_ns, e.time_ns);
    }
}

static void left(const struct net *x, int32_t message, int64_t start, int64_t end, int64_t arrival)
{
    ck_assert_int_eq(x->passage[message].start_ns, start);
    ck_assert_int_eq(x->passage[message].left_ns, end);
    ck_assert_int_eq(x->passage[message].arrival_ns, arrival);
}

START_TEST(fifo_links_take_messages_one_after_the_other)
{
    struct net *x = make(LINK_FIFO);
    begin(x);
    message(x, 0, 0, 5, 100), message(x, 0, 0, 6, 50), message(x, 0, 1, 6, 50);
    run(x);
    left(x, 0, 5, 105, 115), left(x, 1, 105, 155, 165), left(x, 2, 6, 56, 66);
}
END_TEST

START_TEST(fair_links_serve_all_at_once)
{
    struct net *x = make(LINK_FAIR);
    begin(x);
    /* 3 of 90 from 0: each a third: the fourth of 5 at 90: 60 left each; quarters until 110: 55 left; thirds: 275 */
    for (int i = 0; i < 3; i++) message(x, 0, 0, 0, 90);
    message(x, 0, 0, 90, 5), message(x, 1, 0, 7, 10);
    run(x);
    for (int i = 0; i < 3; i++) left(x, i, 0, 275, 285);
    left(x, 3, 90, 110, 120), left(x, 4, 7, 12, 32);
}
END_TEST

START_TEST(a_route_is_as_fast_as_its_slowest_link_and_as_late_as_all)
{
    struct net *x = make(LINK_FIFO);
    int32_t route_of = route(x, 2, 1, 0);
    begin(x);
    message(x, route_of, 0, 3, 1000), message(x, route_of, 1, 3, 500);
    run(x);
    left(x, 0, 3, 1003, 1073), left(x, 1, 3, 503, 573); /* full duplex: in both directions at once */
}
END_TEST

START_TEST(half_duplex_links_of_a_route_carry_both_directions_in_turn)
{
    struct net *x = make(LINK_FAIR);
    int32_t route_of = route(x, 2, 1, -1);
    x->program.links[1].half_duplex = x->cluster.links[1].half_duplex = true;
    begin(x);
    message(x, route_of, 0, 0, 1000), message(x, route_of, 1, 0, 500);
    run(x);
    /* link 1 gives 1 B/ns to each: the second leaves at 500; the first has 500 left, at 2: 750 */
    left(x, 1, 0, 500, 560), left(x, 0, 0, 750, 810);
}
END_TEST

START_TEST(routes_share_each_link_they_have_in_common)
{
    /* A on 0,1; B on 1 alone; C on 1,2. Link 1 has 2: A is held to 1 by link 0? 2/3 each: below 1: all share link 1. When A
     * has left, B and C get 1 each. */
    struct net *x = make(LINK_FIFO);
    int32_t a = route(x, 0, 1, -1), c = route(x, 1, 2, -1);
    begin(x);
    message(x, a, 0, 0, 200), message(x, 1, 0, 0, 500), message(x, c, 0, 0, 800);
    run(x);
    left(x, 0, 0, 300, 330); /* 200 at 2/3 */
    left(x, 1, 0, 600, 620); /* 200 by 300, 300 more at 1 */
    left(x, 2, 0, 750, 810); /* 500 by 600, 300 more at 2 */
}
END_TEST

START_TEST(what_a_slow_link_cannot_use_is_left_to_the_others)
{
    /* A on 0,1 gets 1 at most (link 0, shared with D): D on 0. B on 1 gets 2 - 1/2. */
    struct net *x = make(LINK_FAIR);
    int32_t a = route(x, 0, 1, -1);
    begin(x);
    message(x, a, 0, 0, 100), message(x, 1, 0, 0, 300), message(x, 0, 0, 0, 100);
    run(x);
    left(x, 0, 0, 200, 230), left(x, 2, 0, 200, 210), left(x, 1, 0, 200, 220);
}
END_TEST

START_TEST(ends_are_rounded_once_to_the_nearest_nanosecond)
{
    struct net *x = make(LINK_FAIR);
    begin(x);
    /* Three of 1 byte share 1 B/ns: 3. Two of 5 on the other one and a third at 1: 1/2 a byte served, thirds: */
    message(x, 0, 0, 0, 1), message(x, 0, 0, 0, 1), message(x, 0, 0, 0, 1);
    message(x, 3, 0, 0, 5), message(x, 3, 0, 0, 5), message(x, 3, 0, 1, 2);
    run(x);
    for (int i = 0; i < 3; i++) left(x, i, 0, 3, 13);
    /* 4.5 left each at 1; the third of 2 ends at 7; 2.5 left, halves: 12 */
    left(x, 5, 1, 7, 107), left(x, 3, 0, 12, 112), left(x, 4, 0, 12, 112);
    x = make(LINK_FAIR);
    begin(x);
    message(x, 1, 0, 0, 10), message(x, 1, 0, 1, 10), message(x, 1, 0, 2, 10);
    run(x);
    /* 2 B/ns: 10: 2 by 1, 3 by 2, then 2/3 a ns: 7 left: 12.5; the second: 9 left at 2: 2 left at 12.5: 14.5, the third
     * 10: 3 left, 1 at 14.5: 15. 12.5 is told as 13 and 14.5 as 15. */
    left(x, 0, 0, 13, 33), left(x, 1, 1, 15, 35), left(x, 2, 2, 15, 35);
}
END_TEST

START_TEST(days_of_simulated_time_keep_the_nanosecond)
{
    struct net *x = make(LINK_FAIR);
    const int64_t day = INT64_C(86400000000000);
    begin(x);
    for (int64_t i = 0; i < 5; i++)
        message(x, 0, 0, 1000 * day * i, 1000), message(x, 0, 0, 1000 * day * i + 500, 250);
    run(x);
    /* 500 left and 250: halves: 500 later; 250 left alone: 1250 */
    for (int32_t i = 0; i < 5; i++) {
        int64_t at = 1000 * day * i;
        left(x, 2 * i, at, at + 1250, at + 1260),
            left(x, 2 * i + 1, at + 500, at + 1000, at + 1010);
    }
}
END_TEST

START_TEST(a_link_that_a_route_crosses_is_fair_for_all)
{
    struct net *x = make(LINK_FIFO);
    int32_t route_of = route(x, 0, 1, -1);
    begin(x);
    message(x, 0, 0, 0, 100), message(x, 0, 0, 0, 100), message(x, route_of, 0, 1000, 1);
    run(x);
    left(x, 0, 0, 200, 210), left(x, 1, 0, 200, 210);
}
END_TEST

START_TEST(what_cannot_be_shared_is_refused)
{
    struct error err = {0};
    int32_t resource;
    struct net *x = make(LINK_FIFO);
    int32_t route_of = route(x, 0, 1, -1);
    begin(x);
    ck_assert(network_join(x->network, x->cost, 0, 0, INT64_C(4000000000000000), &resource, &err) ==
              OK);
    ck_assert(network_join(x->network, x->cost, route_of, 0, 1, &resource, &err) == ERR_INPUT);
    ck_assert_msg(strstr(err.text, "l0") && strstr(err.text, "twelve days"), "%s", err.text);
    x = make(LINK_FAIR);
    x->cluster.links[1].bandwidth_Bps = 0;
    route_of = route(x, 0, 1, -1);
    begin(x);
    ck_assert(network_join(x->network, x->cost, route_of, 0, 1, &resource, &err) == ERR_INPUT);
    ck_assert_msg(strstr(err.text, "link l1 has no bandwidth"), "%s", err.text);
}
END_TEST

Suite *network_suite(void)
{
    Suite *s = suite_create("sim/network/network");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, fifo_links_take_messages_one_after_the_other);
    tcase_add_test(t, fair_links_serve_all_at_once);
    tcase_add_test(t, a_route_is_as_fast_as_its_slowest_link_and_as_late_as_all);
    tcase_add_test(t, half_duplex_links_of_a_route_carry_both_directions_in_turn);
    tcase_add_test(t, routes_share_each_link_they_have_in_common);
    tcase_add_test(t, what_a_slow_link_cannot_use_is_left_to_the_others);
    tcase_add_test(t, ends_are_rounded_once_to_the_nearest_nanosecond);
    tcase_add_test(t, days_of_simulated_time_keep_the_nanosecond);
    tcase_add_test(t, a_link_that_a_route_crosses_is_fair_for_all);
    tcase_add_test(t, what_cannot_be_shared_is_refused);
    suite_add_tcase(s, t);
    return s;
}
