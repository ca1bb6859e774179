/* planner/spmd/ratio.c - the linear program and its closed form. */
#include "planner/spmd/ratio.h"

#include "core/base/arena.h"

#include <glpk.h>
#include <math.h>
#include <string.h>

/* --- the linear program --- */

/* Columns, from 1: ratios (v, k), then M_v, C_b, T_j. */
struct columns {
    int32_t n, ratio, most, block, meeting;
};

static struct columns columns_of(const struct ratio_problem *p)
{
    struct columns c = {.ratio = 1};
    c.most = c.ratio + p->n_vectors * p->n_devices;
    c.block = c.most + p->n_vectors;
    c.meeting = c.block + p->n_blocks;
    c.n = c.meeting + p->n_meetings - 1;
    return c;
}

struct rows {
    glp_prob *g;
    int n, *column;
    double *value;
};

static void term(struct rows *r, int32_t column, double value)
{
    if (value == 0) return;
    r->column[++r->n] = column, r->value[r->n] = value;
}

/* Σ terms in [low, high]; an infinite end is none. */
static void close_row(struct rows *r, double low, double high)
{
    int row = glp_add_rows(r->g, 1);
    int kind = low == high ? GLP_FX : isinf(low) ? GLP_UP : isinf(high) ? GLP_LO : GLP_DB;
    glp_set_row_bnds(r->g, row, kind, low, high);
    glp_set_mat_row(r->g, row, r->n, r->column, r->value);
    r->n = 0;
}

static void add_ratios(const struct ratio_problem *p, const struct columns *c, struct rows *r)
{
    for (int32_t v = 0; v < p->n_vectors; v++) {
        for (int32_t k = 0; k < p->n_devices; k++) term(r, c->ratio + v * p->n_devices + k, 1);
        close_row(r, 1, 1);
        for (int32_t k = 0; k < p->n_devices; k++) {
            term(r, c->most + v, 1), term(r, c->ratio + v * p->n_devices + k, -1);
            close_row(r, 0, INFINITY);
        }
    }
}

static void add_times(const struct ratio_problem *p, const struct columns *c, struct rows *r,
                      double unit)
{
    for (int32_t b = 0; b < p->n_blocks; b++)
        for (int32_t k = 0; k < p->n_devices; k++) {
            term(r, c->block + b, 1);
            for (int32_t v = 0; v < p->n_vectors; v++)
                term(r, c->ratio + v * p->n_devices + k,
                     -p->slope_ns[(b * p->n_vectors + v) * p->n_devices + k] / unit);
            close_row(r, p->fixed_ns[b * p->n_devices + k] / unit, INFINITY);
        }
    for (int32_t j = 0; j < p->n_meetings; j++)
        for (int32_t i = 0; i < p->meetings[j].n_tiers; i++) {
            const struct ratio_tier *t = &p->meetings[j].tiers[i];
            term(r, c->meeting + j, 1),
                term(r, c->most + p->meetings[j].vector, -t->beta_ns / unit);
            close_row(r, t->alpha_ns / unit, INFINITY);
        }
}

static void add_memory(const struct ratio_problem *p, const struct columns *c, struct rows *r)
{
    for (int32_t k = 0; k < p->n_devices && p->fixed_bytes; k++) {
        double unit = fmax(p->memory[k], 1);
        for (int32_t v = 0; v < p->n_vectors; v++)
            term(r, c->ratio + v * p->n_devices + k, p->slope_bytes[v * p->n_devices + k] / unit);
        if (r->n) close_row(r, -INFINITY, (p->memory[k] - p->fixed_bytes[k]) / unit);
    }
}

