/* planner/bound/lp.h - small linear programs whose lower bounds can be trusted to the last digit that matters.
 *
 *   min x_0   subject to   Σ_j a_ij x_j >= b_i,   0 <= x_j <= 1 for j > 0,   x_0 >= 0
 * The simplex method finds row prices y; whatever they are, clipped to y >= 0 and scaled until x_0's column costs at most 1,
 *   Σ_i y_i b_i + Σ_{j>0} min(0, -Σ_i y_i a_ij)
 * is a lower bound (Neumaier and Shcherbina, Math. Program. 99, 2004). So the solver may be wrong, the bound may not.
 */
#ifndef PLANNER_BOUND_LP_H
#define PLANNER_BOUND_LP_H

#include <stdint.h>

struct arena;
struct bound_lp; /* opaque */

/* Columns 0 … n_columns - 1; rows are added. Lives in the arena. */
struct bound_lp *bound_lp_new(struct arena *a, int32_t n_columns);
int32_t bound_lp_row(struct bound_lp *p, double at_least); /* the row's number, from 0 */
void bound_lp_put(struct bound_lp *p, int32_t row, int32_t column, double value);
/* The bound; INFINITY where the solver proves that nothing satisfies the rows. O(one simplex). */
double bound_lp_solve(struct bound_lp *p);

#endif
