/* tools/sweep/table.h - the results of a sweep as a table: on stdout, as JSON, as CSV, and back from CSV for pictures.
 *
 * CSV: a column per axis in SI units ("link:lan [B/s]"), then TABLE_COLUMNS, then with --allow two columns for each strategy and textbook plan,
 * NAME_s and NAME_progress. Empty: unknown, or no plan (`why` has the reason).
 */
#ifndef TOOLS_SWEEP_TABLE_H
#define TOOLS_SWEEP_TABLE_H

#include "core/base/error.h"
#include "tools/sweep/sweep.h"

#include <stdbool.h>
#include <stdio.h>

struct arena;
struct json;

#define TABLE_COLUMNS(X)                                                                           \
    X(iteration_s)                                                                                 \
    X(samples_per_s)                                                                               \
    X(tokens_per_s) X(cost) X(lower_bound_s) X(gap) X(devices) X(devices_used) X(strategy_s)       \
        X(baseline_s) X(baseline) X(exact) X(evaluated) X(stopped) X(plan) X(strategy) X(why)
enum table_column {
#define X(name) TABLE_##name,
    TABLE_COLUMNS(X)
#undef X
        TABLE_COLUMN_COUNT
};

/* Names of the lines of all points, in order of appearance. Returns their number. */
int32_t table_lines(struct arena *a, const struct sweep_grid *s, const char ***out);
/* A point's line of a name; NULL: it has none. */
const struct sweep_line *table_line(const struct sweep_point *x, const char *name);
void table_print(struct arena *a, const struct sweep_grid *s, bool all);
void table_json(const struct sweep_grid *s, struct json *j);
void table_csv(FILE *out, struct arena *a, const struct sweep_grid *s);

/* A table read from CSV. Numbers that are absent are NAN. */
struct table_axis {
    const char *name, *unit;
};
struct sweep_table {
    int32_t n_axes, n_rows;
    const struct table_axis *axes; /* (n_axes) */
    const double *at;              /* (n_rows, n_axes) */
    const double *values;          /* (n_rows, TABLE_plan): of the columns of numbers */
    int32_t n_lines;               /* strategies and textbook plans beside the found plan */
    const char **lines;            /* (n_lines) their names */
    const double *line_s;          /* (n_rows, n_lines) effective seconds of an iteration: time / progress */
};
/* The same of a sweep in memory. */
void table_make(struct arena *a, const struct sweep_grid *s, struct sweep_table *out);
/* Whether the file's first line is the head of such a table. */
bool table_is(const char *path);
/* ERR_INPUT with file:line. */
MUST_CHECK enum status table_read(struct arena *a, const char *path, struct sweep_table *out,
                                  struct error *err);

#endif
