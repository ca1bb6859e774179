/* planner/lp: small programs with known optima. */
#include "core/base/arena.h"
#include "planner/lp.h"

#include "tests/support/suites.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

/* max 3x + 2y: x + y <= 4, x + 3y <= 6, x <= 2: x = 2, y = 4/3, prices 0, 2/3. */
START_TEST(an_optimum_and_its_prices)
{
    struct arena *a = arena_new();
    struct lp *p = lp_new(a, LP_MAX);
    lp_column(p, 0, 2, 3), lp_column(p, 0, INFINITY, 2);
    lp_put(p, 0, 1), lp_put(p, 1, 1);
    ck_assert_int_eq(lp_row(p, -INFINITY, 4), 0);
    lp_put(p, 0, 1), lp_put(p, 1, 3);
    ck_assert_int_eq(lp_row(p, -INFINITY, 6), 1);
    for (int dual = 0; dual < 2; dual++) {
        ck_assert_int_eq(lp_solve(p, &(struct lp_options){.dual = dual}), LP_OPTIMAL);
        ck_assert_double_eq_tol(lp_objective(p), 26.0 / 3, 1e-9);
        ck_assert_double_eq_tol(lp_value(p, 0), 2, 1e-9);
        ck_assert_double_eq_tol(lp_value(p, 1), 4.0 / 3, 1e-9);
        ck_assert_double_eq_tol(lp_price(p, 0), 0, 1e-9);
        ck_assert_double_eq_tol(lp_price(p, 1), 2.0 / 3, 1e-9);
    }
    lp_free(p);
    arena_free(a);
}
END_TEST

/* A column, a bound and a cost that come after a solve: the program goes on from its basis. */
START_TEST(a_solved_program_changes)
{
    struct arena *a = arena_new();
    struct lp *p = lp_new(a, LP_MAX);
    int32_t row = lp_row(p, -INFINITY, 10);
    lp_put(p, row, 2), lp_column(p, 0, INFINITY, 1);
    ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
    ck_assert_double_eq_tol(lp_objective(p), 5, 1e-9);
    lp_put(p, row, 0), lp_put(p, row, 1); /* a 0 is no coefficient */
    int32_t column = lp_column(p, 0, 0, 1);
    ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
    ck_assert_double_eq_tol(lp_objective(p), 5, 1e-9);
    lp_set_bounds(p, column, 0, 4);
    ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
    ck_assert_double_eq_tol(lp_objective(p), 7, 1e-9);
    lp_set_cost(p, column, 0.25);
    ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
    ck_assert_double_eq_tol(lp_objective(p), 5, 1e-9);
    lp_free(p);
    arena_free(a);
}
END_TEST

START_TEST(nothing_satisfies_it_or_nothing_bounds_it)
{
    struct arena *a = arena_new();
    for (int presolve = 0; presolve < 2; presolve++) {
        struct lp_options o = {.presolve = presolve};
        struct lp *p = lp_new(a, LP_MIN);
        lp_column(p, 0, 1, 1);
        lp_put(p, 0, 1), lp_row(p, 2, INFINITY);
        ck_assert_int_eq(lp_solve(p, &o), LP_INFEASIBLE);
        lp_free(p);
        p = lp_new(a, LP_MIN);
        lp_column(p, 0, INFINITY, -1);
        lp_put(p, 0, 1), lp_row(p, 2, INFINITY);
        ck_assert_int_eq(lp_solve(p, &o), LP_UNBOUNDED);
        lp_free(p);
    }
    arena_free(a);
}
END_TEST

/* More coefficients than the first buffers hold, and the environment given back between two programs. */
START_TEST(many_columns)
{
    struct arena *a = arena_new();
    for (int round = 0; round < 2; round++) {
        struct lp *p = lp_new(a, LP_MIN);
        for (int32_t i = 0; i < 300; i++) lp_column(p, 0, 1, i + 1);
        for (int32_t i = 0; i < 300; i++) lp_put(p, i, 1);
        lp_row(p, 2, 2);
        ck_assert_int_eq(lp_solve(p, NULL), LP_OPTIMAL);
        ck_assert_double_eq_tol(lp_objective(p), 3, 1e-9);
        lp_free(p);
        lp_thread_end();
    }
    arena_free(a);
}
END_TEST

/* What GLPK would abort at is a bug of the caller, in GLPK's own words. */
START_TEST(a_coefficient_put_twice_is_a_bug)
{
    int channel[2], how = 0;
    char text[400] = "";
    ck_assert_int_eq(pipe(channel), 0);
    pid_t child = fork();
    if (!child) {
        dup2(channel[1], STDERR_FILENO);
        struct lp *p = lp_new(arena_new(), LP_MIN);
        lp_column(p, 0, 1, 1), lp_column(p, 0, 1, 1);
        lp_put(p, 0, 1), lp_put(p, 0, 1), lp_row(p, 0, 1);
        _exit(0);
    }
    close(channel[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(channel[0], text + used, sizeof text - 1 - used)) > 0;)
        used += (size_t)got;
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFSIGNALED(how));
    ck_assert_msg(strstr(text, "GLPK: glp_set_mat_row: ") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "duplicate column ind") != NULL, "%s", text);
}
END_TEST

SUITE_OF(lp, an_optimum_and_its_prices, a_solved_program_changes,
         nothing_satisfies_it_or_nothing_bounds_it, many_columns,
         a_coefficient_put_twice_is_a_bug)
