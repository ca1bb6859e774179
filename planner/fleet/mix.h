/* planner/fleet/mix.h - which templates how often: a linear program over templates, made as they are wanted.
 *
 * In a time T a replica of template t takes v_t(T) = (T - fill_t - tail_t) / tau_t + 1 microbatches. With n_t replicas of each:
 *   max Σ n_t v_t(T)   over   Σ_t n_t use_tk <= N_k for every pool k of GPUs,   Σ n_t <= microbatches,   n_t >= 0
 * and the least T for which that reaches the batch. Templates are columns; the row prices y say what a GPU is
 * worth, and the template that would pay most at those prices, max over tau of (T - ...) / tau + 1 - cost (planner/fleet/template.h),
 * is the next column (column generation: Dantzig and Wolfe 1960; Gilmore and Gomory 1961). T follows by Newton's rule, the
 * optimum being concave in T. Whole numbers come from branch and bound over the columns made (a fixed number of nodes),
 * shares from filling up to one level. Devices that no replica is given stay out.
 */
#ifndef PLANNER_FLEET_MIX_H
#define PLANNER_FLEET_MIX_H

#include "planner/fleet/template.h"

/* n templates, count of each; microbatches of each: floor, and one more for the first `more` of them */
struct mix {
    int32_t n;
    struct template *templates;
    int32_t *count, *least, *more;
    int64_t t_ns; /* what it should take: slowest replica */
};

struct mix_options {
    bool one_class;    /* templates of one class each only */
    bool one_zone;     /* of classes of one zone only */
    uint64_t left_out; /* pools not to be used, by bit */
    bool widest;       /* of devices of as many GPUs as a pool offers only: fewest lanes */
};

/* false where nothing fits. *relaxed_ns: T of the linear program, what fractions of replicas would take. Result in the maker's
 * arena. */
bool mix_solve(struct template_maker *m, int32_t microbatches, const struct mix_options *o,
               struct mix *out, int64_t *relaxed_ns);
/* Best shares for given counts, at least 1 each; fills least, more and t_ns. false: fewer microbatches than replicas. */
bool mix_share(struct mix *x, int32_t microbatches);

#endif
