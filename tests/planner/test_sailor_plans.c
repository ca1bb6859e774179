/* Planning from measured layers: musher's plans and the best plans of Sailor's class, both judged by Sailor's closed form
 * (data in tests/data/sailor_mixed: MIT, with their LICENSE). */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/search.h"
#include "tests/support/sailor_cases.h"
#include "tests/support/suites.h"
#include "tools/export/sailor.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

/* Plans of Sailor's class (one cut, equal shares) that our enumeration of it found; the first three are the best known ones
 * to the digit, the others better than what was known (5.07, 1.78, 73.9, 31.1). */
static const struct known {
    struct sailor_case c;
    double referee_s;
    int64_t microbatch;
    int32_t n_replicas, n_stages;
    struct sailor_stage stages[5];
} known[] = {
    {{"a16", "opt", "OPT-350", 14.42}, 14.4211, 4, 8, 1, {{0, 25, "a100", 2}}},
    {{"a8-v8", "opt", "OPT-350", 22.45}, 22.4539, 2, 8, 2, {{0, 6, "v100", 1}, {7, 25, "a100", 1}}},
    {{"a16-v16", "opt", "OPT-350", 12.06},
     12.0619,
     2,
     16,
     2,
     {{0, 6, "v100", 1}, {7, 25, "a100", 1}}},
    {{"a32-v96", "opt", "OPT-350", 5.07},
     4.9632,
     2,
     16,
     3,
     {{0, 8, "v100", 4}, {9, 12, "v100", 2}, {13, 25, "a100", 2}}},
    {{"a80-v240", "opt", "OPT-350", 0},
     2.4292,
     2,
     20,
     5,
     {{0, 4, "v100", 4},
      {5, 8, "v100", 4},
      {9, 15, "a100", 2},
      {16, 22, "a100", 2},
      {23, 25, "v100", 4}}},
    {{"a128-v384", "opt", "OPT-350", 1.78},
     1.7060,
     2,
     32,
     5,
     {{0, 4, "v100", 4},
      {5, 8, "v100", 4},
      {9, 15, "a100", 2},
      {16, 22, "a100", 2},
      {23, 25, "v100", 4}}},
    {{"a16-v16", "neo", "GPT-Neo-2.7", 73.9},
     73.6503,
     2,
     4,
     3,
     {{0, 5, "v100", 4}, {6, 19, "a100", 2}, {20, 33, "a100", 2}}},
    {{"a32-v96", "neo", "GPT-Neo-2.7", 31.1},
     30.9131,
     1,
     16,
     4,
     {{0, 3, "v100", 2}, {4, 10, "v100", 4}, {11, 21, "a100", 1}, {22, 33, "a100", 1}}},
};
enum { N_KNOWN = sizeof known / sizeof *known };

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

START_TEST(shares_of_ones_own_are_scored_replica_by_replica)
{
    /* Microbatches of two: 0.395741 s on an A100, 0.397556 on four V100 (sums of the tables by hand), updates 2.93 and 1.3 ms. */
    static const char text[] = "{\"pipeline_list\": [{\"layers_per_stage\": "
                               "[[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,"
                               "19,20,21,22,23,24,25]], \"tmp_per_stage\": "
                               "[[[[[\"A100-40\",4,\"z\"]],1],[[[\"V100-16\",4,\"z\"]]"
                               ",4]]], \"microbatches\": [384, 128]}], \"mbs\": 2, \"gbs\": 1024}";
    struct node *root = NULL;
    struct sailor_score s;
    MUST(document_parse(a, "plan", text, sizeof text - 1, &root, &err));
    MUST(sailor_referee(a, SAILOR_MIXED, "OPT-350", root, true, &s, &err));
    ck_assert_double_eq_tol(s.total_s - s.reduce_s, 384 * 0.395741 + 0.00293, 1e-6);
    MUST(sailor_referee(a, SAILOR_MIXED, "OPT-350", root, false, &s, &err));
    ck_assert_double_eq_tol(s.total_s - s.reduce_s, 256 * 0.397556 + 0.00293, 1e-6);
    /* Two members send half of each 500 MB twice over: y = log2(250), V100's curve for one GPU; 1.617 GB are three of those and a rest. */
    double y = log2(250),
           Bps =
               (0.004408380557873316 * y * y + 0.046579932153075286 * y + 0.8793574711743694) * 1e9;
    ck_assert_double_gt(s.reduce_s, 3 * 2 * 250e6 / Bps);
    ck_assert_double_lt(s.reduce_s, 4 * 2 * 250e6 / Bps);
}
END_TEST

