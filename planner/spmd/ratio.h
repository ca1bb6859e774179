/* planner/spmd/ratio.h - how much of what is dealt out each device gets: the best ratios of a given sharded program.
 *
 * For a program whose splits are chosen, a step is a sum of blocks of computing, each as long as its slowest device, and of
 * collectives; a device's computing grows with its share, a padded collective with the largest share (HAP, arXiv 2401.05965, its
 * linear program):
 *     min  Σ_b w_b·C_b + Σ_j T_j
 *     C_b >= fixed_bk + Σ_v slope_bvk · r_vk   for each device k,     T_j >= α_ji + β_ji · M_v   for each tier i of links,
 *     M_v >= r_vk,    Σ_k r_vk = 1,    fixed_k + Σ_v slope_vk · r_vk <= memory_k
 * solved by the simplex method (planner/lp.h). A column has no upper bound: a step may take as long as it takes. There may be several vectors
 * of ratios (v), for segments that are dealt out differently.
 *
 * Where there is one vector, computing and traffic are proportional and memory does not bind, the best ratios are
 * r_i ∝ min(F_i, F_k) for the speed F_k of some device: from even (the slowest) to proportional (the fastest). Beyond, the
 * linear program is needed.
 *
 * Shares become whole units by core/sharding/sharding's extents; what counts is what the rounded shares cost. So alternation of search
 * and linear program keeps the best pair of program and ratios that it has priced, whatever the last round found.
 */
#ifndef PLANNER_SPMD_RATIO_H
#define PLANNER_SPMD_RATIO_H

#include "core/base/error.h"
#include "planner/spmd/spmd.h"

#include <stdint.h>

struct arena;

struct ratio_tier { /* of links that a collective goes over: α + β · the largest share */
    double alpha_ns, beta_ns;
};
struct ratio_collective {
    int32_t vector, n_tiers;
    const struct ratio_tier *tiers;
    double weight; /* collectives that are alike */
};
struct ratio_problem {
    int32_t n_devices, n_vectors, n_blocks, n_collectives;
    const double *weight;   /* (n_blocks) blocks that are alike */
    const double *fixed_ns; /* (n_blocks, n_devices) */
    const double *slope_ns; /* (n_blocks, n_vectors, n_devices) */
    const struct ratio_collective *collectives;
    double rest_ns;            /* what no ratio changes */
    const double *fixed_bytes; /* (n_devices); NULL: memory does not count */
    const double *slope_bytes; /* (n_vectors, n_devices) */
    const double *memory;      /* (n_devices) */
    int64_t work_ns;           /* of ratio_of_answer: what tables of its own took, about */
};
/* ratios: (n_vectors, n_devices), each vector's sum 1. *ns: INFINITY where memory is too short. O(one simplex). */
MUST_CHECK enum status ratio_solve(struct arena *a, const struct ratio_problem *p, double *ratios,
                                   double *ns, struct error *err);
double ratio_ns(const struct ratio_problem *p, const double *ratios); /* what given ratios take */

/* min work · max r_i/F_i + traffic · max r_i over Σ r = 1: (n) ratios; returns the minimum. O(n²). A check of ratio_solve. */
double ratio_closed_form(int32_t n, const double *speed, double work, double traffic,
                         double *ratios);

/* The linear program of an answer's choices, about the ratios that it was found with. One axis. */
MUST_CHECK enum status ratio_of_answer(struct arena *a, const struct spmd_question *q,
                                       const struct spmd_answer *x, struct ratio_problem *out,
                                       struct error *err);

struct ratio_best {
    struct spmd_answer answer;
    struct sharding *sharding; /* mesh, ratios and rules: a plan's */
    int64_t work_ns;           /* all searches and tables, as spmd_answer's */
    double first_ns;           /* what the first round, with the question's ratios, found */
};
/* Search and linear program by turns: from the question's ratios, from even and from proportional ones, until nothing gets
 * better. Where the question has one vector and the devices are unequal (and not one_vector), then also from the best of those,
 * even and proportional ones as three vectors: segments of the model may be dealt out differently, what goes between them
 * is dealt out anew at its cost, and the linear program has all of them as unknowns. The sharding has the vectors that are
 * used. Never worse than any pair that was priced, so never than one vector. q->s: mesh of one axis; its vectors are where
 * to begin. */
MUST_CHECK enum status ratio_alternate(struct arena *a, const struct spmd_question *q,
                                       struct ratio_best *out, struct error *err);

#endif
