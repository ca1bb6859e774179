/* tests/support/closed_ratios.h - the best ratios of one vector in closed form: the oracle of planner/spmd/ratio.
 *
 * With proportional computation and traffic and slack memory the optimum is r_i ∝ min(F_i, F_k) for the speed F_k of some device, from
 * even (the slowest) to proportional (the fastest).
 */
#ifndef TESTS_SUPPORT_CLOSED_RATIOS_H
#define TESTS_SUPPORT_CLOSED_RATIOS_H

#include <math.h>
#include <stdint.h>

/* min work · max r_i/F_i + traffic · max r_i over Σ r = 1. ratios: (n). Returns the minimum. O(n²). */
static inline double closed_ratios(int32_t n, const double *speed, double work, double traffic,
                         double *ratios)
{
    double best = INFINITY;
    int32_t by = 0;
    for (int32_t k = 0; k <= n; k++) { /* the last round stores the best */
        double sum = 0, slowest = 0, most = 0, level = speed[k < n ? k : by];
        for (int32_t i = 0; i < n; i++) sum += fmin(speed[i], level);
        for (int32_t i = 0; i < n; i++) {
            double r = fmin(speed[i], level) / sum;
            slowest = fmax(slowest, r / speed[i]), most = fmax(most, r);
            if (k == n) ratios[i] = r;
        }
        if (k < n && work * slowest + traffic * most < best)
            best = work * slowest + traffic * most, by = k;
    }
    return best;
}

#endif
