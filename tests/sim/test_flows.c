/* Max-min shares against a naive filling that starts anew after every change; times by hand and from closed forms. */
#include "core/base/arena.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "sim/event_queue.h"
#include "sim/network/flows.h"

#include "tests/support/flow_workload.h"
#include "tests/support/suites.h"

#include <math.h>

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

static int32_t resource(struct flows *f, double capacity_Bps)
{
    struct error err = {0};
    int32_t out = -1;
    ck_assert_msg(flows_resource(f, "r", capacity_Bps, &out, &err) == OK, "%s", err.text);
    return out;
}

/* --- by hand --- */

START_TEST(flows_of_one_resource_share_it_equally)
{
    /* 1 byte a nanosecond. 100 from 0 and 30 from 20: the first has 80 left; both get half: the second ends at 80, the
     * first has 50 left then and ends at 130. */
    struct flows *f = flows_new(arena);
    int32_t r = resource(f, 1e9), route = flows_route(f, &r, 1);
    struct flow_end e;
    flows_start(f, 0, route, 100, 1);
    ck_assert_double_eq(flows_next_ns(f), 100);
    flows_start(f, 20, route, 30, 2);
    ck_assert_double_eq(flows_rate(f, route), 5e8);
    ck_assert(!flows_end(f, 79, &e) && flows_end(f, 80, &e));
    ck_assert(e.owner == 2 && e.start_ns == 20 && e.end_ns == 80);
    ck_assert(flows_end(f, INFINITY, &e) && e.owner == 1 && e.end_ns == 130);
    ck_assert(!flows_end(f, INFINITY, &e) && flows_alive(f) == 0 && isinf(flows_next_ns(f)));
}
END_TEST

/* Bertsekas and Gallager's kind of example: three links in a row; one long flow and a short one on each. */
START_TEST(a_long_flow_gets_the_share_of_its_fullest_link)
{
    struct flows *f = flows_new(arena);
    int32_t link[3] = {resource(f, 9e9), resource(f, 4e9), resource(f, 12e9)}, route[4];
    route[3] = flows_route(f, link, 3);
    for (int i = 0; i < 3; i++) route[i] = flows_route(f, &link[i], 1);
    for (int i = 0; i < 4; i++) flows_start(f, 0, route[i], 1e9, i);
    flows_start(f, 0, route[2], 1e9, 4);
    /* Link 1: 4 / 2 = 2 is the least share; link 0 leaves 7 to its own; link 2 (12 - 2) / 2 = 5 to each of its two. */
    ck_assert_double_eq_tol(flows_rate(f, route[3]), 2e9, 1);
    ck_assert_double_eq_tol(flows_rate(f, route[1]), 2e9, 1);
    ck_assert_double_eq_tol(flows_rate(f, route[0]), 7e9, 1);
    ck_assert_double_eq_tol(flows_rate(f, route[2]), 5e9, 1);
}
END_TEST

START_TEST(a_flow_without_bytes_ends_when_it_starts)
{
    struct flows *f = flows_new(arena);
    int32_t r = resource(f, 1e9), route = flows_route(f, &r, 1);
    struct flow_end e;
    flows_start(f, 0, route, 50, 1);
    flows_start(f, 10, route, 0, 2);
    ck_assert(flows_end(f, 10, &e) && e.owner == 2 && e.end_ns == 10);
    ck_assert(flows_end(f, INFINITY, &e) && e.owner == 1 && e.end_ns == 50);
}
END_TEST

START_TEST(routes_may_share_more_resources_than_a_word_has_bits)
{
    /* Three routes over the same 100 resources of 1 B/ns; 100, 200 and 300 bytes: thirds until 300, halves until 500. */
    enum { LINKS = 100 };
    struct flows *f = flows_new(arena);
    int32_t link[LINKS], route[3];
    for (int i = 0; i < LINKS; i++) link[i] = resource(f, 1e9);
    for (int i = 0; i < 3; i++) route[i] = flows_route(f, link, LINKS);
    for (int again = 0; again < 2; again++) {
        struct flow_end e;
        for (int i = 0; i < 3; i++) flows_start(f, again * 600, route[i], 100 * (i + 1), i);
        const double end[3] = {300, 500, 600};
        for (int i = 0; i < 3; i++) {
            ck_assert(flows_end(f, INFINITY, &e) && e.owner == i);
            ck_assert_double_eq_tol(e.end_ns, again * 600 + end[i], 1e-9);
        }
    }
}
END_TEST

