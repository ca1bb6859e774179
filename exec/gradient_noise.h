/* exec/gradient_noise.h - the gradient noise scale of a run, from squared norms of gradients.
 *
 * McCandlish et al. 2018, "An Empirical Model of Large-Batch Training" (arXiv 1812.06162), section 2 and appendix A.1. Let G be the true
 * gradient, S the covariance of one sequence's gradient. The mean gradient of b sequences has the expected square |G|² + tr S / b. The
 * noise scale B = tr S / |G|² is the batch at which both terms are equal.
 *
 * Replicas with unequal shares. Replica r's mean gradient g_r has b_r of the b = Σ b_r sequences, and g = Σ (b_r / b) g_r.
 *   E Σ (b_r / b) |g_r|² = |G|² + tr S · R / b      E |g|² = |G|² + tr S / b
 * whatever the shares of the R replicas: the small batch of the paper is b / R. Hence, without bias,
 *   tr S = b (small - sum) / (R - 1)                |G|² = (R sum - small) / (R - 1)
 * The first is the mean square between groups of an analysis of variance. Before the all-reduce a replica has a_r = (b_r / b) g_r, so that
 * small = Σ (b / b_r) |a_r|².
 */
#ifndef EXEC_GRADIENT_NOISE_H
#define EXEC_GRADIENT_NOISE_H

#include <stdint.h>

/* Of a step. Both averages forget with this time constant before their ratio is taken, because the ratio of one step is biased and wide:
 * McCandlish et al. average so too, and the scale changes over a training. A shorter run has the plain mean, to a few percent. */
#define GRADIENT_NOISE_STEPS 100.0
/* Fewer steps give no scale: the standard error comes from their own spread, and that of a few steps is often many times too small. */
#define GRADIENT_NOISE_STEPS_MIN 10

struct gradient_noise {
    int64_t steps;           /* averaged; 0: not measured, or no step was finite */
    double variance, square; /* averages of tr S, of one sequence, and of |G|²; either may be below 0 by chance */
    /* sequences: variance / square, and its standard error from the spread of the steps; 0: unknown, because of fewer than
     * GRADIENT_NOISE_STEPS_MIN steps, because `square` is not above two standard errors of its own, or because the noise is below 0 */
    double scale, error;
};

/* squares (steps, 2): small and sum of each step as above; steps that are not finite are left out. replicas >= 2, batch in sequences.
 * O(steps). */
struct gradient_noise gradient_noise_of(const double *squares, int64_t steps, int32_t replicas, int64_t batch);

#endif
