/* The most robust of plans with practically equal predictions (planner/candidate/robust), on measured layers of A100 and V100. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/robust.h"
#include "planner/search.h"
#include "sim/cost.h"
#include "tests/support/sailor_cases.h"
#include "tests/support/suites.h"

static struct arena *a;
static struct error err;

#define MUST(call) ck_assert_msg((call) == OK, "%s", err.text)

static void set_up(void) { a = arena_new(); }
static void tear_down(void) { arena_free(a); }

static const struct sailor_case a16 = {"a16", "opt", "OPT-350", 0};
static const struct lower_options lower = {.check_memory = true};

static int64_t robust_of(const struct plan *p, const struct profile *profile)
{
    struct search_options o = {.top = 1};
    struct search_context t = {.arena = a, .o = &o, .lower = &lower};
    int64_t ns;
    MUST(robust_ns(&t, profile, p, &ns, &err));
    return ns;
}

/* 16 replicas of 32 microbatches of two: 0.395741 s each on an A100 (sum of the table by hand). 16 members send a sixteenth of
 * 1.629725 GB thirty times over, and all that twice. */
START_TEST(a_step_is_its_computing_and_twice_its_reduces)
{
    static const struct sailor_stage whole = {0, 25, "a100", 1};
    struct job job;
    struct cluster c;
    struct profile profile;
    struct plan p;
    struct cost_link net;
    const struct link_ends ends = link_ends_of(0, 0);
    MUST(sailor_case_read(a, &a16, &job, &c, &profile, &err));
    MUST(sailor_case_plan(a, &job, &c, 2, 16, &whole, 1, &p, &err));
    MUST(cost_link_of(cost_new(a, &profile, &c), 1, &ends, &net, &err));
    double sums = 30 * units_s_from_ns(cost_occupancy_ns(&net, 1629724672 / 16) + net.latency_ns);
    ck_assert_double_eq_tol(units_s_from_ns(robust_of(&p, &profile)), 32 * 0.395741 + 2 * sums,
                            2e-3);
}
END_TEST

START_TEST(who_shares_a_node_with_whom_plays_no_part)
{
    static const struct sailor_stage halves[2] = {{0, 12, "a100", 1}, {13, 25, "a100", 1}};
    struct job job;
    struct cluster c;
    struct profile profile;
    struct plan across, inside;
    int64_t ns[2];
    MUST(sailor_case_read(a, &a16, &job, &c, &profile, &err));
    MUST(sailor_case_plan(a, &job, &c, 2, 8, halves, 2, &across, &err));
    MUST(sailor_case_plan(a, &job, &c, 2, 8, halves, 2, &inside, &err));
    for (int32_t r = 0; r < 8; r++)
        for (int32_t s = 0; s < 2; s++) inside.replicas[r].stages[s].device = 2 * r + s;
    MUST(sailor_case_simulate(a, &across, &profile, &ns[0], &err));
    MUST(sailor_case_simulate(a, &inside, &profile, &ns[1], &err));
    ck_assert_int_lt(ns[1], ns[0]);
    ck_assert_int_eq(robust_of(&inside, &profile), robust_of(&across, &profile));
}
END_TEST

START_TEST(buckets_hide_no_reduce_where_computing_waits_for_the_links)
{
    static const struct sailor_stage whole = {0, 25, "a100", 1};
    struct job job;
    struct cluster c;
    struct profile profile;
    for (int waits = 0; waits < 2; waits++) {
        struct plan p;
        int64_t ns[2];
        MUST(sailor_case_read(a, &a16, &job, &c, &profile, &err));
        for (int32_t l = 0; l < c.n_links; l++) c.links[l].blocking = waits;
        MUST(sailor_case_plan(a, &job, &c, 2, 16, &whole, 1, &p, &err));
        MUST(sailor_case_simulate(a, &p, &profile, &ns[0], &err));
        for (int32_t r = 0; r < 16; r++) p.replicas[r].stages[0].bucket_bytes = 400000000;
        MUST(sailor_case_simulate(a, &p, &profile, &ns[1], &err));
        if (waits)
            ck_assert_int_ge(ns[1], ns[0]); /* smaller pieces, the same place */
        else
            ck_assert_int_lt(ns[1], ns[0]);
    }
}
END_TEST

START_TEST(the_first_plan_is_the_sturdiest_of_the_fastest)
{
    struct job job;
    struct cluster c;
    struct profile profile;
    struct search_result robust, fast;
    MUST(sailor_case_read(a, &a16, &job, &c, &profile, &err));
    struct search_options o = {.top = 12};
    MUST(search_plans(a, &job, &c, &profile, &o, &robust, &err));
    o.fastest = true;
    MUST(search_plans(a, &job, &c, &profile, &o, &fast, &err));
    ck_assert_int_eq(fast.n_plans, 12);
    int64_t first = robust.plans[0].iteration_ns, limit = fast.plans[0].iteration_ns;
    limit += limit / 100 * ROBUST_PERCENT;
    ck_assert_int_gt(first, fast.plans[0].iteration_ns); /* so the case says something */
    ck_assert_int_le(first, limit);
    int64_t least = robust_of(&robust.plans[0].plan, &profile);
    for (int32_t i = 0; i < INCUMBENTS_MIN; i++) {
        const struct search_plan *x = &fast.plans[i];
        if (x->iteration_ns <= limit) ck_assert_int_le(least, robust_of(&x->plan, &profile));
    }
    /* The others follow by time, and none is lost. */
    for (int32_t i = 1, k = 0; i < 12; i++, k++) {
        if (fast.plans[k].iteration_ns == first) k++;
        ck_assert_int_eq(robust.plans[i].iteration_ns, fast.plans[k].iteration_ns);
    }
}
END_TEST

Suite *robust_suite(void)
{
    Suite *s = suite_create("robust");
    TCase *c = tcase_create("robust");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, a_step_is_its_computing_and_twice_its_reduces);
    tcase_add_test(c, buckets_hide_no_reduce_where_computing_waits_for_the_links);
    tcase_add_test(c, the_first_plan_is_the_sturdiest_of_the_fastest);
    tcase_add_test(c, who_shares_a_node_with_whom_plays_no_part);
    tcase_set_timeout(c, 600);
    suite_add_tcase(s, c);
    return s;
}
