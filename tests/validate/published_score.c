/* Errors of predictions in a few figures. */
#include "core/base/arena.h"
#include "tests/validate/published_report.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>

struct ranked {
    double value;
    int32_t index;
};

static int by_value(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return x->value != y->value ? (x->value < y->value ? -1 : 1)
                                : (x->index > y->index) - (x->index < y->index);
}

/* Equal values share the mean of their ranks. */
static double *ranks(struct arena *a, const double *values, int32_t n)
{
    struct ranked *order = ARENA_ARRAY(a, struct ranked, (size_t)n);
    double *rank = ARENA_ARRAY(a, double, (size_t)n);
    for (int32_t i = 0; i < n; i++) order[i] = (struct ranked){values[i], i};
    qsort(order, (size_t)n, sizeof *order, by_value);
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && order[end].value == order[i].value;) end++;
        for (int32_t k = i; k < end; k++) rank[order[k].index] = (i + end - 1) / 2.0;
    }
    return rank;
}

static double spearman(struct arena *a, const double *x, const double *y, int32_t n)
{
    const double *rx = ranks(a, x, n), *ry = ranks(a, y, n);
    double mean = (n - 1) / 2.0, xy = 0, xx = 0, yy = 0;
    for (int32_t i = 0; i < n; i++) {
        xy += (rx[i] - mean) * (ry[i] - mean);
        xx += (rx[i] - mean) * (rx[i] - mean);
        yy += (ry[i] - mean) * (ry[i] - mean);
    }
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

struct published_score published_score(struct arena *a, const double *predicted,
                                       const double *measured, int32_t n)
{
    struct published_score s = {n, NAN, NAN, NAN, NAN, NAN};
    double *error = ARENA_ARRAY(a, double, (size_t)n), sum = 0, signed_sum = 0;
    if (!n) return s;
    s.most = 0;
    for (int32_t i = 0; i < n; i++) {
        double e = predicted[i] / measured[i] - 1;
        error[i] = fabs(e);
        sum += error[i], signed_sum += e;
        s.most = fmax(s.most, error[i]);
    }
    s.mape = sum / n;
    s.bias = signed_sum / n;
    s.p90 = quantile(error, (size_t)n, 0.9);
    if (n >= 3) s.spearman = spearman(a, predicted, measured, n);
    return s;
}
