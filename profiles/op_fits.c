/* Fits of operators.
 *
 * Rows are grouped by (base, kind, dtype), and within a group by orientation, so that a fit uses adjacent rows. Two
 * coefficients beside the constant are fitted from FIT_ROWS_FOR_TWO rows on, one with fewer. An orientation has its own fit only
 * from the same number on, because with few rows it would be less accurate than the kind's.
 * On rows of a small Mixtral's products the median leave-one-out error was 6 to 9 % with one fit per kind and
 * 2 to 3 % with one per orientation: weight gradients of narrow outputs are faster than the corresponding forward products.
 * Ownership: the fits are the arena's, their bases the rows'.
 */
#include "profiles/op_fits.h"

#include "core/base/arena.h"
#include "profiles/fit.h"
#include "traces/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FIT_ROWS_MIN = 2, FIT_ROWS_FOR_TWO = 6, ORIENTATIONS = 3 };

bool op_fits_kind_is_dense(enum op_kind kind)
{
    return op_is_product(kind) || kind == OP_matmul_gelu_grad || kind == OP_logits_grad ||
           kind == OP_logits_weight_grad || kind == OP_attention_grad || kind == OP_conv2d_grad ||
           kind == OP_conv2d_weight_grad;
}

bool op_fits_row_has_work(const struct op_row *row)
{
    return !op_fits_kind_is_dense(row->kind) || row->flops > 0;
}

/* --- orientation ----------------------------------------------------------------------------- */

static bool has_orientation(enum op_kind kind)
{
    return kind == OP_matmul || kind == OP_linear || kind == OP_linear_gelu ||
           kind == OP_matmul_gelu_grad || kind == OP_expert_matmul;
}

static int32_t orientation_of(enum op_kind kind, const struct op_attrs *attrs)
{
    if (!has_orientation(kind) || !attrs) return 0;
    return attrs->trans_a ? 1 : attrs->trans_b ? 2 : 0;
}

/* Whether a row's text (op_key_text) contains the word; a word that ends in = is followed by a number. */
static bool predicts(const struct op_row *row, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = row->text; at && (at = strstr(at, word)); at += n)
        if (at > row->text && at[-1] == ' ' && (word[n - 1] == '=' || !at[n] || at[n] == ' '))
            return true;
    return false;
}

static int32_t row_orientation(const struct op_row *row)
{
    if (!has_orientation(row->kind)) return 0;
    return predicts(row, "ta") ? 1 : predicts(row, "tb") ? 2 : 0;
}

/* Usable rows: measured on the base itself, with work, on operands in its memory, and for expert operators with all experts. */
static bool counts(const struct op_row *row)
{
    return op_fits_row_has_work(row) && strncmp(row->base, "type:", 5) != 0 &&
           !op_is_measured(row->kind) && !predicts(row, "hosted") &&
           !(op_gates_input(row->kind) >= 0 && predicts(row, "experts="));
}

/* --- rows in groups -------------------------------------------------------------------------- */

struct groups {
    const struct op_row **rows; /* (n) by base, kind, dtype, orientation, key */
    size_t n;
};

static int by_kind(const void *a, const void *b)
{
    const struct op_row *x = *(const struct op_row *const *)a,
                        *y = *(const struct op_row *const *)b;
    int order = strcmp(x->base, y->base);
    if (order) return order;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
    order = row_orientation(x) - row_orientation(y);
    return order ? order : x->key < y->key ? -1 : x->key > y->key;
}

static struct groups groups_of(struct arena *scratch, const struct profile *p)
{
    struct groups g = {.rows = ARENA_ARRAY(scratch, const struct op_row *, p->n_ops)};
    for (size_t i = 0; i < p->n_ops; i++)
        if (counts(&p->ops[i])) g.rows[g.n++] = &p->ops[i];
    if (g.n) qsort(g.rows, g.n, sizeof *g.rows, by_kind);
    return g;
}

/* End of the rows of the kind, or of its orientation, that begin at first. */
static size_t group_end(const struct groups *g, size_t first, bool oriented)
{
    const struct op_row *x = g->rows[first];
    size_t end = first + 1;
    for (; end < g->n; end++) {
        const struct op_row *y = g->rows[end];
        if (x->kind != y->kind || x->dtype != y->dtype || strcmp(x->base, y->base) != 0) break;
        if (oriented && row_orientation(x) != row_orientation(y)) break;
    }
    return end;
}

/* --- one fit --------------------------------------------------------------------------------- */

/* seconds = constant + FLOPs · s_per_flop + bytes · s_per_byte over n rows of one kind without rows[without]; false: the rows do
 * not determine a line. */
static bool fit_rows(struct arena *scratch, const struct op_row *const *rows, size_t n,
                     size_t without, struct op_fit *out)
{
    bool dense = op_fits_kind_is_dense(rows[0]->kind);
    size_t left = n - (without < n), n_x = dense && left >= FIT_ROWS_FOR_TWO ? 2 : 1, at = 0;
    double *x = ARENA_ARRAY(scratch, double, 2 * n), *y = ARENA_ARRAY(scratch, double, n);
    struct fit_line line;
    *out = (struct op_fit){.base = rows[0]->base,
                           .kind = rows[0]->kind,
                           .dtype = rows[0]->dtype,
                           .min_flops = INFINITY,
                           .orientation = row_orientation(rows[0])};
    for (size_t i = 0; i < n; i++) {
        if (i == without) continue;
        x[at * n_x] = dense ? rows[i]->flops : rows[i]->bytes;
        if (n_x == 2) x[at * n_x + 1] = rows[i]->bytes;
        y[at++] = rows[i]->seconds;
        out->min_flops = fmin(out->min_flops, rows[i]->flops);
        out->max_flops = fmax(out->max_flops, rows[i]->flops);
    }
    if (left < FIT_ROWS_MIN || fit_relative(x, n_x, y, left, &line, NULL) != OK) return false;
    out->constant_s = line.constant;
    out->s_per_flop = dense ? line.slope[0] : 0;
    out->s_per_byte = dense ? line.slope[1] : line.slope[0];
    out->residual = line.residual;
    out->rows = (int32_t)line.n;
    return true;
}

