/* profiles/fit.h - robust fits of costs. Every fit minimises relative residuals (rows divided by the measured value)
 * with Tukey's bisquare (GSL robust), so that stragglers have little influence. GSL's error handler never aborts. */
#ifndef PROFILES_FIT_H
#define PROFILES_FIT_H

#include "core/base/error.h"

#include <stddef.h>

struct fit_line { /* y = constant + slope[0] x[0] + slope[1] x[1] */
    /* residual: relative RMS over the rows that the robust weights keep */
    double constant, slope[2], residual;
    size_t n;
};
/* x: (n, n_x) row-major, n_x 1 or 2, y > 0. Coefficients are >= 0 (a negative one is dropped and the rest refitted).
 * ERR_INPUT: fewer rows than coefficients, or all x equal. */
MUST_CHECK enum status fit_relative(const double *x, size_t n_x, const double *y, size_t n,
                                    struct fit_line *out, struct error *err);
double fit_spread(double *values, size_t n); /* relative: 1.4826 · MAD / median; sorts values */

#endif
