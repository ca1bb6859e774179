/* The bound on messages between parts of a cluster: values computed by hand, and never above any division of work. */
#include "planner/bound/messages.h"

#include "core/base/arena.h"
#include "planner/bound/cluster.h"
#include "planner/search.h"
#include "planner/spmd_stage/spmd_stage.h"
#include "tests/support/random_teams.h"
#include "tests/support/spmd_stage_cases.h"
#include "tests/support/suites.h"

#include <math.h>
#include <string.h>

/* Four parts of a quarter of the cluster each, links of 1 byte a ns; four layers of 250 us. */
static double quarters(double crossing, double gradients, double known_ns)
{
    struct arena *a = arena_new();
    struct bound_layer_cost layers[4];
    for (int l = 0; l < 4; l++) layers[l] = (struct bound_layer_cost){250e3, gradients / 4};
    struct bound_part_kind part = {0.25, 1e9, 4};
    struct bound_messages m = {layers, &part, 4, 1, crossing};
    double ns = bound_messages_ns(a, &m, known_ns);
    arena_free(a);
    return ns;
}

/* Where crossing is out of the question, 1e6 ns of work need 4e6 / T parts with all layers, and their gradients 4 (4e6 / T - 1) 1e6
 * bytes on links that carry 4 T: T^2 + 1e6 T = 4e12. Where gradients are, parts of T / 4e6 of the layers make each sample cross
 * 4e6 / T - 1 times: the same. */
START_TEST(either_gradients_or_activations_cross)
{
    double expected = (sqrt(17) - 1) / 2 * 1e6;
    ck_assert_double_eq_tol(quarters(1e12, 1e6, 1e6), expected, 1);
    ck_assert_double_eq_tol(quarters(1e6, 1e12, 1e6), expected, 1);
    /* With d bytes of both, parts take half the layers and half the samples: 4 (4 / 2 - 1) 2 d bytes of 4e6 at T = 1e6. */
    ck_assert_double_eq_tol(quarters(0.4e6, 0.4e6, 1e6), 1e6, 1);
    ck_assert_double_gt(quarters(0.6e6, 0.6e6, 1e6), 1.05e6);
    /* Neither matters where the other is free, nor what is known already. */
    ck_assert_double_eq(quarters(1e12, 0, 1e6), 1e6);
    ck_assert_double_eq(quarters(0, 1e12, 1e6), 1e6);
    ck_assert_double_eq(quarters(1e12, 1e6, 2e6), 2e6);
}
END_TEST

enum { PARTS = 4, LAYERS = 5, SAMPLES = 6 };

struct work_division { /* which part does each layer of each sample */
    int32_t part[SAMPLES][LAYERS];
};

static void divide(struct draw *d, struct work_division *x)
{
    bool often = random_teams_below(d, 2), whole = random_teams_below(d, 2);
    for (int s = 0; s < SAMPLES; s++)
        for (int l = 0, at = 0; l < LAYERS; l++) {
            if (!l || random_teams_below(d, often ? 2 : 4) == 0)
                at = (int)random_teams_below(d, PARTS);
            x->part[s][l] = whole && s && random_teams_below(d, 8) ? x->part[s - 1][l] : at;
        }
}

/* Time of the division: work of every part at its share, messages over its links; gradients of k parts go round a ring. */
static double time_of(const struct work_division *x, const struct bound_layer_cost *layers,
                      const struct bound_part_kind *parts, double crossing)
{
    double work[PARTS] = {0}, bytes[PARTS] = {0}, ns = 0;
    for (int l = 0; l < LAYERS; l++) {
        bool held[PARTS] = {false};
        int k = 0;
        for (int s = 0; s < SAMPLES; s++) {
            int here = x->part[s][l], before = l ? x->part[s][l - 1] : here;
            work[here] += layers[l].work_ns / SAMPLES;
            if (!held[here]) held[here] = true, k++;
            if (before == here) continue;
            bytes[here] += 2 * crossing / SAMPLES, bytes[before] += 2 * crossing / SAMPLES;
        }
        for (int n = 0; n < PARTS; n++)
            if (held[n]) bytes[n] += 4.0 * (k - 1) / k * layers[l].bytes;
    }
    for (int n = 0; n < PARTS; n++) {
        if (work[n] > 0) ns = fmax(ns, work[n] / parts[n].share);
        if (bytes[n] > 0) ns = fmax(ns, bytes[n] / parts[n].Bps * 1e9);
    }
    return ns;
}

