/* Flows that stand for several equal ones: the same ends as when all of them flow. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "sim/network/flows.h"

#include "tests/support/suites.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

enum { SHARED = 5, CLASSES = 90, WEIGHT = 6, FLOWS = 4 };

static uint64_t seed, draws;
static int32_t draw(int32_t n) { return (int32_t)rng_below(5, seed, draws++, (uint64_t)n); }

static int32_t resource(struct flows *f, double Bps)
{
    int32_t r;
    struct error err = {0};
    ck_assert_msg(flows_resource(f, "r", Bps, &r, &err) == OK, "%s", err.text);
    return r;
}

/* Of each class `weight` flows, each over a resource of its own and some that all share: all of them, or one for all. */
struct net {
    struct flows *all, *one;
    int32_t n, weight[CLASSES], of_all[CLASSES][WEIGHT], of_one[CLASSES];
    double end_ns[2][CLASSES * FLOWS];
};

static void make(struct net *x, int32_t n)
{
    int32_t all[SHARED + 1], one[SHARED + 1], weights[SHARED + 1];
    double capacity[SHARED];
    *x = (struct net){.all = flows_new(arena), .one = flows_new(arena), .n = n};
    for (int k = 0; k < SHARED; k++) {
        capacity[k] = 1e8 * (1 + draw(50));
        ck_assert_int_eq(resource(x->all, capacity[k]), resource(x->one, capacity[k]));
    }
    for (int32_t c = 0; c < n; c++) {
        double own = 1e8 * (1 + draw(20));
        int32_t hops = 0;
        x->weight[c] = 1 + draw(WEIGHT);
        for (int k = 0; k < SHARED; k++)
            if (draw(2)) all[hops] = one[hops] = k, weights[hops++] = x->weight[c];
        one[hops] = resource(x->one, own), weights[hops] = 1;
        x->of_one[c] = flows_weighted_route(x->one, one, weights, hops + 1);
        for (int32_t w = 0; w < x->weight[c]; w++) {
            all[hops] = resource(x->all, own);
            x->of_all[c][w] = flows_route(x->all, all, hops + 1);
        }
    }
}

static void end_until(struct net *x, int which, double now)
{
    struct flow_end e;
    while (flows_end(which ? x->one : x->all, now, &e)) x->end_ns[which][e.owner] = e.end_ns;
}

static void play(int32_t n)
{
    struct net *x = ARENA_ARRAY(arena, struct net, 1);
    make(x, n);
    double now = 0;
    for (int32_t i = 0; i < n * FLOWS; i++) {
        int32_t c = i % n, bytes = 1 + draw(1000);
        now += draw(3) ? 0 : draw(200);
        end_until(x, 0, now), end_until(x, 1, now);
        flows_start(x->one, now, x->of_one[c], bytes, i);
        for (int32_t w = 0; w < x->weight[c]; w++)
            flows_start(x->all, now, x->of_all[c][w], bytes, i);
    }
    end_until(x, 0, INFINITY), end_until(x, 1, INFINITY);
    for (int32_t i = 0; i < n * FLOWS; i++)
        ck_assert_msg(fabs(x->end_ns[0][i] - x->end_ns[1][i]) < 1e-6 * (1 + x->end_ns[0][i]),
                      "seed %lu, flow %d: %g ns if all flow, %g ns by weight", (unsigned long)seed,
                      (int)i, x->end_ns[0][i], x->end_ns[1][i]);
}

/* A few at a time, and so many that both representations of rates take part (sim/network/flows.h). */
START_TEST(one_flow_of_a_weight_ends_with_those_it_stands_for)
{
    for (seed = 0; seed < (suites_long() ? 3000 : 150); seed++) {
        draws = 0;
        play(seed % 3 ? 1 + draw(8) : CLASSES);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(a_weight_shares_a_resource_by_hand)
{
    /* 1 B/ns for four flows, of which one stands for three: 100 bytes each at a quarter, until 400 ns; then 100 more alone. */
    struct flows *f = flows_new(arena);
    int32_t r = resource(f, 1e9), three = 3;
    int32_t route[2] = {flows_weighted_route(f, &r, &three, 1), flows_route(f, &r, 1)};
    struct flow_end e;
    flows_start(f, 0, route[0], 100, 0);
    flows_start(f, 0, route[1], 200, 1);
    ck_assert_double_eq(flows_rate(f, route[0]), 0.25e9);
    ck_assert(flows_end(f, INFINITY, &e) && e.owner == 0 && e.end_ns == 400);
    ck_assert(flows_end(f, INFINITY, &e) && e.owner == 1 && e.end_ns == 500);
    /* Alone, each of the three gets a third. */
    flows_start(f, 500, route[0], 100, 2);
    ck_assert(flows_end(f, INFINITY, &e) && e.owner == 2 && fabs(e.end_ns - 800) < 1e-6);
}
END_TEST

Suite *flows_weights_suite(void)
{
    Suite *s = suite_create("sim/network/flows, weights");
    TCase *t = tcase_create("all");
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, one_flow_of_a_weight_ends_with_those_it_stands_for);
    tcase_add_test(t, a_weight_shares_a_resource_by_hand);
    suite_add_tcase(s, t);
    return s;
}
