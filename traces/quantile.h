/* traces/quantile.h - medians and quantiles; each function sorts its argument in place. */
#ifndef TRACES_QUANTILE_H
#define TRACES_QUANTILE_H

#include <stddef.h>
#include <stdint.h>

int64_t
quantile_median_ns(int64_t *values,
                   size_t n); /* even n: mean of the middle two, rounded down; n 0: 0 */
double quantile(double *values, size_t n,
                double share); /* nearest rank: the smallest value that at least `share` of all do not exceed */
double quantile_median_double(double *values,
                              size_t n); /* even n: mean of the middle two; n 0: 0 */

#endif
