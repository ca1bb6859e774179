/* The bound on any plan: values computed by hand, and never above a simulated iteration. */
#include "core/base/arena.h"
#include "planner/bound/cluster.h"
#include "planner/bound/lp.h"
#include "planner/candidate/scorer.h"
#include "planner/search.h"
#include "profiles/team.h"
#include "tests/support/random_teams.h"
#include "tests/support/suites.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

/* --- by hand --- */

/* min x0: x0 >= 3 - x1, x1 <= 1 (as every column): 2. */
START_TEST(a_linear_program_gives_its_optimum_as_a_bound)
{
    struct arena *a = arena_new();
    struct bound_lp *p = bound_lp_new(a, 2);
    int32_t row = bound_lp_row(p, 3);
    bound_lp_put(p, row, 0, 1);
    bound_lp_put(p, row, 1, 1);
    ck_assert_double_eq_tol(bound_lp_solve(p), 2, 1e-12);
    row = bound_lp_row(p, 2); /* x1 >= 2 cannot be */
    bound_lp_put(p, row, 1, 1);
    ck_assert_double_eq(bound_lp_solve(p), INFINITY);
    arena_free(a);
}
END_TEST

static int64_t solved(struct bound_any *b, const char *binding)
{
    struct bound_certificate c;
    struct error err = {0};
    ck_assert_msg(bound_any_solve(b, &c, &err) == OK, "%s", err.text);
    ck_assert_msg(strncmp(c.binding, binding, strlen(binding)) == 0, "%s", c.binding);
    return c.lower_bound_ns;
}

/* Off by what floored() takes at most. */
#define NEARLY(value, expected)                                                                    \
    do {                                                                                           \
        int64_t value_ = (value);                                                                  \
        ck_assert_msg(value_ <= (expected) && value_ >= (expected)-3, "%lld", (long long)value_);  \
    } while (0)

static struct bound_offer offer(double f, double i, double w, double update)
{
    return (struct bound_offer){1, 1, f, i, w, update, 0};
}

/* One layer, 600 samples; a class of one device at 10 us a sample and one of two at 30 us: rates 1/10 + 2/30 = 1/6. */
START_TEST(device_classes_share_the_batch_by_their_rates)
{
    struct arena *a = arena_new();
    struct bound_any *b = bound_any_new(a, 1, 2, (int64_t[]){1, 2}, 600);
    struct bound_offer fast = offer(3000, 3000, 4000, 0), slow = offer(10000, 10000, 10000, 0);
    bound_any_offer(b, 0, 0, &fast);
    bound_any_offer(b, 1, 0, &slow);
    NEARLY(solved(b, "compute"), 3600000);
    /* Two GPUs that together take 2 samples in 20 us: 20 GPU-us a sample, better than 30. 1/10 + 2/20 = 1/5. */
    bound_any_offer(b, 1, 0, &(struct bound_offer){2, 2, 5000, 5000, 10000, 0, 0});
    NEARLY(solved(b, "compute"), 3000000);
    arena_free(a);
}
END_TEST

/* Two layers of 10 us and 20 us each; layer 1 fits only on class 1. Class 0 does layer 0 alone: 10 · 10; class 1 does layer 1:
 * 10 · 20 = 200 us. Updates of 15 us each: class 1's is its own, layer 0's goes where there is time. */
START_TEST(a_layer_that_only_one_device_class_holds_is_its_work)
{
    struct arena *a = arena_new();
    struct bound_any *b = bound_any_new(a, 2, 2, (int64_t[]){1, 1}, 10);
    struct bound_offer one = offer(4000, 3000, 3000, 15000), two = offer(8000, 6000, 6000, 15000);
    bound_any_offer(b, 0, 0, &one);
    bound_any_offer(b, 1, 0, &one);
    struct bound_certificate c;
    struct error err = {0};
    ck_assert_int_eq(bound_any_solve(b, &c, &err), ERR_INFEASIBLE);
    bound_any_offer(b, 1, 1, &two);
    NEARLY(solved(b, "compute"), 215000);
    arena_free(a);
}
END_TEST

/* One sample: all of it passes F and I of both layers, then W of the first: 2 (4 + 3) + 3 us, more than 20 / 2. */
START_TEST(one_microbatch_goes_there_and_back)
{
    struct arena *a = arena_new();
    struct bound_any *b = bound_any_new(a, 2, 1, (int64_t[]){2}, 1);
    struct bound_offer one = offer(4000, 3000, 3000, 0);
    bound_any_offer(b, 0, 0, &one);
    bound_any_offer(b, 0, 1, &one);
    NEARLY(solved(b, "latency"), 17000);
    arena_free(a);
}
END_TEST

