/* Regions of a sweep: which training is the best of a point. */
#include "planner/candidate/types.h"
#include "tests/support/suites.h"
#include "tools/sweep/regions.h"

/* The best at a point with a synchronous plan of 2.2 s and 10 of cost, and another training of these values. */
static const char *best_of(int64_t ns, double progress, double cost, const struct search_options *o, bool by_time)
{
    struct sweep_line other = {"bf16-sums", "", ns, progress, cost, "plan"};
    struct sweep_point x = {.iteration_ns = 2200000000, .outcome = {.cost = 10}, .plan = "", .n_lines = 1, .lines = &other};
    return regions_best(&x, o, by_time).name;
}

START_TEST(a_gain_below_one_percent_is_a_tie)
{
    struct search_options time = {.objective = OBJECTIVE_TIME}, cost = {.objective = OBJECTIVE_COST}, within = {.objective = OBJECTIVE_TIME, .max_cost = 9};
    ck_assert_str_eq(best_of(2199800000, 1, 10, &time, false), "synchronous");
    ck_assert_str_eq(best_of(2180000000, 1, 10, &time, true), "synchronous");
    ck_assert_str_eq(best_of(2170000000, 1, 10, &time, false), "bf16-sums");
    ck_assert_str_eq(best_of(2100000000, 0.9, 10, &time, false), "synchronous");
    ck_assert_str_eq(best_of(2100000000, 0.9, 10, &time, true), "bf16-sums");
    ck_assert_str_eq(best_of(2100000000, 1, 9.95, &cost, false), "synchronous");
    ck_assert_str_eq(best_of(2300000000, 1, 9.8, &cost, false), "bf16-sums");
    ck_assert_str_eq(best_of(2199800000, 1, 8.9, &within, false), "bf16-sums"); /* the synchronous plan is outside the limit */
}
END_TEST

SUITE_OF(regions, a_gain_below_one_percent_is_a_tie)
