/* traces/quantile.h - medians of durations and of ratios; each sorts what it is given. */
#ifndef TRACES_QUANTILE_H
#define TRACES_QUANTILE_H

#include <stddef.h>
#include <stdint.h>

int64_t
quantile_median_ns(int64_t *values,
                   size_t n); /* of an even count the middle two's mean, rounded down; 0 of none */
double quantile(double *values, size_t n,
                double share); /* nearest rank: the least value that `share` of all do not exceed */
double quantile_median_double(double *values,
                              size_t n); /* of an even count the middle two's mean; 0 of none */

#endif
