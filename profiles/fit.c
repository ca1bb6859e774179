/* Robust lines through measured times.
 *
 * Times span decades and their errors are relative, so each row is divided by its y: the model is
 * 1 = constant/y + slope·x/y, all rows have equal weight, and Tukey's bisquare (GSL's robust regression) removes
 * stragglers. Plain least squares on the seconds gave a latency of −142 µs for a true value of 5 µs.
 * Costs cannot be negative: the most negative coefficient is dropped and the rest fitted again. That is the active-set step
 * of non-negative least squares (Lawson and Hanson 1974) without the return path, enough for three columns.
 * Columns are scaled to a maximum of 1 before the solve: seconds beside bytes would be singular to working precision.
 */
#include "profiles/fit.h"

#include "core/base/arena.h"
#include "traces/quantile.h"

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

enum { COLUMNS_MAX = 3 };

/* GSL's own handler aborts the program. */
static void fit_guard(void)
{
    static bool done;
    if (!done) gsl_set_error_handler_off();
    done = true;
}

struct problem {
    struct arena *arena;
    size_t n_columns, n;
    /* (n) each, divided by y and scaled; column 0 is the constant's */
    double *column[COLUMNS_MAX];
    double scale[COLUMNS_MAX];
    bool used[COLUMNS_MAX];
    double value[COLUMNS_MAX]; /* solution in scaled units; 0 where not used */
    bool robust;                /* the last solve was */
};

/* --- rows ------------------------------------------------------------------------------------ */

static bool usable(const double *x, size_t n_x, double y)
{
    for (size_t k = 0; k < n_x; k++)
        if (!isfinite(x[k]) || x[k] < 0) return false;
    return isfinite(y) && y > 0;
}

static void make_columns(struct problem *p, const double *x, size_t n_x, const double *y, size_t n)
{
    p->n_columns = n_x + 1;
    for (size_t c = 0; c < p->n_columns; c++) p->column[c] = ARENA_ARRAY(p->arena, double, n);
    for (size_t i = 0; i < n; i++) {
        if (!usable(x + i * n_x, n_x, y[i])) continue;
        for (size_t c = 0; c < p->n_columns; c++)
            p->column[c][p->n] = (c ? x[i * n_x + c - 1] : 1) / y[i];
        p->n++;
    }
    for (size_t c = 0; c < p->n_columns; c++) {
        p->scale[c] = 0;
        for (size_t i = 0; i < p->n; i++) p->scale[c] = fmax(p->scale[c], p->column[c][i]);
        p->used[c] = p->scale[c] > 0 && isfinite(p->scale[c]);
        for (size_t i = 0; i < p->n && p->used[c]; i++) p->column[c][i] /= p->scale[c];
    }
}

/* Whether column c is a multiple of the constant's: its x is equal in all rows. */
static bool same_everywhere(const struct problem *p, size_t c)
{
    double first = p->column[c][0] / p->column[0][0];
    for (size_t i = 1; i < p->n; i++)
        if (fabs(p->column[c][i] / p->column[0][i] - first) > 1e-9 * first) return false;
    return true;
}

/* --- one solve ------------------------------------------------------------------------------- */

static size_t n_used(const struct problem *p)
{
    size_t n = 0;
    for (size_t c = 0; c < p->n_columns; c++) n += p->used[c];
    return n;
}

static bool solve_robust(const gsl_matrix *x, const gsl_vector *ones, gsl_vector *c,
                         gsl_matrix *covariance)
{
    gsl_multifit_robust_workspace *w =
        gsl_multifit_robust_alloc(gsl_multifit_robust_bisquare, x->size1, x->size2);
    if (!w) arena_exhausted(x->size1 * x->size2 * sizeof(double));
    int rc = gsl_multifit_robust(x, ones, c, covariance, w);
    gsl_multifit_robust_free(w);
    return rc == GSL_SUCCESS || rc == GSL_EMAXITER; /* not converged: the last estimate is used */
}

static bool solve_plain(const gsl_matrix *x, const gsl_vector *ones, gsl_vector *c,
                        gsl_matrix *covariance)
{
    double chisq = 0;
    gsl_multifit_linear_workspace *w = gsl_multifit_linear_alloc(x->size1, x->size2);
    if (!w) arena_exhausted(x->size1 * x->size2 * sizeof(double));
    int rc = gsl_multifit_linear(x, ones, c, covariance, &chisq, w);
    gsl_multifit_linear_free(w);
    return rc == GSL_SUCCESS;
}

