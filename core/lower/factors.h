/* core/lower/factors.h - PowerSGD in a program (Vogels et al. 2019, algorithm 1; PyTorch's PowerSGD_hook): the gradient M of a matrix is summed
 * as two factors of rank r, by two all-reduces.
 *
 *   at the end of the backward   E += M, P = E Q, all-reduce P
 *   in the update                P orthonormal, Q = Eᵀ P, E -= P Qᵀ, all-reduce Q, M = P Qᵀ
 * P belongs to the shorter side: of a matrix of more rows than columns the transpose is factored. So a P of full rank is square, and the
 * sum is exact. Q stays from step to step (warm start); the first one is 0, and orthonormal draws P's columns then. E is the
 * device's error; without feedback M takes its place. r is at most the shorter side. Vectors and tensors of more than two dimensions
 * are summed as they are. A device sends 2 (n - 1)/n · r (rows + columns) values. Products and orthonormal columns are each device's own,
 * so devices of different kinds agree to rounding only.
 */
#ifndef CORE_LOWER_FACTORS_H
#define CORE_LOWER_FACTORS_H

#include "core/lower/groups.h"

struct writer;

/* Of a bucket: its matrices, to be summed as factors, and the other gradients; false: the plan has no PowerSGD. */
bool lower_factors_split(struct lowering *l, const struct group_plan *all, struct group_plan *matrices,
                         struct group_plan *others);
/* Of a group with a factor, on a stage of a member. */
int64_t lower_factor_elements(const struct lowering *l, const struct stage_build *b, const struct group_plan *plan);
/* Slots of factors and errors, last in their regions; requires the gradients'. */
void lower_factor_slots(struct stage_scratch *h);
/* i: index of the group among the stage's. */
void lower_factor_segments(const struct stage_scratch *h, int32_t i, struct collective_member *m);
void lower_factor_left(struct writer *w, int32_t i);   /* before its launch */
void lower_factor_right(struct writer *w); /* all of the stage, whose left factors are awaited; launches and awaits them */

#endif
