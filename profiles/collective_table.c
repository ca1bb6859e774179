#include "profiles/collective_table.h"

#include "core/base/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- rows ------------------------------------------------------------------------------------ */

static int by_table(const struct collective_row *x, const struct collective_row *y)
{
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->n_ranks != y->n_ranks) return x->n_ranks < y->n_ranks ? -1 : 1;
    if (x->n_nodes != y->n_nodes) return x->n_nodes < y->n_nodes ? -1 : 1;
    int order = strcmp(x->algorithm, y->algorithm);
    return order ? order : strcmp(x->protocol, y->protocol);
}

static int by_row(const void *a, const void *b)
{
    const struct collective_row *x = a, *y = b;
    int order = by_table(x, y);
    return order ? order : x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static enum status check(const struct collective_row *r, struct error *err)
{
    if (!(r->bytes > 0) || !(r->seconds > 0) || !isfinite(r->seconds))
        return error_set(err, ERR_INPUT, "%s of %" PRId64 " bytes in %g s: both must be above 0",
                         collective_kind_name(r->kind), r->bytes, r->seconds);
    if (r->n_nodes < 1 || r->n_ranks < r->n_nodes || r->n_ranks % r->n_nodes)
        return error_set(err, ERR_INPUT,
                         "%s: %" PRId32 " ranks do not fill %" PRId32 " nodes evenly",
                         collective_kind_name(r->kind), r->n_ranks, r->n_nodes);
    return OK;
}

enum status collective_table_sort(struct collective_row *rows, size_t n, struct error *err)
{
    for (size_t i = 0; i < n; i++) TRY(check(&rows[i], err));
    if (n) qsort(rows, n, sizeof *rows, by_row);
    for (size_t i = 1; i < n; i++)
        if (!by_row(&rows[i - 1], &rows[i]))
            return error_set(err, ERR_INPUT,
                             "%s of %" PRId32 " ranks has two rows of %" PRId64 " bytes",
                             collective_kind_name(rows[i].kind), rows[i].n_ranks, rows[i].bytes);
    return OK;
}

enum status collective_table_merge(struct arena *a, const struct collective_row *old, size_t n_old,
                                   const struct collective_row *add, size_t n_add,
                                   struct collective_row **out, size_t *n, struct error *err)
{
    *out = ARENA_ARRAY(a, struct collective_row, n_old + n_add);
    *n = 0;
    for (size_t i = 0; i < n_old; i++) {
        bool replaced = false;
        for (size_t k = 0; k < n_add && !replaced; k++) replaced = !by_table(&old[i], &add[k]);
        if (!replaced) (*out)[(*n)++] = old[i];
    }
    for (size_t k = 0; k < n_add; k++) (*out)[(*n)++] = add[k];
    return collective_table_sort(*out, *n, err);
}

bool collective_table_next(const struct collective_row *rows, size_t n, size_t *at,
                           struct collective_table *out)
{
    size_t first = *at;
    if (first >= n) return false;
    while (*at < n && !by_table(&rows[first], &rows[*at])) ++*at;
    *out = (struct collective_table){rows + first, *at - first};
    return true;
}

bool collective_table_find(const struct collective_row *rows, size_t n, enum collective_kind kind,
                           int32_t n_ranks, int32_t n_nodes, const char *algorithm, int64_t bytes,
                           struct collective_table *out)
{
    struct collective_table t;
    double least = INFINITY;
    for (size_t at = 0; collective_table_next(rows, n, &at, &t);) {
        const struct collective_row *r = t.rows;
        if (r->kind != kind || r->n_ranks != n_ranks || r->n_nodes != n_nodes) continue;
        if (algorithm && strcmp(algorithm, r->algorithm) != 0) continue;
        bool chosen = !algorithm && !*r->algorithm && !*r->protocol;
        double seconds = chosen ? 0 : collective_table_seconds(&t, bytes);
        if (seconds >= least) continue;
        least = seconds;
        *out = t;
    }
    return least < INFINITY;
}

/* --- between rows ---------------------------------------------------------------------------- */

/* A table with at most one row left out. */
struct points {
    const struct collective_row *rows;
    size_t n, skip;
};

static const struct collective_row *point(const struct points *p, size_t i)
{
    return &p->rows[i + (i >= p->skip)];
}
static double x_of(const struct points *p, size_t i) { return log((double)point(p, i)->bytes); }
static double y_of(const struct points *p, size_t i) { return log(point(p, i)->seconds); }
static double width(const struct points *p, size_t i) { return x_of(p, i + 1) - x_of(p, i); }
static double slope(const struct points *p, size_t i)
{
    return (y_of(p, i + 1) - y_of(p, i)) / width(p, i);
}

/* At an end: of the parabola through three points, held between 0 and twice the slope of the first stretch. */
static double end_slope(double s, double h, double s_next, double h_next)
{
    double p = s * (1 + h / (h + h_next)) - s_next * h / (h + h_next);
    if (p * s <= 0) return 0;
    return fabs(p) > 2 * fabs(s) ? 2 * s : p;
}

static double tangent(const struct points *p, size_t i)
{
    size_t last = p->n - 1;
    if (p->n == 2) return slope(p, 0);
    if (!i) return end_slope(slope(p, 0), width(p, 0), slope(p, 1), width(p, 1));
    if (i == last)
        return end_slope(slope(p, last - 1), width(p, last - 1), slope(p, last - 2),
                         width(p, last - 2));
    double s = slope(p, i - 1), t = slope(p, i), h = width(p, i - 1), k = width(p, i);
    double parabola = (s * k + t * h) / (h + k);
    if (s * t <= 0) return 0;
    return copysign(2 * fmin(fmin(fabs(s), fabs(t)), fabs(parabola) / 2), s);
}

static double between(const struct points *p, size_t i, double x)
{
    double h = width(p, i), d = x - x_of(p, i), s = slope(p, i), t = tangent(p, i),
           u = tangent(p, i + 1);
    double cubic = (t + u - 2 * s) / (h * h), square = (3 * s - 2 * t - u) / h;
    return exp(((cubic * d + square) * d + t) * d + y_of(p, i));
}

static double seconds_of(const struct points *p, int64_t bytes)
{
    const struct collective_row *first = point(p, 0), *last = point(p, p->n - 1);
    if (bytes <= first->bytes) return first->seconds;
    if (bytes >= last->bytes) {
        double each = last->seconds / (double)last->bytes;
        if (p->n > 1) {
            const struct collective_row *before = point(p, p->n - 2);
            double more = (last->seconds - before->seconds) / (double)(last->bytes - before->bytes);
            if (more > 0) each = more;
        }
        return last->seconds + (double)(bytes - last->bytes) * each;
    }
    size_t low = 0, high = p->n - 1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (point(p, middle)->bytes <= bytes)
            low = middle;
        else
            high = middle;
    }
    if (point(p, low)->bytes == bytes) return point(p, low)->seconds;
    return between(p, low, log((double)bytes));
}

