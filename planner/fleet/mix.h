/* planner/fleet/mix.h - how many replicas of which template: a linear program over templates, solved by column generation.
 *
 * In time T a replica of template t takes v_t(T) = (T - fill_t - tail_t) / tau_t + 1 microbatches. With n_t replicas of each:
 *   max Σ n_t v_t(T)   over   Σ_t n_t use_tk <= N_k for every pool k of GPUs,   Σ n_t <= microbatches,   n_t >= 0
 * and the least T for which the optimum reaches the batch. Templates are columns. The LP dual prices y are the values of the
 * pools' GPUs; pricing finds the template of largest reduced cost, max over tau of (T - ...) / tau + 1 - cost
 * (planner/fleet/template.h), which becomes the next column (Dantzig and Wolfe 1960; Gilmore and Gomory 1961). T follows by
 * Newton's method, because the optimum is concave in T. Integer counts come from branch and bound over the generated columns
 * (fixed node limit), shares from water-filling. Devices without a replica stay idle.
 */
#ifndef PLANNER_FLEET_MIX_H
#define PLANNER_FLEET_MIX_H

#include "planner/fleet/template.h"

/* n templates with count[i] replicas each; a replica of template i takes least[i] microbatches, the first more[i] of them one
 * more */
struct mix {
    int32_t n;
    struct template *templates;
    int32_t *count, *least, *more;
    int64_t t_ns; /* estimated iteration: the slowest replica */
};

struct mix_options {
    bool one_class;    /* only templates of a single class */
    bool one_zone;     /* only templates within one zone */
    uint64_t left_out; /* excluded pools, by bit */
    bool widest;       /* only the most GPUs a stage of each pool: fewest stages */
};

/* false: nothing fits. *relaxed_ns: T of the LP relaxation (fractional replica counts). The result lives in the maker's arena. */
bool mix_solve(struct template_maker *m, int32_t microbatches, const struct mix_options *o,
               struct mix *out, int64_t *relaxed_ns);
/* Optimal shares for given counts, at least 1 each; fills least, more and t_ns. false: fewer microbatches than replicas. */
bool mix_share(struct mix *x, int32_t microbatches);

#endif