START_TEST(a_resource_named_twice_counts_once)
{
    struct flows *f = flows_new(arena);
    int32_t r = resource(f, 1e9), loop[3] = {r, r, r};
    int32_t route = flows_route(f, loop, 3);
    flows_start(f, 0, route, 70, 1);
    ck_assert_double_eq(flows_next_ns(f), 70);
}
END_TEST

START_TEST(a_capacity_that_is_no_capacity_is_refused)
{
    struct flows *f = flows_new(arena);
    const double bad[] = {0, -1, NAN, INFINITY};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct error err = {0};
        int32_t out;
        ck_assert_int_eq(flows_resource(f, "dead", bad[i], &out, &err), ERR_INPUT);
        ck_assert_msg(strstr(err.text, "dead: capacity") != NULL, "%s", err.text);
    }
}
END_TEST

START_TEST(another_origin_changes_nothing_but_the_numbers)
{
    for (int shifted = 0; shifted < 2; shifted++) {
        struct flows *f = flows_new(arena);
        int32_t r[2] = {resource(f, 1e9), resource(f, 3e9)};
        int32_t both = flows_route(f, r, 2), one = flows_route(f, &r[1], 1);
        struct flow_end e;
        double origin = 0;
        flows_start(f, 1e6, both, 5000, 1);
        flows_start(f, 1e6 + 64, one, 7000, 2);
        if (shifted) flows_rebase(f, origin = 1e6);
        flows_start(f, 1e6 + 128 - origin, both, 100, 3);
        /* both: 4872 left at 128, halved: 3 ends after 200; one: 2 a ns throughout: 3500. */
        ck_assert(flows_end(f, INFINITY, &e) && e.owner == 3);
        ck_assert_double_eq(e.end_ns, 1e6 + 328 - origin);
        ck_assert(flows_end(f, INFINITY, &e) && e.owner == 2);
        ck_assert_double_eq(e.end_ns, 1e6 + 3564 - origin);
        ck_assert_double_eq(e.start_ns, 1e6 + 64 - origin);
        ck_assert(flows_end(f, INFINITY, &e) && e.owner == 1);
        ck_assert_double_eq(e.end_ns, 1e6 + 5100 - origin);
    }
}
END_TEST

/* --- the referee: capacities, routes as sets of resources, rates by filling from nothing --- */

enum { RESOURCES = 120, ROUTES = 160, HOPS = 30, FLOWS = 400 };

/* The most of everything. Large: more routes have flows, and more resources are contended, than the words of few flows
 * have bits, so that there and back is gone too. */
struct size {
    int32_t resources, routes, hops;
};
static const struct size small = {40, 60, 6}, many_routes = {RESOURCES, ROUTES, 6},
                         long_routes = {RESOURCES, ROUTES, HOPS};

struct referee {
    int32_t n_resources, n_routes;
    double capacity[RESOURCES];
    int32_t n_hops[ROUTES], hop[ROUTES][HOPS], live[ROUTES];
    double rate[ROUTES];
};

static bool crosses(const struct referee *x, int32_t route, int32_t r)
{
    for (int32_t i = 0; i < x->n_hops[route]; i++)
        if (x->hop[route][i] == r) return true;
    return false;
}

static void fill(struct referee *x)
{
    bool done[ROUTES] = {false};
    for (int32_t i = 0; i < x->n_routes; i++) x->rate[i] = 0, done[i] = !x->live[i];
    for (;;) {
        double least = INFINITY;
        int32_t at = -1;
        for (int32_t r = 0; r < x->n_resources; r++) {
            double left = x->capacity[r];
            int32_t n = 0;
            for (int32_t i = 0; i < x->n_routes; i++)
                if (crosses(x, i, r)) {
                    if (done[i])
                        left -= x->rate[i] * x->live[i];
                    else
                        n += x->live[i];
                }
            if (n && left / n < least) least = left / n, at = r;
        }
        if (at < 0) return;
        for (int32_t i = 0; i < x->n_routes; i++)
            if (!done[i] && crosses(x, i, at)) x->rate[i] = least, done[i] = true;
    }
}

struct draws {
    uint64_t seed, n;
};
static int32_t draw(struct draws *d, int32_t n)
{
    return (int32_t)rng_below(d->seed, 7, d->n++, (uint64_t)n);
}

