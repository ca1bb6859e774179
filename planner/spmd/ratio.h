/* planner/spmd/ratio.h - the best ratios (shares of each device) of a given sharded program, by linear program.
 *
 * With fixed rules a step is a sum of computation blocks, each as long as its slowest device, and of collectives. A device's
 * computation grows with its share, a padded collective with the largest share (HAP, arXiv 2401.05965, its linear program):
 *     min  Σ_b w_b·C_b + Σ_j T_j
 *     C_b >= fixed_bk + Σ_v slope_bvk · r_vk   for each device k,     T_j >= α_ji + β_ji · M_v   for each tier i of links,
 *     M_v >= r_vk,    Σ_k r_vk = 1,    fixed_k + Σ_v slope_vk · r_vk <= memory_k
 * solved by the simplex method (planner/lp.h); all variables are unbounded above. There may be several vectors of ratios (v),
 * for segments of the model with different shares.
 *
 * Shares become integers by the extents of core/sharding/sharding, and only the cost of rounded shares counts. So the
 * alternation of search and linear program keeps the best priced pair of program and ratios, not the last.
 */
#ifndef PLANNER_SPMD_RATIO_H
#define PLANNER_SPMD_RATIO_H

#include "core/base/error.h"
#include "planner/spmd/spmd.h"

#include <stdint.h>

struct arena;

struct ratio_tier { /* a tier of links: a collective takes α + β · the largest share */
    double alpha_ns, beta_ns;
};
struct ratio_collective {
    int32_t vector, n_tiers;
    const struct ratio_tier *tiers;
    double weight; /* number of equal collectives */
};
struct ratio_problem {
    int32_t n_devices, n_vectors, n_blocks, n_collectives;
    const double *weight;   /* (n_blocks) number of equal blocks */
    const double *fixed_ns; /* (n_blocks, n_devices) */
    const double *slope_ns; /* (n_blocks, n_vectors, n_devices) */
    const struct ratio_collective *collectives;
    double rest_ns;            /* constant part */
    const double *fixed_bytes; /* (n_devices); NULL: memory does not count */
    const double *slope_bytes; /* (n_vectors, n_devices) */
    const double *memory;      /* (n_devices) */
    int64_t work_ns;           /* estimated cost of the tables of ratio_of_answer */
};
/* ratios: (n_vectors, n_devices), each vector sums to 1. *ns: optimum; INFINITY: memory makes it infeasible. O(one simplex). */
MUST_CHECK enum status ratio_solve(struct arena *a, const struct ratio_problem *p, double *ratios,
                                   double *ns, struct error *err);
double ratio_ns(const struct ratio_problem *p, const double *ratios); /* objective of given ratios */

/* The linear program of an answer's rules, linearised at its ratios. One axis. */
MUST_CHECK enum status ratio_of_answer(struct arena *a, const struct spmd_question *q,
                                       const struct spmd_answer *x, struct ratio_problem *out,
                                       struct error *err);

struct ratio_best {
    struct spmd_answer answer;
    struct sharding *sharding; /* mesh, ratios and rules, for a plan */
    int64_t work_ns;           /* all searches and tables, as in spmd_answer */
    double first_ns;           /* result of the first round, with the question's ratios */
};
/* Alternates search over rules and linear program over ratios until neither improves (at most SPMD_TURNS rounds), from the question's ratios, from even
 * and from proportional ones. If the question has one vector, the devices are unequal and one_vector is not set, it also
 * starts from the best of these, even and proportional ratios as three vectors: segments of the model may have different
 * ratios, tensors between them are resharded at a cost, and the linear program has all vectors as unknowns. The sharding
 * contains the used vectors. Returns the best priced pair, so never worse than one vector. q->s: mesh of one axis and initial
 * vectors. */
MUST_CHECK enum status ratio_alternate(struct arena *a, const struct spmd_question *q,
                                       struct ratio_best *out, struct error *err);

#endif
