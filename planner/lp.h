/* planner/lp.h - linear programs, solved by GLPK. No other file calls GLPK.
 *
 *   min or max Σ_j c_j x_j   subject to   low_i <= Σ_j a_ij x_j <= high_i,   low_j <= x_j <= high_j
 * An infinite bound means no bound. Rows and columns are numbered from 0 in the order of creation. The coefficients of a row or
 * column are put first; then the row or column is added with its bounds:
 *
 *     lp_put(p, x, 1), lp_put(p, y, -1), row = lp_row(p, 0, INFINITY);         x, y: existing columns
 *     lp_put(p, row, 3), column = lp_column(p, 0, 1, cost);                    row: an existing row
 *
 * A solved program keeps its basis, so columns, bounds and costs may change between two solves (column generation).
 * Deterministic: GLPK prints nothing and uses no clock and no random number. A call that GLPK rejects (a coefficient put
 * twice) is a bug of the caller and ends the process with GLPK's message. Thread-safe for separate programs: GLPK keeps one
 * environment per thread.
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
    LP_FAILED /* numerical trouble, iteration limit, or a stop is requested (core/base/stop.h) */
};

struct lp *lp_new(struct arena *a, enum lp_sense sense); /* call lp_free before freeing the arena */
void lp_free(struct lp *p);
/* Frees GLPK's environment of the calling thread, which may own no program any more. */
void lp_thread_end(void);

void lp_put(struct lp *p, int32_t index, double value); /* zeros are dropped */
int32_t lp_row(struct lp *p, double low, double high);  /* the row's number. O(coefficients) */
int32_t lp_column(struct lp *p, double low, double high, double cost);
void lp_set_cost(struct lp *p, int32_t column, double cost);
void lp_set_bounds(struct lp *p, int32_t column, double low, double high);

struct lp_options {
    bool dual; /* dual simplex first; for programs whose initial basis is dual feasible */
    bool
        presolve; /* cold start at every solve; no dual values unless an optimum is found */
    int32_t iterations; /* limit of each attempt; 0: 10,000 and 100 for each row and column */
};
/* Simplex. A failed attempt is repeated once from the standard basis, by the primal method; with presolve only after the limit, by
 * the dual method without presolve.
 * options: NULL for the primal method without presolve. */
enum lp_result lp_solve(struct lp *p, const struct lp_options *options);
/* Results of the last lp_solve; after a failure, of the basis at which it stopped. */
double lp_objective(const struct lp *p);
double lp_value(const struct lp *p, int32_t column); /* primal value */
double lp_price(const struct lp *p, int32_t row);    /* dual value */

#endif