static void read_known(const struct known *k, struct plan *p)
{
    struct job job;
    struct cluster cluster;
    MUST(sailor_case_read(a, &k->c, &job, &cluster, NULL, &err));
    MUST(sailor_case_plan(a, &job, &cluster, k->microbatch, k->n_replicas, k->stages, k->n_stages,
                          p, &err));
}

START_TEST(the_referee_gives_the_best_known_plans_their_published_times)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const struct known *k = &known[i];
        struct plan p;
        struct sailor_score s, own;
        read_known(k, &p);
        MUST(sailor_case_score_plan(a, &k->c, &p, false, &s, &err));
        MUST(sailor_case_score_plan(a, &k->c, &p, true, &own, &err));
        ck_assert_double_eq_tol(s.total_s, k->referee_s, 1e-4);
        ck_assert_msg(s.fits, "%s needs %.3g GB too many", k->c.cluster, s.worst_bytes_over / 1e9);
        /* Alike replicas with equal shares: it is the same form. */
        ck_assert_double_eq_tol(own.total_s, s.total_s, 1e-9);
    }
}
END_TEST

START_TEST(what_sailor_cannot_say_is_refused_and_what_it_takes_for_granted_is_told)
{
    struct plan p;
    struct sailor_score s;
    read_known(&known[1], &p);
    ck_assert(export_sailor_equal(&p));
    p.replicas[1].microbatches += 2, p.replicas[2].microbatches -= 2;
    ck_assert(!export_sailor_equal(&p));
    p.replicas[0].stages[1].recompute = RECOMPUTE_STAGE;
    ck_assert_int_eq(sailor_case_score_plan(a, &known[1].c, &p, true, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "recomputes"));
    p.replicas[0].stages[1].recompute = RECOMPUTE_NONE;
    p.replicas[0].stages[1].device = p.replicas[0].stages[0].device;
    ck_assert_int_eq(sailor_case_score_plan(a, &known[1].c, &p, true, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "several stages"));
    struct plan shared;
    read_known(&known[3], &shared);
    const struct plan_stage *first = &shared.replicas[0].stages[0];
    int32_t devices[] = {shared.replicas[0].stages[1].devices[0], first->devices[3]};
    shared.replicas[0].stages[1].devices = devices;
    ck_assert_int_eq(sailor_case_score_plan(a, &known[3].c, &shared, true, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, shared.cluster.devices[first->devices[3]].name));
    for (int32_t t = 0; t < p.cluster.n_types; t++) p.cluster.types[t].catalogue = "H100-SXM5";
    ck_assert_int_eq(sailor_case_score_plan(a, &known[1].c, &p, true, &s, &err), ERR_INPUT);
    ck_assert_ptr_nonnull(strstr(err.text, "H100-SXM5"));
}
END_TEST

/* --- ours ------------------------------------------------------------------------------------ */

/* What our plans must keep, in the order of `known`; a value only falls, unless the search that found it is replaced. simulated_s: the
 * first plan simulated. first_s: the first plan that Sailor's format can express, by the referee, replica by replica. both_s: the
 * least score of the referee for one of the 64 plans that fits by its rule of memory and takes no longer than the known plan when
 * both are simulated. both_s is at least as good as the best known in six of the eight; the fifth and the eighth are behind by 2.5 %
 * and 0.8 % (2026-11-24). The two models differ: in the simulator a stage in the middle is also busy with what it receives, messages
 * on a node are quick, and all-reduces begin while other stages still compute; the closed form counts what a stage sends, every
 * message leaves its node and all-reduces come last. */