double ratio_ns(const struct ratio_problem *p, const double *ratios)
{
    double sum = p->rest_ns;
    for (int32_t b = 0; b < p->n_blocks; b++) {
        double most = 0;
        for (int32_t k = 0; k < p->n_devices; k++) {
            double ns = p->fixed_ns[b * p->n_devices + k];
            for (int32_t v = 0; v < p->n_vectors; v++)
                ns += p->slope_ns[(b * p->n_vectors + v) * p->n_devices + k] *
                      ratios[v * p->n_devices + k];
            most = fmax(most, ns);
        }
        sum += p->weight[b] * most;
    }
    for (int32_t j = 0; j < p->n_meetings; j++) {
        double most = 0, ns = 0;
        for (int32_t k = 0; k < p->n_devices; k++)
            most = fmax(most, ratios[p->meetings[j].vector * p->n_devices + k]);
        for (int32_t i = 0; i < p->meetings[j].n_tiers; i++)
            ns =
                fmax(ns, p->meetings[j].tiers[i].alpha_ns + p->meetings[j].tiers[i].beta_ns * most);
        sum += p->meetings[j].weight * ns;
    }
    return sum;
}

/* Numbers near 1 for the simplex: times in units of the step with even ratios. */
static double unit_of(struct arena *a, const struct ratio_problem *p)
{
    double *even = ARENA_ARRAY(a, double, (size_t)(p->n_vectors * p->n_devices));
    for (int32_t k = 0; k < p->n_vectors * p->n_devices; k++) even[k] = 1.0 / p->n_devices;
    return fmax(ratio_ns(p, even), 1);
}

enum status ratio_solve(struct arena *a, const struct ratio_problem *p, double *ratios, double *ns,
                        struct error *err)
{
    struct columns c = columns_of(p);
    double unit = unit_of(a, p);
    struct rows r = {.g = glp_create_prob()};
    r.column = ARENA_ARRAY(a, int, (size_t)c.n + 1);
    r.value = ARENA_ARRAY(a, double, (size_t)c.n + 1);
    glp_add_cols(r.g, c.n);
    for (int32_t k = 1; k <= c.n; k++) glp_set_col_bnds(r.g, k, GLP_LO, 0, 0);
    for (int32_t b = 0; b < p->n_blocks; b++) glp_set_obj_coef(r.g, c.block + b, p->weight[b]);
    for (int32_t j = 0; j < p->n_meetings; j++)
        glp_set_obj_coef(r.g, c.meeting + j, p->meetings[j].weight);
    add_ratios(p, &c, &r);
    add_times(p, &c, &r, unit);
    add_memory(p, &c, &r);
    glp_smcp how;
    glp_init_smcp(&how);
    how.msg_lev = GLP_MSG_OFF, how.presolve = GLP_ON;
    int failed = glp_simplex(r.g, &how), status = glp_get_status(r.g);
    bool short_of_memory = failed == GLP_ENOPFS || (!failed && status == GLP_NOFEAS);
    *ns = INFINITY;
    for (int32_t v = 0; v < p->n_vectors && !failed && status == GLP_OPT; v++) {
        double sum = 0, *mine = ratios + v * p->n_devices;
        for (int32_t k = 0; k < p->n_devices; k++)
            sum += mine[k] = fmax(0, glp_get_col_prim(r.g, c.ratio + v * p->n_devices + k));
        for (int32_t k = 0; k < p->n_devices; k++) mine[k] /= sum;
    }
    glp_delete_prob(r.g);
    if (short_of_memory) return OK;
    if (failed || status != GLP_OPT)
        return error_set(err, ERR_INPUT, "ratios of %d devices: GLPK gave up (%d, %d)",
                         p->n_devices, failed, status);
    *ns = ratio_ns(p, ratios);
    return OK;
}

/* --- the closed form --- */

double ratio_closed_form(int32_t n, const double *speed, double work, double traffic,
                         double *ratios)
{
    double best = INFINITY;
    int32_t by = 0;
    for (int32_t k = 0; k <= n; k++) { /* the last round writes the best one down */
        double sum = 0, slowest = 0, most = 0, level = speed[k < n ? k : by];
        for (int32_t i = 0; i < n; i++) sum += fmin(speed[i], level);
        for (int32_t i = 0; i < n; i++) {
            double r = fmin(speed[i], level) / sum;
            slowest = fmax(slowest, r / speed[i]), most = fmax(most, r);
            if (k == n) ratios[i] = r;
        }
        if (k < n && work * slowest + traffic * most < best)
            best = work * slowest + traffic * most, by = k;
    }
    return best;
}
