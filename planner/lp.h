/* planner/lp.h - linear and integer programs, solved by GLPK: the only file that calls it.
 *
 *   min or max Σ_j c_j x_j   subject to   low_i <= Σ_j a_ij x_j <= high_i,   low_j <= x_j <= high_j
 * An infinite bound is none. Rows and columns are numbered from 0 in the order in which they are added. The coefficients of a
 * row or a column are put first, then the row or column is added with its bounds:
 *
 *     lp_put(p, x, 1), lp_put(p, y, -1), row = lp_row(p, 0, INFINITY);         x, y: columns that exist
 *     lp_put(p, row, 3), column = lp_column(p, 0, 1, cost);                    row: a row that exists
 *
 * A program that has been solved keeps its basis, so columns, bounds and costs may change between two solves (column generation).
 * GLPK prints nothing, takes no clock and no random number: the same calls give the same bits. A call that GLPK does not allow
 * (a coefficient put twice) is a bug of the caller and ends the program with GLPK's own words.
 * GLPK keeps an environment for each thread, so threads solve programs of their own at the same time.
 */
#ifndef PLANNER_LP_H
#define PLANNER_LP_H

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct lp; /* opaque */

enum lp_sense { LP_MIN, LP_MAX };
enum lp_result {
    LP_OPTIMAL,
    LP_INFEASIBLE,
    LP_UNBOUNDED,
    LP_FAILED /* numerical trouble, or out of iterations */
};

struct lp *lp_new(struct arena *a, enum lp_sense sense); /* lp_free, before the arena is freed */
void lp_free(struct lp *p);
/* Frees the environment that GLPK keeps for the calling thread. No program of the thread may exist. */
void lp_thread_end(void);

void lp_put(struct lp *p, int32_t index, double value); /* 0 is left out */
int32_t lp_row(struct lp *p, double low, double high);  /* the row's number. O(coefficients) */
int32_t lp_column(struct lp *p, double low, double high, double cost);
void lp_set_cost(struct lp *p, int32_t column, double cost);
void lp_set_bounds(struct lp *p, int32_t column, double low, double high);

struct lp_options {
    bool dual; /* dual simplex first: for a program whose empty basis is dual feasible */
    bool
        presolve; /* begins anew each time; row prices are then not at hand where there is no optimum */
    int32_t iterations; /* at most, of each attempt; 0: as many as it takes */
};
/* Simplex. An attempt that fails is repeated once from the standard basis by the primal method, but for presolve.
 * options: NULL for the primal method without presolve. */
enum lp_result lp_solve(struct lp *p, const struct lp_options *options);
double lp_objective(const struct lp *p);             /* these three are of the last lp_solve, */
double lp_value(const struct lp *p, int32_t column); /* also of one that failed: where it stopped */
double lp_price(const struct lp *p, int32_t row);    /* dual value */

/* Branch and bound over the optimum that lp_solve has just found, every column a whole number: values (columns) of the best
 * solution within nodes_max nodes or a relative gap. False where none was found; values are then left alone. */
bool lp_solve_integer(struct lp *p, int32_t nodes_max, double gap, double *values);

#endif