static const struct kept_so_far {
    double simulated_s, first_s, both_s;
    bool small; /* planned in every run of the tests */
} so_far[N_KNOWN] = {{14.51, 14.4215, 14.4215, true}, {22.17, 22.35, 21.98, true},
                     {11.63, 11.88, 11.88, false},    {4.91, 4.92, 4.92, false},
                     {2.48, 2.58, 2.49, false},       {1.771, 1.942, 1.795, false},
                     {70.19, 78.7, 73.9, false},      {30.89, 33.6, 31.34, false}};

struct ours {
    double simulated_s, known_s, referee_s, both_s, cpu_s;
};

static void plan_case(const struct known *k, struct ours *out)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct plan known_plan;
    struct search_result r;
    struct sailor_score s;
    int64_t ns;
    MUST(sailor_case_read(a, &k->c, &job, &cluster, &profile, &err));
    MUST(sailor_case_plan(a, &job, &cluster, k->microbatch, k->n_replicas, k->stages, k->n_stages,
                          &known_plan, &err));
    MUST(sailor_case_simulate(a, &known_plan, &profile, &ns, &err));
    struct search_options o = {.top = 64};
    clock_t begin = clock();
    MUST(search_plans(a, &job, &cluster, &profile, &o, &r, &err));
    *out = (struct ours){.cpu_s = (double)(clock() - begin) / CLOCKS_PER_SEC,
                         .known_s = units_s_from_ns(ns),
                         .simulated_s = units_s_from_ns(r.plans[0].iteration_ns),
                         .referee_s = INFINITY,
                         .both_s = INFINITY};
    for (int32_t i = 0; i < r.n_plans; i++) {
        /* Plans that recompute or shard optimizer state cannot be said in its format. */
        if (sailor_case_score_plan(a, &k->c, &r.plans[i].plan, true, &s, &err) != OK) continue;
        if (isinf(out->referee_s) && s.fits) out->referee_s = s.total_s;
        if (s.fits && r.plans[i].iteration_ns <= ns) out->both_s = fmin(out->both_s, s.total_s);
    }
}

/* MUSHER_TABLE=1 prints a line for each case. */
static void tell(const struct known *k, const struct ours *x)
{
    if (getenv("MUSHER_TABLE"))
        printf(
            "%-10s %-11s best known %6.2f | one plan's referee score %8.3f | first plan: simulated "
            "%7.3f (known plan %7.3f), referee %8.3f | %.2f s CPU\n",
            k->c.cluster, k->c.model, k->c.best_known_s, x->both_s, x->simulated_s, x->known_s,
            x->referee_s, x->cpu_s);
    fflush(stdout);
}

START_TEST(our_plans_beat_the_best_known_by_the_referee_and_by_the_simulator)
{
    struct ours x;
    if (!so_far[_i].small && !suites_long()) return;
    plan_case(&known[_i], &x);
    tell(&known[_i], &x);
    ck_assert_double_le(x.simulated_s, so_far[_i].simulated_s);
    ck_assert_double_le(x.referee_s, so_far[_i].first_s);
    ck_assert_double_le(x.both_s, so_far[_i].both_s);
    ck_assert_double_le(x.simulated_s, x.known_s);
    /* The best known are rounded to a hundredth; for one cluster there is only our enumeration. */
    double best = known[_i].c.best_known_s;
    ck_assert_double_le(x.both_s, best > 0 ? best + 0.005 : known[_i].referee_s);
}
END_TEST

/* Stages on several GPUs are sharded. */
START_TEST(the_degrees_that_were_measured_are_planned)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result usual;
    MUST(sailor_case_read(a, &known[1].c, &job, &cluster, &profile, &err));
    job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = 2;
    struct search_options o = {.top = 1, .fastest = true};
    MUST(search_plans(a, &job, &cluster, &profile, &o, &usual, &err));
    const struct plan *p = &usual.plans[0].plan;
    bool sharded = false;
    for (int32_t r = 0; r < p->n_replicas; r++)
        for (int32_t s = 0; s < p->replicas[r].n_stages; s++)
            sharded |= sharding_tensor_degree(p->replicas[r].stages[s].sharding) > 1;
    ck_assert(sharded);
    ck_assert_int_eq(p->cluster.n_devices, cluster.n_devices);
    ck_assert_int_eq(p->cluster.n_types, cluster.n_types);
}
END_TEST

