/* Constants of a fit by name, the file of fits, and least squares. */
#include "core/base/arena.h"
#include "core/base/log.h"
#include "tests/validate/published.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

enum { CONSTANTS_MAX = PUBLISHED_FITTED_MAX, HALVINGS = 6 };
static const double difference = 0.02; /* of a logarithm, for derivatives */

static const struct {
    const char *name;
    size_t offset;
} constants[] = {
#define X(name) {#name, offsetof(struct published_fit, prior.name)},
    OP_PRIOR_CONSTANTS(X)
#undef X
        {"message_s", offsetof(struct published_fit, message_s)},
    {"parts_ratio", offsetof(struct published_fit, parts_ratio)},
};
enum { N_CONSTANTS = sizeof constants / sizeof *constants };

double *published_constant(struct published_fit *f, const char *name)
{
    for (int i = 0; i < N_CONSTANTS; i++)
        if (!strcmp(constants[i].name, name)) return (double *)((char *)f + constants[i].offset);
    return NULL;
}

const char *published_constants(struct arena *a)
{
    const char *list = constants[0].name;
    for (int i = 1; i < N_CONSTANTS; i++) list = arena_printf(a, "%s, %s", list, constants[i].name);
    return list;
}

/* Constants with an `every` are fitted, all on the same rows; the others are given. */
static enum status read_training(const struct csv *c, int32_t row, struct published_fit *out,
                                 struct error *err)
{
    int64_t every;
    if (!*csv_text(c, row, "every")) return OK;
    TRY(csv_count(c, row, "every", 1 << 20, &every, err));
    if (out->n_fitted &&
        (strcmp(out->trained_on, csv_text(c, row, "source")) || out->every != every))
        return error_set(err, ERR_INPUT,
                         "%s:%" PRId32 ": fit '%s' was trained on several sets of rows", c->file,
                         c->line[row], out->prior.fit);
    if (out->n_fitted == PUBLISHED_FITTED_MAX)
        return error_set(err, ERR_INPUT, "%s:%" PRId32 ": more than %d constants fitted", c->file,
                         c->line[row], PUBLISHED_FITTED_MAX);
    out->trained_on = csv_text(c, row, "source");
    out->every = (int32_t)every;
    out->fitted[out->n_fitted++] = csv_text(c, row, "constant");
    return OK;
}

enum status published_fit_read(struct arena *a, const char *path, const char *id,
                               struct published_fit *out, struct error *err)
{
    struct csv c;
    bool found = false;
    TRY(csv_read(a, path, &c, err));
    for (int32_t i = 0; i < c.n_rows; i++) {
        if (strcmp(csv_text(&c, i, "fit"), id) != 0) continue;
        if (!found) {
            *out = (struct published_fit){.prior = op_prior_default(csv_text(&c, i, "base"))};
            out->prior.fit = id;
            out->parts_ratio = 1;
        }
        const char *name = csv_text(&c, i, "constant");
        double *value = published_constant(out, name);
        if (!value)
            return error_set(err, ERR_INPUT, "%s:%" PRId32 ": no constant '%.40s'; there are %s",
                             path, c.line[i], name, published_constants(a));
        TRY(csv_number(&c, i, "value", value, err));
        TRY(read_training(&c, i, out, err));
        found = true;
    }
    return found ? OK : error_set(err, ERR_INPUT, "%s: no fit '%s'", path, id);
}

/* --- least squares --- */

struct search {
    struct published_case *cases;
    struct published_fit *fit;
    int32_t n, n_constants;
    double *value[CONSTANTS_MAX];
    double *residual;                                /* (n) */
    double *slope;                                   /* (n, n_constants) */
    double normal[CONSTANTS_MAX][CONSTANTS_MAX + 1]; /* slopeᵀ·slope | slopeᵀ·residual */
};

static enum status residuals(const struct search *s, double *out, double *sum, struct error *err)
{
    *sum = 0;
    for (int32_t i = 0; i < s->n; i++) {
        double seconds;
        TRY(published_seconds(&s->cases[i], s->fit, &seconds, err));
        out[i] = log(seconds / s->cases[i].measured_s);
        *sum += out[i] * out[i];
    }
    return OK;
}

static enum status slopes(struct search *s, double *scratch, struct error *err)
{
    double sum;
    for (int32_t k = 0; k < s->n_constants; k++) {
        double kept = *s->value[k];
        *s->value[k] = kept * exp(difference);
        TRY(residuals(s, scratch, &sum, err));
        *s->value[k] = kept;
        for (int32_t i = 0; i < s->n; i++)
            s->slope[i * s->n_constants + k] = (scratch[i] - s->residual[i]) / difference;
    }
    return OK;
}