/* Fills value; false if the columns in use do not determine it. */
static bool solve(struct problem *p)
{
    size_t m = n_used(p), at = 0;
    gsl_matrix *x = gsl_matrix_alloc(p->n, m), *covariance = gsl_matrix_alloc(m, m);
    gsl_vector *ones = gsl_vector_alloc(p->n), *c = gsl_vector_alloc(m);
    if (!x || !covariance || !ones || !c) arena_exhausted(p->n * m * sizeof(double));
    gsl_vector_set_all(ones, 1);
    for (size_t k = 0; k < p->n_columns; k++) {
        if (!p->used[k]) continue;
        for (size_t i = 0; i < p->n; i++) gsl_matrix_set(x, i, at, p->column[k][i]);
        at++;
    }
    /* With only one or two redundant rows, stragglers cannot be detected. */
    bool ok = p->robust = p->n > m + 2 && solve_robust(x, ones, c, covariance);
    if (!ok) ok = solve_plain(x, ones, c, covariance);
    at = 0;
    for (size_t k = 0; k < p->n_columns; k++) {
        p->value[k] = p->used[k] ? gsl_vector_get(c, at++) : 0;
        ok = ok && isfinite(p->value[k]);
    }
    gsl_vector_free(c);
    gsl_vector_free(ones);
    gsl_matrix_free(covariance);
    gsl_matrix_free(x);
    return ok;
}

/* Relative RMS over the rows that bisquare keeps: those within 4.685 standard deviations, estimated by the median
 * of the deviations (Holland and Welsch 1977). */
static double relative_residual(const struct problem *p)
{
    double *r = ARENA_ARRAY(p->arena, double, p->n), *sorted = ARENA_ARRAY(p->arena, double, p->n),
           sum = 0;
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        r[i] = -1;
        for (size_t c = 0; c < p->n_columns; c++) r[i] += p->value[c] * p->column[c][i];
        sorted[i] = r[i] = fabs(r[i]);
    }
    double sigma = 1.4826 * quantile_median_double(sorted, p->n);
    for (size_t i = 0; i < p->n; i++) {
        if (p->robust && r[i] > 4.685 * sigma) continue;
        sum += r[i] * r[i];
        kept++;
    }
    return kept ? sqrt(sum / (double)kept) : 0;
}

/* --- the fit --------------------------------------------------------------------------------- */

static enum status fit_problem(struct problem *p, struct fit_line *out, struct error *err)
{
    bool all_equal = true;
    if (p->n < p->n_columns)
        return error_set(err, ERR_INPUT, "%zu usable rows cannot fit %zu coefficients", p->n,
                         p->n_columns);
    for (size_t c = 1; c < p->n_columns; c++) {
        if (p->used[c] && same_everywhere(p, c)) p->used[c] = false; /* the constant covers it */
        all_equal = all_equal && !p->used[c];
    }
    if (all_equal)
        return error_set(err, ERR_INPUT, "all %zu rows have the same x: no slope can be fitted",
                         p->n);
    for (;;) {
        if (!solve(p)) {
            if (!p->used[2])
                return error_set(err, ERR_INTERNAL, "a fit of %zu rows has no solution", p->n);
            p->used[2] = false; /* two collinear columns: one is enough */
            continue;
        }
        size_t worst = 0;
        for (size_t c = 1; c < p->n_columns; c++)
            if (p->value[c] < p->value[worst]) worst = c;
        if (p->value[worst] >= 0) break;
        p->used[worst] =
            false; /* never the last: one column of positive numbers has a positive coefficient */
    }
    *out = (struct fit_line){
        .constant = p->value[0] / p->scale[0], .residual = relative_residual(p), .n = p->n};
    for (size_t c = 1; c < p->n_columns; c++)
        out->slope[c - 1] = p->used[c] ? p->value[c] / p->scale[c] : 0;
    return OK;
}

enum status fit_relative(const double *x, size_t n_x, const double *y, size_t n,
                         struct fit_line *out, struct error *err)
{
    if (n_x < 1 || n_x > 2) BUG("fit_relative: %zu variables", n_x);
    fit_guard();
    struct problem p = {.arena = arena_new()};
    make_columns(&p, x, n_x, y, n);
    enum status st = fit_problem(&p, out, err);
    arena_free(p.arena);
    return st;
}

/* --- spread ---------------------------------------------------------------------------------- */

/* 1.4826 makes the median absolute deviation of a normal distribution its standard deviation. */
double fit_spread(double *values, size_t n)
{
    double median = quantile_median_double(values, n);
    if (!n || !(median > 0)) return 0;
    struct arena *scratch = arena_new();
    double *away = ARENA_ARRAY(scratch, double, n);
    for (size_t i = 0; i < n; i++) away[i] = fabs(values[i] - median);
    double spread = 1.4826 * quantile_median_double(away, n) / median;
    arena_free(scratch);
    return spread;
}