static void make_network(struct draws *d, struct size most, struct referee *x, struct flows *f,
                         int32_t *route)
{
    static const double speeds[] = {1e9, 1e9, 2e9, 3e9, 12.5e9, 7.7e8, 4e10};
    *x = (struct referee){.n_resources = 1 + draw(d, most.resources)};
    x->n_routes = 1 + draw(d, most.routes);
    for (int32_t r = 0; r < x->n_resources; r++) {
        x->capacity[r] = speeds[draw(d, sizeof speeds / sizeof *speeds)];
        if (draw(d, 2)) x->capacity[r] *= 1 + 0.001 * draw(d, 999);
        resource(f, x->capacity[r]);
    }
    for (int32_t i = 0; i < x->n_routes; i++) {
        x->n_hops[i] = 1 + draw(d, most.hops);
        for (int32_t k = 0; k < x->n_hops[i]; k++) x->hop[i][k] = draw(d, x->n_resources);
        route[i] = flows_route(f, x->hop[i], x->n_hops[i]);
    }
}

static void compare(struct referee *x, struct flows *f, const int32_t *route, uint64_t seed)
{
    fill(x);
    for (int32_t i = 0; i < x->n_routes; i++) {
        double rate = flows_rate(f, route[i]);
        ck_assert_msg(fabs(rate - x->rate[i]) <= 1e-9 * x->rate[i],
                      "seed %llu route %d: %.17g, not %.17g", (unsigned long long)seed, (int)i,
                      rate, x->rate[i]);
    }
}

/* What was started and has not ended has exactly so much left; ends come in order of time. */
static void play(uint64_t seed, struct size most)
{
    struct draws d = {seed, 0};
    struct referee x;
    struct flows *f = flows_new(arena);
    int32_t route[ROUTES], n = 1 + draw(&d, draw(&d, 4) ? 40 : FLOWS);
    double now = 0;
    make_network(&d, most, &x, f, route);
    for (int32_t started = 0; started < n || flows_alive(f);) {
        struct flow_end e;
        if (started < n && (draw(&d, 5) || !flows_alive(f))) {
            int32_t to = draw(&d, x.n_routes);
            x.live[to]++, started++;
            flows_start(f, now, route[to], 1 + draw(&d, 1000000), to);
        } else if (started < n && !draw(&d, 3)) {
            double next = flows_next_ns(f);
            now += (next - now) * 0.001 * draw(&d, 999); /* between two ends */
        } else {
            ck_assert(flows_end(f, INFINITY, &e) && e.end_ns >= now);
            now = e.end_ns;
            x.live[e.owner]--;
        }
        if (!draw(&d, most.resources / 10)) compare(&x, f, route, seed);
    }
    compare(&x, f, route, seed);
}

START_TEST(rates_are_those_of_naive_filling_on_random_sets_of_flows)
{
    uint64_t n = suites_long() ? 10000 : 300;
    for (uint64_t seed = 0; seed < n; seed++) {
        play(seed, small);
        arena_reset(arena);
    }
}
END_TEST

START_TEST(rates_are_those_of_naive_filling_where_flows_turn_from_few_to_many_and_back)
{
    uint64_t n = suites_long() ? 200 : 16;
    for (uint64_t seed = 2000000; seed < 2000000 + n; seed++) {
        play(seed, many_routes);
        play(seed, long_routes);
        arena_reset(arena);
    }
}
END_TEST

/* Ends by stepping a naive fluid from change to change. */
START_TEST(ends_are_those_of_a_naive_fluid)
{
    for (uint64_t seed = 0; seed < (suites_long() ? 300 : 60); seed++) {
        struct draws d = {seed + 1000000, 0};
        struct referee x;
        struct flows *f = flows_new(arena);
        int32_t route[ROUTES], to[FLOWS], n = 1 + draw(&d, 80);
        double left[FLOWS], end[FLOWS], now = 0;
        make_network(&d, small, &x, f, route);
        for (int32_t i = 0; i < n; i++) {
            x.live[to[i] = draw(&d, x.n_routes)]++;
            flows_start(f, 0, route[to[i]], left[i] = 1 + draw(&d, 1000000), i);
        }
        for (int32_t gone = 0; gone < n;) {
            double step = INFINITY;
            fill(&x);
            for (int32_t i = 0; i < n; i++)
                if (left[i] > 0) step = fmin(step, left[i] / x.rate[to[i]] * 1e9);
            now += step;
            for (int32_t i = 0; i < n; i++) {
                if (!(left[i] > 0)) continue;
                left[i] -= step * x.rate[to[i]] / 1e9;
                if (left[i] > 1e-7) continue;
                left[i] = 0, end[i] = now, gone++, x.live[to[i]]--;
            }
        }
        for (int32_t k = 0; k < n; k++) {
            struct flow_end e;
            ck_assert(flows_end(f, INFINITY, &e));
            ck_assert_double_eq_tol(e.end_ns, end[e.owner], 1e-3 + 1e-9 * end[e.owner]);
        }
        arena_reset(arena);
    }
}
END_TEST

/* --- known makespans --- */