/* Two equal devices, two equal layers of 10 us, 100 samples: 1000 us together, 2000 alone. */
START_TEST(a_slow_cut_leaves_three_choices)
{
    struct arena *a = arena_new();
    struct bound_any *b = bound_any_new(a, 2, 1, (int64_t[]){2}, 100);
    struct bound_offer one = offer(4000, 3000, 3000, 0);
    for (int l = 0; l < 2; l++) bound_any_offer(b, 0, l, &one);
    bound_any_cut(b, (int64_t[]){1}, 1e9, "cut");
    NEARLY(solved(b, "compute"), 1000000); /* nothing is known of bytes */
    for (int l = 0; l < 2; l++) bound_any_traffic(b, l, 1e6, 1e4);
    /* Activations: 2 · 100 · 1e4 B / 1e9 = 2000 us. Gradients: 2 · 2e6 / 1e9 = 4000 us. A part y of the batch
     * crosses to the side that has one layer: T = 2000 y us; the other side has (2 - y) 1000 us left: y = 2/3. */
    NEARLY(solved(b, "cut"), 1333333);
    for (int l = 0; l < 2; l++) bound_any_traffic(b, l, 3e5, 1e4);
    /* Now gradients cross in 2 · 6e5 / 1e9 = 1200 us. */
    NEARLY(solved(b, "cut"), 1200000);
    for (int l = 0; l < 2; l++) bound_any_traffic(b, l, 3e5, 1e3);
    NEARLY(solved(b, "compute"), 1000000);
    arena_free(a);
}
END_TEST

/* The first test's classes at 6 and 1 an hour: a sample costs 10 us · 6 on the fast one, 30 us · 1 on a slow one. So all 600 go to
 * the slow ones, 18,000 us at 1. Within 4,500 us these two take 300 samples, and the fast one the rest: 9,000 + 18,000. */
START_TEST(work_costs_what_the_cheapest_devices_take_for_it)
{
    struct arena *a = arena_new();
    struct bound_certificate c;
    struct error err = {0};
    const double longest_ns[] = {0, 9000000, 4500000, 3600000, 3500000},
                 paid_us[] = {18000, 18000, 27000, 7200 + 21600, 0};
    for (size_t i = 0; i < 5; i++) {
        struct bound_any *b = bound_any_new(a, 1, 2, (int64_t[]){1, 2}, 600);
        struct bound_offer fast = offer(3000, 3000, 4000, 0), slow = offer(10000, 10000, 10000, 0);
        bound_any_offer(b, 0, 0, &fast);
        bound_any_offer(b, 1, 0, &slow);
        bound_any_prices(b, (double[]){6, 1}, longest_ns[i]);
        ck_assert_int_eq(bound_any_solve(b, &c, &err), OK);
        double most = bound_money(1, 1000 * paid_us[i]);
        ck_assert_msg(c.lower_cost <= most && c.lower_cost >= most * (1 - 1e-5), "%zu: %g, not %g",
                      i, c.lower_cost, most);
    }
    /* Where a class is free nothing is known. */
    struct bound_any *b = bound_any_new(a, 1, 2, (int64_t[]){1, 2}, 600);
    struct bound_offer fast = offer(3000, 3000, 4000, 0);
    bound_any_offer(b, 0, 0, &fast);
    bound_any_prices(b, (double[]){6, 0}, 0);
    ck_assert_int_eq(bound_any_solve(b, &c, &err), OK);
    ck_assert_double_eq(c.lower_cost, 0);
    ck_assert_double_eq_tol(bound_cost_gap(1.15, 1), 0.15, 1e-12);
    ck_assert(isinf(bound_cost_gap(1.15, 0)));
    arena_free(a);
}
END_TEST

START_TEST(gaps_are_parts_of_the_bound)
{
    ck_assert_double_eq_tol(bound_gap(115, 100), 0.15, 1e-12);
    ck_assert(isinf(bound_gap(115, 0)));
}
END_TEST

/* --- against plans --- */

struct tally {
    int64_t plans, cases, cuts, latencies;
    double min_gap, min_cost_gap;
    int64_t bought, limited; /* plans beside a bound on cost, with a longest iteration */
};

