/* Estimates of parts of the cluster. */
#include "core/base/arena.h"
#include "planner/coarse/coarse.h"
#include "tests/support/coarse_rack.h"
#include "tests/support/suites.h"

static struct arena *arena;
static void setup(void) { arena = arena_new(); }
static void teardown(void) { arena_free(arena); }

/* A limit below the estimate leaves no candidate and most of the work; one above it leaves the candidate. */
START_TEST(estimates_of_a_part_end_at_their_limit)
{
    struct coarse_rack m;
    struct error err = {0};
    int64_t work[3], ns[3] = {0};
    bool idle[24] = {[22] = true, [23] = true};
    coarse_rack_make(arena, &m, coarse_rack_cluster(arena), coarse_rack_job);
    struct search_task task = m.task;
    task.idle = idle;
    struct coarse *whole = coarse_new(&m.context, &m.task, false);
    ck_assert_msg(coarse_estimate(whole, 0, &ns[0], &err) == OK, "%s", err.text);
    for (int i = 0; i < 3; i++) {
        struct coarse *part = coarse_part(whole, &task);
        const int64_t most = i == 0 ? 0 : i == 1 ? ns[0] : ns[0] / 100 * 98, before = scorer_work(m.context.scorer);
        ck_assert_msg(coarse_estimate(part, most, &ns[i], &err) == OK, "%s", err.text);
        work[i] = scorer_work(m.context.scorer) - before;
        coarse_free(part);
    }
    ck_assert_int_eq(ns[1], ns[0]);
    ck_assert_int_eq(ns[2], INT64_MAX);
    ck_assert_int_gt(work[2], 0);
    ck_assert_int_lt(work[2], work[0] / 2);
    coarse_free(whole);
    coarse_rack_end(&m);
}
END_TEST

Suite *subsets_suite(void)
{
    Suite *suite = suite_create("subsets");
    TCase *c = tcase_create("subsets");
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 600);
    tcase_add_test(c, estimates_of_a_part_end_at_their_limit);
    suite_add_tcase(suite, c);
    return suite;
}
