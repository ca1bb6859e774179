/* planner/spmd/ratio.c - the linear program of planner/spmd/ratio.h.
 *
 * Columns are the shares of every vector and device, the largest share of each vector, the time of each block and of each collective. Times are
 * divided by that of the step with even ratios, so that coefficients are near 1. Cost: one simplex of O(vectors · devices + blocks) columns.
 */
#include "planner/spmd/ratio.h"

#include "core/base/arena.h"
#include "core/base/stop.h"
#include "planner/lp.h"

#include <math.h>
#include <string.h>

/* --- the linear program --- */

/* Columns: ratios (v, k), then M_v, C_b, T_j. */
struct columns {
    int32_t n, ratio, most, block, collective;
};

static struct columns columns_of(const struct ratio_problem *p)
{
    struct columns c = {0};
    c.most = c.ratio + p->n_vectors * p->n_devices;
    c.block = c.most + p->n_vectors;
    c.collective = c.block + p->n_blocks;
    c.n = c.collective + p->n_collectives;
    return c;
}

static void add_ratios(const struct ratio_problem *p, const struct columns *c, struct lp *lp)
{
    for (int32_t v = 0; v < p->n_vectors; v++) {
        for (int32_t k = 0; k < p->n_devices; k++) lp_put(lp, c->ratio + v * p->n_devices + k, 1);
        lp_row(lp, 1, 1);
        for (int32_t k = 0; k < p->n_devices; k++) {
            lp_put(lp, c->most + v, 1), lp_put(lp, c->ratio + v * p->n_devices + k, -1);
            lp_row(lp, 0, INFINITY);
        }
    }
}

static void add_times(const struct ratio_problem *p, const struct columns *c, struct lp *lp,
                      double unit)
{
    for (int32_t b = 0; b < p->n_blocks; b++)
        for (int32_t k = 0; k < p->n_devices; k++) {
            lp_put(lp, c->block + b, 1);
            for (int32_t v = 0; v < p->n_vectors; v++)
                lp_put(lp, c->ratio + v * p->n_devices + k,
                       -p->slope_ns[(b * p->n_vectors + v) * p->n_devices + k] / unit);
            lp_row(lp, p->fixed_ns[b * p->n_devices + k] / unit, INFINITY);
        }
    for (int32_t j = 0; j < p->n_collectives; j++)
        for (int32_t i = 0; i < p->collectives[j].n_tiers; i++) {
            const struct ratio_tier *t = &p->collectives[j].tiers[i];
            lp_put(lp, c->collective + j, 1),
                lp_put(lp, c->most + p->collectives[j].vector, -t->beta_ns / unit);
            lp_row(lp, t->alpha_ns / unit, INFINITY);
        }
}

static void add_memory(const struct ratio_problem *p, const struct columns *c, struct lp *lp)
{
    for (int32_t k = 0; k < p->n_devices && p->fixed_bytes; k++) {
        double unit = fmax(p->memory[k], 1);
        bool any = false;
        for (int32_t v = 0; v < p->n_vectors; v++)
            lp_put(lp, c->ratio + v * p->n_devices + k,
                   p->slope_bytes[v * p->n_devices + k] / unit),
                any = any || p->slope_bytes[v * p->n_devices + k] / unit != 0;
        if (any) lp_row(lp, -INFINITY, (p->memory[k] - p->fixed_bytes[k]) / unit);
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
    for (int32_t j = 0; j < p->n_collectives; j++) {
        double most = 0, ns = 0;
        for (int32_t k = 0; k < p->n_devices; k++)
            most = fmax(most, ratios[p->collectives[j].vector * p->n_devices + k]);
        for (int32_t i = 0; i < p->collectives[j].n_tiers; i++)
            ns =
                fmax(ns, p->collectives[j].tiers[i].alpha_ns + p->collectives[j].tiers[i].beta_ns * most);
        sum += p->collectives[j].weight * ns;
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
    struct lp *lp = lp_new(a, LP_MIN);
    for (int32_t k = 0; k < c.n; k++) lp_column(lp, 0, INFINITY, 0);
    for (int32_t b = 0; b < p->n_blocks; b++) lp_set_cost(lp, c.block + b, p->weight[b]);
    for (int32_t j = 0; j < p->n_collectives; j++)
        lp_set_cost(lp, c.collective + j, p->collectives[j].weight);
    add_ratios(p, &c, lp);
    add_times(p, &c, lp, unit);
    add_memory(p, &c, lp);
    enum lp_result found = lp_solve(lp, &(struct lp_options){.presolve = true});
    *ns = INFINITY;
    for (int32_t v = 0; v < p->n_vectors && found == LP_OPTIMAL; v++) {
        double sum = 0, *mine = ratios + v * p->n_devices;
        for (int32_t k = 0; k < p->n_devices; k++)
            sum += mine[k] = fmax(0, lp_value(lp, c.ratio + v * p->n_devices + k));
        for (int32_t k = 0; k < p->n_devices; k++) mine[k] /= sum;
    }
    lp_free(lp);
    TRY(stop_check(err));
    if (found == LP_INFEASIBLE) return OK; /* memory does not suffice */
    if (found != LP_OPTIMAL)
        return error_set(err, ERR_INPUT,
                         "ratios of %d devices: the linear program found no optimum", p->n_devices);
    *ns = ratio_ns(p, ratios);
    return OK;
}