/* Costs of plans against two bounds: of any plan, and of those that take at most so long. */
static void check_costs(const struct plan *p, int64_t ns, const struct bound_certificate *any,
                        const struct bound_certificate *within, double most_ns, uint64_t seed,
                        struct tally *t)
{
    double cost = plan_cost(p, ns);
    ck_assert_msg(any->lower_cost > 0 && any->lower_cost <= cost, "seed %d: cost %g below %g",
                  (int)seed, cost, any->lower_cost);
    ck_assert_double_ge(within->lower_cost, any->lower_cost * (1 - 1e-6));
    t->bought++;
    t->min_cost_gap = fmin(t->min_cost_gap, bound_cost_gap(cost, any->lower_cost));
    if ((double)ns > most_ns) return;
    t->limited++;
    ck_assert_msg(within->lower_cost <= cost, "seed %d: cost %g below %g within %g ns", (int)seed,
                  cost, within->lower_cost, most_ns);
}

static void check_case(struct arena *a, uint64_t seed, int32_t plans, struct tally *t)
{
    struct draw d = {seed, 0};
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct error err = {0};
    struct space spaces[2];
    struct lower_options lower = {.check_memory = true};
    random_teams_case(a, &d, &job, &cluster);
    ck_assert_msg(profile_prior(a, &cluster, &profile, &err) == OK, "%s", err.text);
    ck_assert_int_eq(team_fused(a, &cluster, &lower, &err), OK);
    struct draw money = {seed, 1000000};
    for (int32_t i = 0; i < cluster.n_types; i++)
        cluster.types[i].priced = true,
        cluster.types[i].price_per_h = 0.1 * (double)(1 + random_teams_below(&money, 60));
    struct cost *cost = cost_new(a, &profile, &cluster);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(space_make(a, &job, &cluster, cost, i + 1, &lower, &spaces[i], &err) == OK,
                      "%s", err.text);
    struct bound_certificate b, within = {.lower_cost = 0};
    const struct space *both[] = {&spaces[0], &spaces[1]};
    enum status st = bound_cluster(a, &cluster, cost, both, 2, BOUND_STAGES_WHOLE, 0, &b, &err);
    ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s", err.text);
    if (st == ERR_INFEASIBLE) b = (struct bound_certificate){INT64_MAX, "no device", "", 0};
    double most_ns =
        (double)b.lower_bound_ns * (1.1 + 0.1 * (double)random_teams_below(&money, 30));
    if (st == OK)
        ck_assert_int_eq(bound_cluster(a, &cluster, cost, both, 2, BOUND_STAGES_WHOLE, most_ns, &within, &err), OK);
    struct scorer *scorer = scorer_new(&lower);
    for (int32_t i = 0; i < plans; i++) {
        struct plan p;
        int64_t ns;
        const struct space *s = &spaces[random_teams_below(&d, 2)];
        random_teams_plan(scorer_arena(scorer), &d, s, &p);
        ck_assert_msg(scorer_run(scorer, s, &p, &ns, &err) == OK, "seed %d: %s", (int)seed,
                      err.text);
        if (ns == INT64_MAX) continue;
        ck_assert_msg(b.lower_bound_ns <= ns, "seed %d: bound %lld (%s) above %lld", (int)seed,
                      (long long)b.lower_bound_ns, b.binding, (long long)ns);
        t->plans++;
        t->min_gap = fmin(t->min_gap, bound_gap(ns, b.lower_bound_ns));
        check_costs(&p, ns, &b, &within, most_ns, seed, t);
    }
    scorer_free(scorer);
    t->cases++;
    t->cuts += !strncmp(b.binding, "bandwidth of link ", 18) && strstr(b.binding, " and the other ");
    t->latencies += !strncmp(b.binding, "latency", 7);
}

START_TEST(no_bound_is_above_a_simulated_plan)
{
    struct arena *a = arena_new();
    struct tally t = {.min_gap = INFINITY, .min_cost_gap = INFINITY};
    uint64_t cases = suites_long() ? 2500 : 60;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) check_case(a, seed, 12, &t);
    arena_free(a);
    ck_assert_msg(t.plans > (int64_t)(5 * cases) && t.cuts > (int64_t)cases / 50 &&
                      t.latencies > 0 && t.min_gap < 0.6,
                  "%lld cases, %lld plans, %lld cuts, %lld latencies, least gap %g",
                  (long long)t.cases, (long long)t.plans, (long long)t.cuts, (long long)t.latencies,
                  t.min_gap);
    ck_assert_msg(t.bought == t.plans && t.limited > (int64_t)cases && t.min_cost_gap < 0.5,
                  "%lld plans with a cost, %lld within a time, least gap %g", (long long)t.bought,
                  (long long)t.limited, t.min_cost_gap);
    if (getenv("MUSHER_PRINT"))
        printf("%lld plans with a cost, %lld within a time, least gap of cost %g\n",
               (long long)t.bought, (long long)t.limited, t.min_cost_gap);
}
END_TEST