START_TEST(w2_ends_when_it_is_known_to)
{
    static const struct {
        int32_t n;
        double dt_ns;
        const char *makespan, *sum;
    } cases[] = {{4032, 0, "4.032000000", "11612.160000"},
                 {1000, 1e5, "1.003482819", "707.650836"},
                 {10000, 1e6, "10.051848913", "50369.859837"},
                 {10000, 1e5, "10.000147030", "70661.710889"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct w2_result r = w2_run(arena, cases[i].n, cases[i].dt_ns);
        char text[40];
        snprintf(text, sizeof text, "%.9f", r.makespan_s);
        ck_assert_str_eq(text, cases[i].makespan);
        snprintf(text, sizeof text, "%.6f", r.sum_s);
        ck_assert_str_eq(text, cases[i].sum);
        arena_reset(arena);
    }
}
END_TEST

/* W1h: strict 1F1B on 64 unequal stages; messages of a stage may overtake none and wait for none: all that are in flight
 * on a link share it. Compute of stage s is {1, 1.25, 1.5, 2}[s mod 4] times 1 ms forwards and 2 ms backwards; occupancy
 * of the link behind stage s is 0.4 ms, or 4 ms where s mod 8 = 7; latency 10 and 50 us. */
enum { W1_STAGES = 64 };

struct w1 {
    int32_t stages, microbatches;
    struct flows *flows;
    struct event_queue *queue;
    int32_t route[W1_STAGES][2];                     /* behind stage s: activations, gradients */
    int32_t forward[W1_STAGES], backward[W1_STAGES]; /* done */
    int32_t activations[W1_STAGES], gradients[W1_STAGES]; /* arrived */
    bool busy[W1_STAGES];
    int64_t end_ns;
};

static bool slow_link(int32_t s) { return s % 8 == 7; }

static void w1_begin(struct w1 *w, int32_t s, int64_t now)
{
    static const int64_t pace[4] = {100, 125, 150, 200};
    int32_t warm = w->stages - s - 1 < w->microbatches ? w->stages - s - 1 : w->microbatches;
    int32_t f = w->forward[s], b = w->backward[s];
    bool forwards = f < w->microbatches && f - b <= warm; /* F, then B, when the warm-up is over */
    if (w->busy[s] || b == w->microbatches) return;
    if (f - b > warm) forwards = false;
    if (forwards ? s > 0 && w->activations[s] <= f : s + 1 < w->stages && w->gradients[s] <= b)
        return;
    w->busy[s] = true;
    event_queue_push(w->queue,
                     (struct event){.time_ns = now + (forwards ? 10000 : 20000) * pace[s % 4],
                                    .kind = forwards ? 0 : 1,
                                    .index = s});
}

static void w1_computed(struct w1 *w, int32_t s, bool forwards, int64_t now)
{
    w->busy[s] = false;
    w->end_ns = now;
    if (forwards) {
        w->forward[s]++;
        if (s + 1 < w->stages) flows_start(w->flows, (double)now, w->route[s][0], 10e6, s + 1);
    } else {
        w->backward[s]++;
        if (s > 0) flows_start(w->flows, (double)now, w->route[s - 1][1], 10e6, -s);
    }
    w1_begin(w, s, now);
}

/* owner: the stage behind the link for an activation, minus the link's number plus one for a gradient */
static void w1_left(struct w1 *w, const struct flow_end *e)
{
    bool gradient = e->owner <= 0;
    int32_t link = (int32_t)(gradient ? -e->owner : e->owner) - 1;
    event_queue_push(w->queue, (struct event){.time_ns = (int64_t)llround(e->end_ns) +
                                                         (slow_link(link) ? 50000 : 10000),
                                              .kind = gradient ? 3 : 2,
                                              .index = gradient ? link : link + 1});
}

static int64_t w1_run(int32_t stages, int32_t microbatches)
{
    struct w1 *w = ARENA_ARRAY(arena, struct w1, 1);
    *w = (struct w1){.stages = stages, .microbatches = microbatches};
    w->flows = flows_new(arena);
    w->queue = event_queue_new(arena, 64);
    for (int32_t s = 0; s + 1 < stages; s++)
        for (int32_t hop = 0; hop < 2; hop++) {
            int32_t r = resource(w->flows, slow_link(s) ? 2.5e9 : 25e9);
            w->route[s][hop] = flows_route(w->flows, &r, 1);
        }
    w1_begin(w, 0, 0);
    while (event_queue_size(w->queue) || flows_alive(w->flows)) {
        struct flow_end e;
        /* A flow that ends before the next event may have events of its own before it. */
        struct event x = {.time_ns = INT64_MAX};
        if (event_queue_size(w->queue)) x = event_queue_pop(w->queue);
        double limit = x.time_ns == INT64_MAX ? INFINITY : (double)x.time_ns;
        if (flows_next_ns(w->flows) <= limit && flows_end(w->flows, limit, &e)) {
            if (x.time_ns != INT64_MAX) event_queue_push(w->queue, x);
            w1_left(w, &e);
        } else if (x.kind < 2) {
            w1_computed(w, x.index, x.kind == 0, x.time_ns);
        } else {
            (x.kind == 2 ? w->activations : w->gradients)[x.index]++;
            w1_begin(w, x.index, x.time_ns);
        }
    }
    return w->end_ns;
}

START_TEST(w1h_by_fluid_sharing_ends_when_it_is_known_to)
{
    ck_assert_int_eq(w1_run(4, 8), 61710000);
    ck_assert_int_eq(w1_run(64, 1024), INT64_C(9143473284));
}
END_TEST

/* --- device groups --- */

START_TEST(a_million_flows_that_start_at_once_end_when_they_must)
{
    /* 1,000 routes over 100 doors of 1 B/ns and one hall of 50: 1,000 flows a route, each of 100 bytes: 1e8 bytes through
     * the hall: 2e6 ns; a door could do 1e6 bytes in 1e6 ns. */
    enum { DOORS = 100, EACH = 1000 };
    struct flows *f = flows_new(arena);
    int32_t hall = resource(f, 50e9), route[DOORS * 10];
    struct flow_end e;
    for (int32_t i = 0; i < DOORS; i++) {
        int32_t hop[2] = {hall, resource(f, 1e9)};
        for (int32_t k = 0; k < 10; k++) route[10 * i + k] = flows_route(f, hop, 2);
    }
    for (int32_t k = 0; k < EACH; k++)
        for (int32_t i = 0; i < 10 * DOORS; i++) flows_start(f, 0, route[i], 100, i);
    ck_assert_int_eq(flows_alive(f), 1000 * EACH);
    for (int64_t n = 0; n < 1000 * EACH; n++) {
        ck_assert(flows_end(f, INFINITY, &e));
        ck_assert_double_eq_tol(e.end_ns, 2e6, 1e-3);
    }
    ck_assert(!flows_end(f, INFINITY, &e));
}
END_TEST

START_TEST(many_flows_that_end_one_by_one_are_no_more_work)
{
    /* One resource of 1 B/ns, sizes 1 … n: the k-th ends when k(k+1)/2 + k(n-k) bytes have been served. */
    const int64_t n = suites_long() ? 1000000 : 200000;
    struct flows *f = flows_new(arena);
    int32_t r = resource(f, 1e9), route = flows_route(f, &r, 1);
    for (int64_t i = 1; i <= n; i++) flows_start(f, 0, route, (double)i, i);
    for (int64_t k = 1; k <= n; k++) {
        struct flow_end e;
        ck_assert(flows_end(f, INFINITY, &e) && e.owner == k);
        double served = 0.5 * (double)k * (double)(k + 1) + (double)k * (double)(n - k);
        ck_assert_double_eq_tol(e.end_ns, served, 1e-2 + 1e-12 * served);
    }
}
END_TEST

Suite *flows_suite(void)
{
    Suite *s = suite_create("sim/network/flows");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 600);
    tcase_add_checked_fixture(t, setup, teardown);
    tcase_add_test(t, flows_of_one_resource_share_it_equally);
    tcase_add_test(t, a_long_flow_gets_the_share_of_its_fullest_link);
    tcase_add_test(t, a_flow_without_bytes_ends_when_it_starts);
    tcase_add_test(t, routes_may_share_more_resources_than_a_word_has_bits);
    tcase_add_test(t, a_resource_named_twice_counts_once);
    tcase_add_test(t, a_capacity_that_is_no_capacity_is_refused);
    tcase_add_test(t, another_origin_changes_nothing_but_the_numbers);
    tcase_add_test(t, rates_are_those_of_naive_filling_on_random_sets_of_flows);
    tcase_add_test(t, rates_are_those_of_naive_filling_where_flows_turn_from_few_to_many_and_back);
    tcase_add_test(t, ends_are_those_of_a_naive_fluid);
    tcase_add_test(t, w2_ends_when_it_is_known_to);
    tcase_add_test(t, w1h_by_fluid_sharing_ends_when_it_is_known_to);
    tcase_add_test(t, a_million_flows_that_start_at_once_end_when_they_must);
    tcase_add_test(t, many_flows_that_end_one_by_one_are_no_more_work);
    suite_add_tcase(s, t);
    return s;
}