double collective_table_seconds(const struct collective_table *t, int64_t bytes)
{
    return seconds_of(&(struct points){t->rows, t->n, t->n}, bytes);
}

double collective_table_left_out(const struct collective_table *t, size_t i)
{
    if (!i || i + 1 >= t->n) BUG("row %zu of %zu cannot be left out", i, t->n);
    return seconds_of(&(struct points){t->rows, t->n - 1, i}, t->rows[i].bytes);
}

bool collective_table_holds(const struct collective_row *rows, size_t n, enum collective_kind kind,
                            enum collective_algorithm algorithm, int32_t n_ranks, int32_t n_nodes,
                            int64_t bytes, double *seconds)
{
    const char *names[] = {collective_algorithm_name(algorithm),
                           collective_native(kind, algorithm) ? "" : NULL};
    struct collective_table t;
    for (int i = 0; i < 2 && names[i]; i++) {
        if (!collective_table_find(rows, n, kind, n_ranks, n_nodes, names[i], bytes, &t) ||
            bytes < t.rows[0].bytes || bytes > t.rows[t.n - 1].bytes)
            continue;
        *seconds = collective_table_seconds(&t, bytes);
        return true;
    }
    return false;
}

/* --- tables before priors -------------------------------------------------------------------- */

static double nearest_spread(const struct collective_table *t, int64_t bytes)
{
    double spread = NAN, nearest = INFINITY;
    for (size_t i = 0; i < t->n; i++) {
        double away = fabs(log((double)t->rows[i].bytes) - log((double)(bytes > 0 ? bytes : 1)));
        if (away < nearest) nearest = away, spread = t->rows[i].spread;
    }
    return spread;
}

enum status collective_estimate(const struct collective_row *rows, size_t n,
                                const char *nccl_version, const struct nccl_system *s,
                                enum collective_kind kind, int32_t n_ranks, int32_t n_nodes,
                                int64_t bytes, struct collective_estimate *out, struct error *err)
{
    struct collective_table t;
    if (collective_table_find(rows, n, kind, n_ranks, n_nodes, NULL, bytes, &t)) {
        *out = (struct collective_estimate){.seconds = collective_table_seconds(&t, bytes),
                                            .spread = nearest_spread(&t, bytes),
                                            .source = SOURCE_MEASURED};
        return OK;
    }
    if (!s)
        return error_set(err, ERR_INPUT,
                         "no measurement of %s of %" PRId32 " ranks on %" PRId32
                         " nodes, and NCCL's model does not cover these devices",
                         collective_kind_name(kind), n_ranks, n_nodes);
    *out = (struct collective_estimate){.spread = NAN, .source = SOURCE_CATALOGUE};
    TRY(nccl_choose(nccl_version, s, kind, bytes, &out->choice, err));
    out->seconds = out->choice.seconds;
    return OK;
}
