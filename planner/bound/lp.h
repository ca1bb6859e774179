/* planner/bound/lp.h - small linear programs with rigorous lower bounds, independent of the solver's tolerances.
 *
 *   min x_0   subject to   Σ_j a_ij x_j >= b_i,   0 <= x_j <= 1 for j > 0,   x_0 >= 0
 * The simplex method gives dual values y. For any y, clipped to y >= 0 and scaled until the column of x_0 costs at most 1,
 *   Σ_i y_i b_i + Σ_{j>0} min(0, -Σ_i y_i a_ij)
 * is a lower bound by weak duality (Neumaier and Shcherbina, Math. Program. 99, 2004). An inexact solution weakens the bound
 * but never invalidates it.
 */
#ifndef PLANNER_BOUND_LP_H
#define PLANNER_BOUND_LP_H

#include <stdint.h>

struct arena;
struct bound_lp; /* opaque */

/* A program of n_columns columns and no rows. Lives in the arena. */
struct bound_lp *bound_lp_new(struct arena *a, int32_t n_columns);
int32_t bound_lp_row(struct bound_lp *p, double at_least); /* the row's number, from 0 */
void bound_lp_put(struct bound_lp *p, int32_t row, int32_t column, double value);
/* The bound; INFINITY: the solver proves infeasibility. O(one simplex). */
double bound_lp_solve(struct bound_lp *p);
/* After a solution: the dual value y of a row, clipped and scaled. */
double bound_lp_price(const struct bound_lp *p, int32_t row);

#endif
