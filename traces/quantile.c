#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>

static int by_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static int by_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int64_t quantile_median_ns(int64_t *values, size_t n)
{
    if (!n) return 0;
    qsort(values, n, sizeof *values, by_ns);
    return n % 2 ? values[n / 2] : values[n / 2 - 1] + (values[n / 2] - values[n / 2 - 1]) / 2;
}

double quantile_median_double(double *values, size_t n)
{
    if (!n) return 0;
    qsort(values, n, sizeof *values, by_double);
    return n % 2 ? values[n / 2] : values[n / 2 - 1] + (values[n / 2] - values[n / 2 - 1]) / 2;
}

double quantile(double *values, size_t n, double share)
{
    if (!n) return 0;
    qsort(values, n, sizeof *values, by_double);
    double rank = ceil(share * (double)n - 1e-9);
    size_t i = rank < 1 ? 0 : (size_t)rank - 1;
    return values[i < n ? i : n - 1];
}