START_TEST(no_bound_is_above_what_the_search_finds)
{
    struct arena *a = arena_new();
    uint64_t cases = suites_long() ? 100 : 10;
    int32_t found = 0;
    int32_t near = 0;
    for (uint64_t seed = 5000; seed < 5000 + cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 0};
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct error err = {0};
        struct search_result r;
        random_teams_case(a, &d, &job, &cluster);
        /* Fast links and work on weights alone, so that dividing gradients pays: they are written then, not added to. */
        if (seed % 2) job.sequence_length = 1;
        for (int32_t k = 0; seed % 2 && k < cluster.n_links; k++)
            cluster.links[k].bandwidth_Bps = 1e11, cluster.links[k].latency_s = 1e-7;
        ck_assert_int_eq(profile_prior(a, &cluster, &profile, &err), OK);
        struct search_options o = {.top = 1, .evaluations = 300};
        enum status st = search_plans(a, &job, &cluster, &profile, &o, &r, &err);
        ck_assert_msg(st == OK || st == ERR_INFEASIBLE, "%s", err.text);
        if (st != OK) continue;
        found++;
        ck_assert_msg(r.lower_bound_ns <= r.plans[0].iteration_ns, "seed %d: bound %lld (%s)",
                      (int)seed, (long long)r.lower_bound_ns, r.binding);
        for (int32_t i = 0; i < r.n_baselines; i++)
            ck_assert_int_le(r.lower_bound_ns, r.baselines[i].iteration_ns);
        ck_assert_double_eq(r.gap, bound_gap(r.plans[0].iteration_ns, r.lower_bound_ns));
        near += r.gap < 3;
    }
    arena_free(a);
    /* Links here may be slower than any real ones; then one device is best, and the bound does not see why. */
    ck_assert_msg(found > (int)cases / 2 && near > found / 2, "%d found, %d near", found, near);
}
END_TEST

/* Nodes of 2 or 4 GPUs that may shard operators, one or two and four at a time; small matrices, so that sharing costs. */
static void put_gpus(struct yaml_text *t, struct draw *d)
{
    static const char *const types[] = {"A100-SXM4-40", "V100-SXM2-32", "H100-SXM5"};
    int nodes = 1 + (int)random_teams_below(d, 3);
    random_teams_put(t, "version: 1\nname: c\ndevice_types:\n");
    for (int i = 0; i < 3; i++) random_teams_put(t, "  - {name: t%d, device: %s}\n", i, types[i]);
    random_teams_put(t, "nodes:\n");
    for (int i = 0; i < nodes; i++) {
        int type = (int)random_teams_below(d, 3), count = random_teams_below(d, 2) ? 2 : 4;
        random_teams_put(t, "  - {name: n%d, host: h%d, devices: [{type: t%d, count: %d}]}\n", i, i,
                         type, count);
    }
    random_teams_put(t, "switches: [{name: core}]\nlinks:\n");
    for (int i = 0; i < nodes; i++) {
        random_teams_put(t,
                         "  - {name: bus%d, between: [n%d], bandwidth: %d GB/s, latency: 3 us}\n",
                         i, i, 30 + 100 * (int)random_teams_below(d, 3));
        random_teams_put(
            t, "  - {name: up%d, between: [n%d, core], bandwidth: %d MB/s, latency: 9 us}\n", i, i,
            20 + 3000 * (int)random_teams_below(d, 4));
    }
}

START_TEST(no_bound_is_above_a_plan_with_tensor_parallel_gpus)
{
    struct arena *a = arena_new();
    uint64_t cases = suites_long() ? 60 : 5;
    for (uint64_t seed = 0; seed < cases; seed++, arena_reset(a)) {
        struct draw d = {seed, 7000};
        struct yaml_text c = {.n = 0}, j = {.n = 0};
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct error err = {0};
        struct search_result r;
        put_gpus(&c, &d);
        int blocks = 1 + (int)random_teams_below(&d, 4),
            batch = 4 * (1 + (int)random_teams_below(&d, 8));
        random_teams_put(
            &j,
            "version: 1\nmodel: {model_type: gpt2, n_embd: 256, n_layer: %d, n_head: 4, "
            "n_positions: 64, vocab_size: 1024}\nsequence_length: 64\nglobal_batch: %d\n"
            "microbatch: [1, 4]\nprecision: fp16\n",
            blocks, batch);
        ck_assert_msg(cluster_parse(a, random_teams_parsed(a, &c), &cluster, &err) == OK, "%s",
                      err.text);
        ck_assert_msg(job_parse(a, random_teams_parsed(a, &j), ".", &job, &err) == OK, "%s",
                      err.text);
        ck_assert_msg(team_complete(&cluster, &err) == OK, "%s", err.text);
        ck_assert_msg(profile_prior(a, &cluster, &profile, &err) == OK, "%s", err.text);
        struct search_options o = {.top = 1, .evaluations = 300};
        ck_assert_msg(search_plans(a, &job, &cluster, &profile, &o, &r, &err) == OK, "%s",
                      err.text);
        ck_assert_int_gt(r.lower_bound_ns, 0);
        ck_assert_msg(r.lower_bound_ns <= r.plans[0].iteration_ns, "seed %d: %lld (%s) > %lld",
                      (int)seed, (long long)r.lower_bound_ns, r.binding,
                      (long long)r.plans[0].iteration_ns);
        for (int32_t i = 0; i < r.n_baselines; i++)
            ck_assert_msg(r.lower_bound_ns <= r.baselines[i].iteration_ns, "seed %d: %s", (int)seed,
                          r.baselines[i].name);
    }
    arena_free(a);
}
END_TEST