/* Gaussian elimination with pivoting, solution in x; false: the matrix is singular. */
static bool solve(int32_t n, double m[][CONSTANTS_MAX + 1], double *x)
{
    for (int32_t c = 0; c < n; c++) {
        int32_t best = c;
        for (int32_t r = c + 1; r < n; r++)
            if (fabs(m[r][c]) > fabs(m[best][c])) best = r;
        if (fabs(m[best][c]) < 1e-12) return false;
        for (int32_t k = c; k <= n; k++) {
            double t = m[c][k];
            m[c][k] = m[best][k], m[best][k] = t;
        }
        for (int32_t r = c + 1; r < n; r++) {
            double f = m[r][c] / m[c][c];
            for (int32_t k = c; k <= n; k++) m[r][k] -= f * m[c][k];
        }
    }
    for (int32_t c = n - 1; c >= 0; c--) {
        x[c] = m[c][n];
        for (int32_t k = c + 1; k < n; k++) x[c] -= m[c][k] * x[k];
        x[c] /= m[c][c];
    }
    return true;
}

/* right: (n), or NULL for the residuals. */
static bool normal_solve(struct search *s, const double *right, double *x)
{
    int32_t p = s->n_constants;
    for (int32_t a = 0; a < p; a++) {
        for (int32_t b = 0; b < p; b++) {
            s->normal[a][b] = a == b ? 1e-6 : 0; /* a constant without effect keeps its value */
            for (int32_t i = 0; i < s->n; i++)
                s->normal[a][b] += s->slope[i * p + a] * s->slope[i * p + b];
        }
        s->normal[a][p] = right ? right[a] : 0;
        for (int32_t i = 0; i < s->n && !right; i++)
            s->normal[a][p] += s->slope[i * p + a] * s->residual[i];
    }
    return solve(p, s->normal, x);
}

/* false: no step improves the fit. */
static enum status step(struct search *s, double *sum, double *scratch, bool *better,
                        struct error *err)
{
    double x[CONSTANTS_MAX], start[CONSTANTS_MAX], now, share = 1;
    *better = false;
    TRY(slopes(s, scratch, err));
    if (!normal_solve(s, NULL, x)) return OK;
    for (int32_t k = 0; k < s->n_constants; k++) start[k] = *s->value[k];
    for (int h = 0; h < HALVINGS && !*better; h++, share /= 2) {
        for (int32_t k = 0; k < s->n_constants; k++)
            *s->value[k] = start[k] * exp(-fmax(-1, fmin(1, share * x[k])));
        TRY(residuals(s, scratch, &now, err));
        *better = now < *sum * (1 - 1e-5);
    }
    if (*better) {
        memcpy(s->residual, scratch, (size_t)s->n * sizeof *scratch);
        *sum = now;
    } else {
        for (int32_t k = 0; k < s->n_constants; k++) *s->value[k] = start[k];
    }
    return OK;
}

static enum status leave_out(struct search *s, double *scratch, double *left_out, struct error *err)
{
    int32_t p = s->n_constants;
    TRY(slopes(s, scratch, err));
    for (int32_t i = 0; i < s->n; i++) {
        double x[CONSTANTS_MAX], leverage = 0;
        if (normal_solve(s, &s->slope[i * p], x))
            for (int32_t k = 0; k < p; k++) leverage += x[k] * s->slope[i * p + k];
        left_out[i] = s->residual[i] / fmax(1 - leverage, 0.05);
    }
    return OK;
}

enum status published_fit(struct published_case *cases, int32_t n, struct published_fit *fit,
                          int32_t rounds, double *left_out, struct error *err)
{
    int32_t n_names = fit->n_fitted;
    const char *const *names = fit->fitted;
    struct arena *a = arena_new();
    struct search s = {.cases = cases, .fit = fit, .n = n, .n_constants = n_names};
    double *scratch = ARENA_ARRAY(a, double, (size_t)n), sum;
    bool better = true;
    s.residual = ARENA_ARRAY(a, double, (size_t)n);
    s.slope = ARENA_ARRAY(a, double, (size_t)n *(size_t)n_names);
    for (int32_t k = 0; k < n_names; k++) {
        s.value[k] = published_constant(fit, names[k]);
        if (!s.value[k] || !(*s.value[k] > 0)) BUG("constant %s cannot be sought", names[k]);
    }
    enum status status = residuals(&s, s.residual, &sum, err);
    for (int r = 0; r < rounds && status == OK && better; r++) {
        status = step(&s, &sum, scratch, &better, err);
        log_debug("fit: round %d, root mean square %.4f", r + 1, sqrt(sum / n));
    }
    if (status == OK && left_out) status = leave_out(&s, scratch, left_out, err);
    arena_free(a);
    return status;
}
