/* planner/experts/assign.h - the experts of a block among the devices that share it, by expected tokens.
 *
 * Uniform parallel machines: expert e has weight tokens[e], and place k takes per_token[k] · (tokens of its experts) + per_expert[k] ·
 * (number of its experts), for instance to clear their slots. The longest place is to be as short as possible. List scheduling in
 * descending order of tokens (LPT: Graham 1969; on unequal machines Gonzalez, Ibarra and Sahni 1977), then moves and swaps of the longest
 * place while they shorten it. O(E · P) and O(E²) a step. Deterministic: ties to the earlier place and expert. */
#ifndef PLANNER_EXPERTS_ASSIGN_H
#define PLANNER_EXPERTS_ASSIGN_H

#include <stdint.h>

struct experts_question {
    int32_t n_experts, n_places;
    const int64_t *tokens;                /* (n_experts) */
    const double *per_token, *per_expert; /* (n_places), >= 0, in any unit of time */
    const int32_t *most;                  /* (n_places) experts that fit; NULL: all of them anywhere */
};

/* place: (n_experts). The time of the longest place; negative: they do not fit. */
double experts_assign(const struct experts_question *q, int32_t *place);
/* The same for an order: places take contiguous runs of it, in their order. order: (n_experts); n: (n_places) experts of each. Optimal, by
 * dynamic programming. O(P · E²). */
double experts_cut(const struct experts_question *q, const int32_t *order, int64_t *n);
/* The time of the longest place. */
double experts_time(const struct experts_question *q, const int32_t *place);

#endif
