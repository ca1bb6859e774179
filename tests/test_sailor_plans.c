/* Planning from measured layers: Sailor's closed form as a referee, the best plans of its own class, and ours
 * (tests/data/sailor_mixed: its data, MIT, LICENSE beside them). */
#include "core/arena.h"
#include "core/units.h"
#include "tests/sailor_cases.h"
#include "tests/suites.h"

#include <math.h>
#include <stdio.h>

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

START_TEST(the_referee_gives_the_best_known_plans_their_published_times)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const struct known *k = &known[i];
        struct job job;
        struct cluster cluster;
        struct profile profile;
        struct plan p;
        struct sailor_score s, own;
        int64_t ns;
        MUST(sailor_case_read(a, &k->c, &job, &cluster, &profile, &err));
        MUST(sailor_plan(a, &job, &cluster, k->microbatch, k->n_replicas, k->stages, k->n_stages,
                         &p, &err));
        MUST(sailor_score_plan(a, &k->c, &p, false, &s, &err));
        MUST(sailor_score_plan(a, &k->c, &p, true, &own, &err));
        ck_assert_double_eq_tol(s.total_s, k->referee_s, 1e-4);
        ck_assert_msg(s.fits, "%s needs %.3g GB too many", k->c.cluster, s.worst_bytes_over / 1e9);
        /* Alike replicas with equal shares: it is the same form. */
        ck_assert_double_eq_tol(own.total_s, s.total_s, 1e-9);
        MUST(sailor_simulate(a, &p, &profile, &ns, &err));
        printf("%-10s %-12s referee %8.4f simulated %8.4f\n", k->c.cluster, k->c.model, s.total_s,
               s_from_ns(ns));
    }
}
END_TEST

Suite *sailor_plans_suite(void)
{
    Suite *s = suite_create("sailor_plans");
    TCase *c = tcase_create("sailor_plans");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_test(c, the_referee_gives_the_best_known_plans_their_published_times);
    suite_add_tcase(s, c);
    return s;
}
