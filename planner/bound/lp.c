#include "planner/bound/lp.h"

#include "core/base/arena.h"

#include <glpk.h>
#include <math.h>
#include <stdbool.h>

struct entry {
    int32_t row, column;
    double value;
};
struct bound_lp {
    struct arena *arena;
    int32_t n_columns;
    size_t n_rows, row_capacity, n, capacity;
    double *at_least;
    struct entry *entries;
};

struct bound_lp *bound_lp_new(struct arena *a, int32_t n_columns)
{
    struct bound_lp *p = ARENA_ARRAY(a, struct bound_lp, 1);
    p->arena = a;
    p->n_columns = n_columns;
    return p;
}

int32_t bound_lp_row(struct bound_lp *p, double at_least)
{
    if (p->n_rows == p->row_capacity)
        p->at_least =
            arena_grow(p->arena, p->at_least, p->n_rows, &p->row_capacity, sizeof *p->at_least);
    p->at_least[p->n_rows] = at_least;
    return (int32_t)p->n_rows++;
}

void bound_lp_put(struct bound_lp *p, int32_t row, int32_t column, double value)
{
    if (value == 0) return;
    if (p->n == p->capacity)
        p->entries = arena_grow(p->arena, p->entries, p->n, &p->capacity, sizeof *p->entries);
    p->entries[p->n++] = (struct entry){row, column, value};
}

static double proved(const struct bound_lp *p, double *price)
{
    double sum = 0, *cost = ARENA_ARRAY(p->arena, double, (size_t)p->n_columns);
    for (size_t i = 0; i < p->n_rows; i++)
        if (!(price[i] > 0)) price[i] = 0;
    for (size_t i = 0; i < p->n; i++)
        cost[p->entries[i].column] += price[p->entries[i].row] * p->entries[i].value;
    /* Rows that name no column j > 0 are rare and harmless; x_0 without a bound must cost nothing. */
    double scale = cost[0] > 1 ? 1 / cost[0] : 1;
    for (size_t i = 0; i < p->n_rows; i++) sum += price[i] * p->at_least[i];
    for (int32_t j = 1; j < p->n_columns; j++)
        if (cost[j] > 0) sum -= cost[j];
    return sum * scale > 0 ? sum * scale : 0;
}

double bound_lp_solve(struct bound_lp *p)
{
    size_t n = p->n;
    int *row = ARENA_ARRAY(p->arena, int, n + 1), *column = ARENA_ARRAY(p->arena, int, n + 1);
    double *value = ARENA_ARRAY(p->arena, double, n + 1);
    double *price = ARENA_ARRAY(p->arena, double, p->n_rows + 1);
    for (size_t i = 0; i < n; i++) {
        row[i + 1] = p->entries[i].row + 1;
        column[i + 1] = p->entries[i].column + 1;
        value[i + 1] = p->entries[i].value;
    }
    glp_prob *g = glp_create_prob();
    glp_add_rows(g, (int)p->n_rows);
    glp_add_cols(g, p->n_columns);
    for (size_t i = 0; i < p->n_rows; i++)
        glp_set_row_bnds(g, (int)i + 1, GLP_LO, p->at_least[i], 0);
    for (int j = 1; j <= p->n_columns; j++) glp_set_col_bnds(g, j, j == 1 ? GLP_LO : GLP_DB, 0, 1);
    glp_set_obj_coef(g, 1, 1);
    glp_load_matrix(g, (int)n, row, column, value);
    glp_smcp how;
    glp_init_smcp(&how);
    how.msg_lev = GLP_MSG_OFF;
    how.it_lim = 100 + 20 * ((int)p->n_rows + p->n_columns);
    how.meth = GLP_DUALP; /* no price is negative, so the empty basis is dual feasible */
    int failed = glp_simplex(g, &how);
    if (failed) { /* the dual method turns in a circle now and then; prices of either will do */
        glp_std_basis(g);
        how.meth = GLP_PRIMAL;
        failed = glp_simplex(g, &how);
    }
    bool nowhere = !failed && glp_get_status(g) == GLP_NOFEAS;
    for (size_t i = 0; i < p->n_rows; i++) price[i] = glp_get_row_dual(g, (int)i + 1);
    glp_delete_prob(g);
    return nowhere ? INFINITY : proved(p, price);
}

void bound_lp_forget(void) { glp_free_env(); }