/* Divided state leaves room for activations that would have to be recomputed: 71.8 s without. */
START_TEST(state_of_measured_layers_is_divided_where_memory_is_short)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    MUST(sailor_case_read(a, &known[6].c, &job, &cluster, &profile, &err));
    job.n_microbatches_sizes = 2, job.microbatch_sizes[0] = 1, job.microbatch_sizes[1] = 2;
    struct search_options o = {.top = 1, .fastest = true};
    MUST(search_plans(a, &job, &cluster, &profile, &o, &r, &err));
    ck_assert_int_eq(r.plans[0].plan.replicas[0].stages[0].zero, 1);
    ck_assert_double_lt(units_s_from_ns(r.plans[0].iteration_ns), 70.2);
}
END_TEST

START_TEST(baselines_of_several_gpus_are_sharded_too)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result r;
    MUST(sailor_case_read(a, &known[6].c, &job, &cluster, &profile, &err));
    struct search_options o = {.top = 1, .baseline = "alpa-coarse"};
    MUST(search_plans(a, &job, &cluster, &profile, &o, &r, &err));
    const struct plan *p = &r.plans[0].plan;
    ck_assert_int_eq(p->cluster.n_devices, cluster.n_devices);
    for (int32_t i = 0; i < p->n_replicas; i++)
        for (int32_t s = 0; s < p->replicas[i].n_stages; s++)
            ck_assert_int_eq(sharding_tensor_degree(p->replicas[i].stages[s].sharding), 2);
}
END_TEST

START_TEST(cost_and_budget_choose_parts_of_the_team)
{
    struct job job;
    struct cluster cluster;
    struct profile profile;
    struct search_result fast, cheap, within;
    MUST(sailor_case_read(a, &known[1].c, &job, &cluster, &profile, &err));
    job.n_microbatches_sizes = 1, job.microbatch_sizes[0] = 2;
    struct search_options o = {.top = 1};
    MUST(search_plans(a, &job, &cluster, &profile, &o, &fast, &err));
    o.objective = OBJECTIVE_COST;
    MUST(search_plans(a, &job, &cluster, &profile, &o, &cheap, &err));
    o.objective = OBJECTIVE_RATE;
    o.max_cost = (fast.plans[0].cost + cheap.plans[0].cost) / 2;
    MUST(search_plans(a, &job, &cluster, &profile, &o, &within, &err));
    ck_assert_double_lt(cheap.plans[0].cost, fast.plans[0].cost);
    ck_assert_double_le(within.plans[0].cost, o.max_cost);
    ck_assert_int_lt(fast.plans[0].iteration_ns, within.plans[0].iteration_ns);
    ck_assert_int_lt(within.plans[0].iteration_ns, cheap.plans[0].iteration_ns);
}
END_TEST

Suite *sailor_plans_suite(void)
{
    Suite *s = suite_create("sailor_plans");
    TCase *c = tcase_create("sailor_plans");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_degrees_that_were_measured_are_planned);
    tcase_add_test(c, state_of_measured_layers_is_divided_where_memory_is_short);
    tcase_add_test(c, baselines_of_several_gpus_are_sharded_too);
    tcase_add_test(c, cost_and_budget_choose_parts_of_the_team);
    tcase_add_test(c, shares_of_ones_own_are_scored_replica_by_replica);
    tcase_add_test(c, what_sailor_cannot_say_is_refused_and_what_it_takes_for_granted_is_told);
    tcase_add_loop_test(c, our_plans_beat_the_best_known_by_the_referee_and_by_the_simulator, 0,
                        N_KNOWN);
    tcase_add_test(c, the_referee_gives_the_best_known_plans_their_published_times);
    tcase_set_timeout(c, 600);
    suite_add_tcase(s, c);
    return s;
}
