#include "planner/lp.h"

#include "core/base/arena.h"
#include "core/base/error.h"
#include "core/base/stop.h"

#include <glpk.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct lp {
    struct arena *arena;
    glp_prob *glpk;
    /* (1 … n) coefficients of the next row or column, in GLPK's layout */
    int n, *index;
    double *value;
    size_t index_capacity, value_capacity;
};

/* --- GLPK's environment of this thread --- */

static _Thread_local char words[200];

static int on_text(void *none, const char *text)
{
    (void)none;
    if (strncmp(text, "Error detected in file", 22) != 0) /* the line after the message */
        snprintf(words, sizeof words, "%.*s", (int)strcspn(text, "\n"), text);
    return 1; /* not printed */
}

static void on_error(void *none)
{
    (void)none;
    BUG("GLPK: %s", words);
}

struct lp *lp_new(struct arena *a, enum lp_sense sense)
{
    struct lp *p = ARENA_ARRAY(a, struct lp, 1);
    glp_term_out(GLP_OFF);
    glp_term_hook(on_text, NULL);
    glp_error_hook(on_error, NULL);
    *p = (struct lp){.arena = a, .glpk = glp_create_prob()};
    p->index = arena_grow(a, NULL, 0, &p->index_capacity, sizeof *p->index);
    p->value = arena_grow(a, NULL, 0, &p->value_capacity, sizeof *p->value);
    glp_set_obj_dir(p->glpk, sense == LP_MAX ? GLP_MAX : GLP_MIN);
    return p;
}

void lp_free(struct lp *p) { glp_delete_prob(p->glpk); }

void lp_thread_end(void) { glp_free_env(); }

/* --- rows and columns --- */

void lp_put(struct lp *p, int32_t index, double value)
{
    if (value == 0) return;
    size_t used = (size_t)++p->n;
    p->index = arena_grow(p->arena, p->index, used, &p->index_capacity, sizeof *p->index);
    p->value = arena_grow(p->arena, p->value, used, &p->value_capacity, sizeof *p->value);
    p->index[p->n] = index + 1, p->value[p->n] = value;
}

static int bounds_kind(double low, double high)
{
    if (low == high) return GLP_FX;
    if (isinf(low)) return isinf(high) ? GLP_FR : GLP_UP;
    return isinf(high) ? GLP_LO : GLP_DB;
}

int32_t lp_row(struct lp *p, double low, double high)
{
    int row = glp_add_rows(p->glpk, 1);
    glp_set_row_bnds(p->glpk, row, bounds_kind(low, high), low, high);
    glp_set_mat_row(p->glpk, row, p->n, p->index, p->value);
    p->n = 0;
    return row - 1;
}

int32_t lp_column(struct lp *p, double low, double high, double cost)
{
    int column = glp_add_cols(p->glpk, 1);
    lp_set_bounds(p, column - 1, low, high);
    lp_set_cost(p, column - 1, cost);
    glp_set_mat_col(p->glpk, column, p->n, p->index, p->value);
    p->n = 0;
    return column - 1;
}

void lp_set_cost(struct lp *p, int32_t column, double cost)
{
    glp_set_obj_coef(p->glpk, column + 1, cost);
}

void lp_set_bounds(struct lp *p, int32_t column, double low, double high)
{
    glp_set_col_bnds(p->glpk, column + 1, bounds_kind(low, high), low, high);
}

/* --- solving --- */

/* Far beyond what a simplex takes that does not cycle: a few times the rows and columns. One that cycled had 35 rows and 18
 * columns, a primal simplex after presolving (2026-11-23, GLPK 5.0). */
enum { ITERATIONS = 10000, ITERATIONS_EACH = 100 };

static int iterations_most(const struct lp *p)
{
    return ITERATIONS + ITERATIONS_EACH * (glp_get_num_rows(p->glpk) + glp_get_num_cols(p->glpk));
}

enum lp_result lp_solve(struct lp *p, const struct lp_options *options)
{
    static const struct lp_options primal;
    const struct lp_options *o = options ? options : &primal;
    glp_smcp how;
    glp_init_smcp(&how);
    how.msg_lev = GLP_MSG_OFF;
    if (o->dual) how.meth = GLP_DUALP;
    if (o->presolve) how.presolve = GLP_ON;
    how.it_lim = o->iterations ? o->iterations : iterations_most(p);
    if (stop_requested()) return LP_FAILED;
    int failed = glp_simplex(p->glpk, &how);
    if (failed == GLP_EITLIM || (failed && !o->presolve)) { /* a method may cycle */
        glp_std_basis(p->glpk);
        how.meth = o->presolve ? GLP_DUALP : GLP_PRIMAL;
        how.presolve = GLP_OFF;
        failed = glp_simplex(p->glpk, &how);
    }
    int status = glp_get_status(p->glpk);
    if (failed == GLP_ENOPFS || (!failed && status == GLP_NOFEAS)) return LP_INFEASIBLE;
    if (failed == GLP_ENODFS || (!failed && status == GLP_UNBND)) return LP_UNBOUNDED;
    return !failed && status == GLP_OPT ? LP_OPTIMAL : LP_FAILED;
}

double lp_objective(const struct lp *p) { return glp_get_obj_val(p->glpk); }
double lp_value(const struct lp *p, int32_t column)
{
    return glp_get_col_prim(p->glpk, column + 1);
}
double lp_price(const struct lp *p, int32_t row) { return glp_get_row_dual(p->glpk, row + 1); }
