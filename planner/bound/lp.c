#include "planner/bound/lp.h"

#include "core/base/arena.h"
#include "planner/lp.h"

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
    double *at_least, *price; /* price: of the solution */
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
    /* Rows without a column j > 0 are rare and harmless; an unbounded x_0 must have cost 0. */
    double scale = cost[0] > 1 ? 1 / cost[0] : 1;
    for (size_t i = 0; i < p->n_rows; i++) price[i] *= scale;
    for (size_t i = 0; i < p->n_rows; i++) sum += price[i] * p->at_least[i];
    for (int32_t j = 1; j < p->n_columns; j++)
        if (cost[j] > 0) sum -= cost[j] * scale;
    return sum > 0 ? sum : 0;
}

/* Entries by row, within a row in order of insertion. */
static void add_rows(const struct bound_lp *p, struct lp *lp)
{
    size_t *next = ARENA_ARRAY(p->arena, size_t, p->n + 1), *end;
    size_t *first = ARENA_ARRAY(p->arena, size_t, p->n_rows + 1);
    end = ARENA_ARRAY(p->arena, size_t, p->n_rows + 1);
    for (size_t i = 0; i < p->n; i++) { /* numbers from 1; 0 is none */
        size_t row = (size_t)p->entries[i].row;
        *(end[row] ? &next[end[row]] : &first[row]) = i + 1;
        end[row] = i + 1;
    }
    for (size_t row = 0; row < p->n_rows; row++) {
        for (size_t i = first[row]; i; i = next[i])
            lp_put(lp, p->entries[i - 1].column, p->entries[i - 1].value);
        lp_row(lp, p->at_least[row], INFINITY);
    }
}

double bound_lp_solve(struct bound_lp *p)
{
    double *price = ARENA_ARRAY(p->arena, double, p->n_rows + 1);
    struct lp *lp = lp_new(p->arena, LP_MIN);
    for (int32_t j = 0; j < p->n_columns; j++) lp_column(lp, 0, j ? 1 : INFINITY, j == 0);
    add_rows(p, lp);
    /* No cost is negative, so the initial basis is dual feasible; dual values of a failed attempt are usable as well. */
    struct lp_options how = {.dual = true,
                             .iterations = 100 + 20 * ((int32_t)p->n_rows + p->n_columns)};
    bool nowhere = lp_solve(lp, &how) == LP_INFEASIBLE;
    for (size_t i = 0; i < p->n_rows; i++) price[i] = lp_price(lp, (int32_t)i);
    lp_free(lp);
    p->price = price;
    return nowhere ? INFINITY : proved(p, price);
}

double bound_lp_price(const struct bound_lp *p, int32_t row) { return p->price[row]; }