START_TEST(no_bound_is_above_a_division_of_the_work)
{
    struct arena *a = arena_new();
    int cases = suites_long() ? 20000 : 500, bound = 0;
    double least = INFINITY;
    for (int i = 0; i < cases; i++, arena_reset(a)) {
        struct draw d = {(uint64_t)i, 90000};
        struct bound_layer_cost layers[LAYERS], copy[LAYERS];
        struct bound_part_kind parts[PARTS];
        double sum = 0, work = 0, crossing = (double)random_teams_below(&d, 2000);
        for (int l = 0; l < LAYERS; l++) {
            layers[l].work_ns = (double)random_teams_below(&d, 5) * 100;
            layers[l].bytes = (double)random_teams_below(&d, 4) * 100;
            work += layers[l].work_ns;
        }
        for (int n = 0; n < PARTS; n++) {
            parts[n].share = (double)(1 + random_teams_below(&d, 3));
            parts[n].Bps = (double)(1 + random_teams_below(&d, 4)) * 2e8;
            parts[n].times = 1;
            sum += parts[n].share;
        }
        for (int n = 0; n < PARTS; n++) parts[n].share /= sum;
        memcpy(copy, layers, sizeof layers);
        struct bound_messages m = {copy, parts, LAYERS, PARTS, crossing};
        double ns = bound_messages_ns(a, &m, work);
        bound += ns > work;
        for (int k = 0; k < 60; k++) {
            struct work_division x;
            divide(&d, &x);
            double takes = time_of(&x, layers, parts, crossing);
            ck_assert_msg(ns <= takes * (1 + 1e-9), "case %d: %g above %g", i, ns, takes);
            if (ns > work) least = fmin(least, takes / ns - 1);
        }
    }
    arena_free(a);
    ck_assert_msg(bound > cases / 4 && least < 0.3, "%d of %d above their work, nearest %g", bound,
                  cases, least);
    if (getenv("MUSHER_PRINT"))
        printf("%d of %d above their work, the nearest division %.3g above\n", bound, cases, least);
}
END_TEST

/* Nodes with slow links: every plan that a search keeps, beside the bound of its stages. */
START_TEST(no_bound_is_above_what_a_search_keeps)
{
    struct arena *a = arena_new();
    uint64_t cases = suites_long() ? 200 : 8;
    int32_t plans = 0, messages = 0;
    for (uint64_t seed = 700; seed < 700 + cases; seed++, arena_reset(a)) {
        struct small *x = small_islands(a, seed);
        const struct space *both[] = {&x->space[0], &x->space[1]};
        struct bound_certificate b[BOUND_STAGES_ANY + 1];
        struct search_result r;
        struct error err = {0};
        struct search_options o = {.top = 16, .evaluations = 300};
        for (int k = 0; k <= BOUND_STAGES_ANY; k++)
            ck_assert_msg(bound_cluster(a, &x->cluster, x->cost, both, 2, (enum bound_stages)k, 0,
                                        &b[k], &err) == OK,
                          "%s", err.text);
        for (int k = 0; k < BOUND_STAGES_ANY; k++)
            ck_assert_int_ge(b[k].lower_bound_ns, b[k + 1].lower_bound_ns);
        messages += !strncmp(b[BOUND_STAGES_ON_NODE].binding, "messages", 8);
        enum status st = search_plans(a, &x->job, &x->cluster, &x->profile, &o, &r, &err);
        ck_assert_msg(st == OK, "%s", err.text);
        for (int32_t i = 0; i < r.n_plans; i++, plans++) {
            const struct bound_certificate *of = &b[spmd_stage_extent(&r.plans[i].plan)];
            ck_assert_msg(of->lower_bound_ns <= r.plans[i].iteration_ns,
                          "seed %d: %lld (%s) above %lld: %s", (int)seed,
                          (long long)of->lower_bound_ns, of->binding,
                          (long long)r.plans[i].iteration_ns, plan_describe(a, &r.plans[i].plan));
        }
    }
    arena_free(a);
    if (getenv("MUSHER_PRINT")) printf("%d plans kept, %d messages\n", plans, messages);
    ck_assert_msg(plans > (int)cases && messages > 0, "%d plans, %d messages", plans, messages);
}
END_TEST

Suite *bound_messages_suite(void)
{
    Suite *s = suite_create("bound_messages");
    TCase *t = tcase_create("messages");
    tcase_add_test(t, either_gradients_or_activations_cross);
    tcase_add_test(t, no_bound_is_above_a_division_of_the_work);
    tcase_add_test(t, no_bound_is_above_what_a_search_keeps);
    tcase_set_timeout(t, suites_long() ? 3000 : 300);
    suite_add_tcase(s, t);
    return s;
}
