#include "exec/gradient_noise.h"

#include <math.h>
#include <stdbool.h>

struct estimate { /* of one step */
    double variance, square;
};

static bool estimate_of(const double squares[2], int32_t replicas, int64_t batch, struct estimate *out)
{
    double small = squares[0], sum = squares[1], others = (double)replicas - 1;
    *out = (struct estimate){(double)batch * (small - sum) / others, (replicas * sum - small) / others};
    return isfinite(out->variance) && isfinite(out->square);
}

/* Standard error of the weighted mean of variance - ratio · square, about its own mean, which for the ratio of the means is 0. */
static double error_of(const double *squares, int64_t steps, int32_t replicas, int64_t batch, double of_variance, double of_square,
                       double mean)
{
    double weight = 1, sum = 0, all = 0, all2 = 0;
    for (int64_t i = steps - 1; i >= 0; i--) {
        struct estimate x;
        if (!estimate_of(squares + 2 * i, replicas, batch, &x)) continue;
        double d = of_variance * x.variance + of_square * x.square - mean;
        sum += weight * weight * d * d, all += weight, all2 += weight * weight;
        weight *= 1 - 1 / GRADIENT_NOISE_STEPS;
    }
    double free = 1 - all2 / (all * all); /* (n - 1) / n of n equal weights */
    return free > 0 ? sqrt(sum / free) / all : INFINITY;
}

struct gradient_noise gradient_noise_of(const double *squares, int64_t steps, int32_t replicas, int64_t batch)
{
    struct gradient_noise out = {0};
    double weight = 1, all = 0;
    for (int64_t i = steps - 1; i >= 0; i--) {
        struct estimate x;
        if (!estimate_of(squares + 2 * i, replicas, batch, &x)) continue;
        out.variance += weight * x.variance, out.square += weight * x.square;
        all += weight, weight *= 1 - 1 / GRADIENT_NOISE_STEPS;
        out.steps++;
    }
    if (!out.steps) return out;
    out.variance /= all, out.square /= all;
    if (out.steps < GRADIENT_NOISE_STEPS_MIN) return out;
    double certain = 2 * error_of(squares, steps, replicas, batch, 0, 1, out.square), ratio = out.variance / out.square;
    if (!(out.square > certain) || !(ratio > 0)) return out;
    out.scale = ratio;
    out.error = error_of(squares, steps, replicas, batch, 1, -ratio, 0) / out.square;
    return out;
}