static bool fit_oriented(struct arena *scratch, const struct op_row *const *rows, size_t n,
                         size_t without, struct op_fit *out)
{
    return has_orientation(rows[0]->kind) && n - (without < n) >= FIT_ROWS_FOR_TWO &&
           fit_rows(scratch, rows, n, without, out);
}

/* --- all fits -------------------------------------------------------------------------------- */

static const size_t none = SIZE_MAX; /* no row is left out */

enum status op_fits_fit(struct arena *a, struct profile *p, struct error *err)
{
    (void)err;
    struct arena *scratch = arena_new();
    size_t capacity = 0, capacity_oriented = 0, end = 0;
    struct op_fit fit;
    profile_sort(p);
    struct groups g = groups_of(scratch, p);
    p->fits = p->oriented = NULL;
    p->n_fits = p->n_oriented = 0;
    for (size_t first = 0; first < g.n; first = end) {
        end = group_end(&g, first, false);
        if (!fit_rows(scratch, g.rows + first, end - first, none, &fit)) continue;
        fit.orientation = 0;
        p->fits = arena_grow(a, p->fits, p->n_fits, &capacity, sizeof *p->fits);
        p->fits[p->n_fits++] = fit;
    }
    for (size_t first = 0; first < g.n; first = end) {
        end = group_end(&g, first, true);
        if (!fit_oriented(scratch, g.rows + first, end - first, none, &fit)) continue;
        p->oriented =
            arena_grow(a, p->oriented, p->n_oriented, &capacity_oriented, sizeof *p->oriented);
        p->oriented[p->n_oriented++] = fit;
    }
    arena_free(scratch);
    profile_scale_prior(a, p);
    return OK;
}

static bool fits(const struct op_fit *f, const char *base, enum op_kind kind, enum dtype t)
{
    return f->kind == kind && f->dtype == t && !strcmp(f->base, base);
}

const struct op_fit *op_fits_of(const struct profile *p, const char *base, enum op_kind kind,
                                const struct op_attrs *attrs, enum dtype t)
{
    int32_t orientation = orientation_of(kind, attrs);
    for (size_t i = 0; i < p->n_oriented && has_orientation(kind); i++)
        if (fits(&p->oriented[i], base, kind, t) && p->oriented[i].orientation == orientation)
            return &p->oriented[i];
    for (size_t i = 0; i < p->n_fits; i++)
        if (fits(&p->fits[i], base, kind, t)) return &p->fits[i];
    return NULL;
}

/* --- shapes left out ------------------------------------------------------------------------- */

static double error_of(const struct op_fit *f, const struct op_row *row)
{
    double seconds = f->constant_s + f->s_per_flop * row->flops + f->s_per_byte * row->bytes;
    return fabs(seconds / row->seconds - 1);
}

/* Leave-one-out errors of one kind's rows [first, end): by one fit, and by its orientation's. Returns their number. */
static size_t leave_each_out(const struct groups *g, size_t first, size_t end, double *by_kind,
                             double *by_orientation)
{
    size_t n = 0, oriented = first, oriented_end = first;
    struct arena *scratch = arena_new();
    for (size_t i = first; i < end; i++) {
        struct op_fit one, own;
        if (i == oriented_end) {
            oriented = i;
            oriented_end = group_end(g, i, true);
        }
        if (!(g->rows[i]->seconds > 0) ||
            !fit_rows(scratch, g->rows + first, end - first, i - first, &one))
            continue;
        by_kind[n] = by_orientation[n] = error_of(&one, g->rows[i]);
        if (fit_oriented(scratch, g->rows + oriented, oriented_end - oriented, i - oriented, &own))
            by_orientation[n] = error_of(&own, g->rows[i]);
        n++;
    }
    arena_free(scratch);
    return n;
}

size_t op_fits_errors(struct arena *a, const struct profile *p, struct fit_error **out)
{
    struct arena *scratch = arena_new();
    struct groups g = groups_of(scratch, p);
    size_t n_out = 0, capacity = 0, end = 0;
    double *by_kind = ARENA_ARRAY(scratch, double, g.n),
           *by_orientation = ARENA_ARRAY(scratch, double, g.n);
    *out = NULL;
    for (size_t first = 0; first < g.n; first = end) {
        end = group_end(&g, first, false);
        if (!has_orientation(g.rows[first]->kind)) continue;
        size_t n = leave_each_out(&g, first, end, by_kind, by_orientation);
        if (!n) continue;
        *out = arena_grow(a, *out, n_out, &capacity, sizeof **out);
        (*out)[n_out++] =
            (struct fit_error){.kind = g.rows[first]->kind,
                               .rows = (int32_t)n,
                               .by_kind = quantile_median_double(by_kind, n),
                               .by_orientation = quantile_median_double(by_orientation, n)};
    }
    arena_free(scratch);
    return n_out;
}