/* Links that carry what is needed, 16 microbatches, four devices of three speeds: 12.2 % when written. */
START_TEST(the_example_is_certified_within_an_eighth)
{
    struct arena *a = arena_new();
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct error err = {0};
    struct search_result r;
    ck_assert_int_eq(job_read(a, "examples/job.yaml", &job, &err), OK);
    ck_assert_int_eq(cluster_read(a, "examples/team.yaml", &cluster, &err), OK);
    ck_assert_int_eq(team_complete(&cluster, &err), OK);
    ck_assert_int_eq(profile_prior(a, &cluster, &profile, &err), OK);
    struct search_options o = {.top = 1};
    ck_assert_msg(search_plans(a, &job, &cluster, &profile, &o, &r, &err) == OK, "%s", err.text);
    ck_assert_msg(r.gap >= 0 && r.gap < 0.125, "%g", r.gap);
    ck_assert_str_eq(r.binding, "compute of all devices");
    arena_free(a);
}
END_TEST

/* 400 layers that all differ, on four classes of 2,560 devices: the program has 800 rows. */
START_TEST(many_layers_and_devices_are_bounded_at_once)
{
    struct arena *a = arena_new();
    struct draw d = {1, 0};
    int64_t count[4] = {2560, 2560, 2560, 2560};
    struct bound_any *b = bound_any_new(a, 400, 4, count, 10240);
    double least = 0, best = INFINITY;
    for (int32_t l = 0; l < 400; l++) {
        double layer = INFINITY;
        for (int32_t g = 0; g < 4; g++) {
            double w = (double)(100000 * (g + 1) + random_teams_below(&d, 100000));
            struct bound_offer o = offer(w, w, w, 5000);
            bound_any_offer(b, g, l, &o);
            layer = fmin(layer, 3 * w);
        }
        least += layer;
    }
    best = 10240 * least / 10240; /* all at its cheapest, on all devices */
    clock_t begin = clock();
    int64_t ns = solved(b, "compute");
    double s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    ck_assert(ns > (int64_t)best && ns < 4 * (int64_t)best);
    ck_assert_msg(s < 2, "%g s", s); /* hundredths, without sanitizers */
    if (getenv("MUSHER_PRINT")) printf("%lld %g s\n", (long long)ns, s);
    arena_free(a);
}
END_TEST

Suite *bound_any_suite(void)
{
    Suite *s = suite_create("bound_any");
    TCase *t = tcase_create("all");
    tcase_set_timeout(t, 600);
    tcase_add_test(t, a_linear_program_gives_its_optimum_as_a_bound);
    tcase_add_test(t, device_classes_share_the_batch_by_their_rates);
    tcase_add_test(t, a_layer_that_only_one_device_class_holds_is_its_work);
    tcase_add_test(t, one_microbatch_goes_there_and_back);
    tcase_add_test(t, a_slow_cut_leaves_three_choices);
    tcase_add_test(t, work_costs_what_the_cheapest_devices_take_for_it);
    tcase_add_test(t, gaps_are_parts_of_the_bound);
    tcase_add_test(t, no_bound_is_above_a_simulated_plan);
    tcase_add_test(t, no_bound_is_above_what_the_search_finds);
    tcase_add_test(t, no_bound_is_above_a_plan_with_tensor_parallel_gpus);
    tcase_add_test(t, the_example_is_certified_within_an_eighth);
    tcase_add_test(t, many_layers_and_devices_are_bounded_at_once);
    suite_add_tcase(s, t);
    return s;
}
