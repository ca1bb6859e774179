#include "tools/sweep/picture.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/gnuplot.h"
#include "tools/plot.h"

#include <math.h>
#include <string.h>

enum { SERIES_NAMED = 12, TICS_MAX = 12, HUES = 8, PANELS = 3 };
static const char *const hues[HUES] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                       "#E69F00", "#56B4E9", "#882255", "#7F7F7F"};

struct drawing {
    const struct sweep_table *t;
    int32_t x;                 /* the axis across */
    int32_t n_series, *series; /* (n_rows) number of each row's line */
    int32_t *first;            /* (n_series) a row of each */
};

static double at(const struct sweep_table *t, int32_t row, int32_t axis)
{
    return t->at[(size_t)row * (size_t)t->n_axes + (size_t)axis];
}

static double value(const struct sweep_table *t, int32_t row, enum table_column c)
{
    return t->values[(size_t)row * TABLE_plan + (size_t)c];
}

static bool differs(double x, double y) { return x < y || x > y; }

static int32_t distinct(const struct sweep_table *t, int32_t axis)
{
    int32_t n = 0;
    for (int32_t i = 0; i < t->n_rows; i++) {
        bool seen = false;
        for (int32_t k = 0; k < i && !seen; k++) seen = !differs(at(t, i, axis), at(t, k, axis));
        n += !seen;
    }
    return n;
}

static bool same_series(const struct drawing *d, int32_t i, int32_t k)
{
    for (int32_t axis = 0; axis < d->t->n_axes; axis++)
        if (axis != d->x && differs(at(d->t, i, axis), at(d->t, k, axis))) return false;
    return true;
}

static void find_series(struct arena *a, struct drawing *d)
{
    int32_t most = 0;
    for (int32_t k = 0; k < d->t->n_axes; k++) {
        int32_t n = distinct(d->t, k);
        if (n > most) most = n, d->x = k;
    }
    d->series = ARENA_ARRAY(a, int32_t, (size_t)d->t->n_rows);
    d->first = ARENA_ARRAY(a, int32_t, (size_t)d->t->n_rows);
    for (int32_t i = 0; i < d->t->n_rows; i++) {
        int32_t s = 0;
        while (s < d->n_series && !same_series(d, i, d->first[s])) s++;
        if (s == d->n_series) d->first[d->n_series++] = i;
        d->series[i] = s;
    }
}

static const char *value_text(struct arena *a, const struct table_axis *x, double v)
{
    char text[32];
    if (!strcmp(x->unit, "B/s")) return arena_strdup(a, units_print_bytes_per_s(text, v));
    return arena_printf(a, !strcmp(x->unit, "1/h") ? "%g/h" : "%.10g", v);
}

static const char *series_name(struct arena *a, const struct drawing *d, int32_t s)
{
    const char *name = "";
    for (int32_t k = 0; k < d->t->n_axes; k++)
        if (k != d->x)
            name = arena_printf(a, "%s%s%s %s", name, *name ? ", " : "",
                                plot_shown(a, d->t->axes[k].name),
                                value_text(a, &d->t->axes[k], at(d->t, d->first[s], k)));
    return name;
}

/* A line's points; a row without a plan breaks it. */
static void write_series(FILE *out, const struct drawing *d, int32_t s, enum table_column c)
{
    fprintf(out, "$s%d_%d << END\n", (int)s, (int)c);
    for (int32_t i = 0; i < d->t->n_rows; i++) {
        if (d->series[i] != s) continue;
        double y = value(d->t, i, c);
        if (isfinite(y))
            fprintf(out, "%.10g %.10g\n", at(d->t, i, d->x), y);
        else
            fputs("\n", out);
    }
    fputs("END\n", out);
}

static bool has_values(const struct drawing *d, int32_t s, enum table_column c)
{
    for (int32_t i = 0; i < d->t->n_rows; i++)
        if ((s < 0 || d->series[i] == s) && isfinite(value(d->t, i, c))) return true;
    return false;
}

/* Rows without a plan, as crosses on the axis. */
static bool write_missing(FILE *out, const struct drawing *d)
{
    bool any = false;
    fputs("$missing << END\n", out);
    for (int32_t i = 0; i < d->t->n_rows; i++)
        if (!isfinite(value(d->t, i, TABLE_iteration_s))) {
            fprintf(out, "%.10g 0\n", at(d->t, i, d->x));
            any = true;
        }
    fputs("END\n", out);
    return any;
}

/* Logarithmic where values span a decade, so that 1, 2, 4 ... 64 do not crowd. */
static void write_across(FILE *out, struct arena *a, const struct drawing *d)
{
    double least = INFINITY, most = 0;
    int32_t n = distinct(d->t, d->x);
    for (int32_t i = 0; i < d->t->n_rows; i++) {
        least = fmin(least, at(d->t, i, d->x));
        most = fmax(most, at(d->t, i, d->x));
    }
    if (least > 0 && most >= 10 * least) {
        fputs("set logscale x\n", out);
        fprintf(out, "set xrange [%.10g:%.10g]\n", least / 1.15, most * 1.15);
    } else {
        double margin = most > least ? 0.06 * (most - least) : 0.5;
        fprintf(out, "set xrange [%.10g:%.10g]\n", least - margin, most + margin);
    }
    fputs("set xlabel ", out);
    gnuplot_text(out, plot_shown(a, d->t->axes[d->x].name));
    fputc('\n', out);
    if (n > TICS_MAX) return;
    fputs("set xtics (", out);
    for (int32_t i = 0, written = 0; i < d->t->n_rows; i++) {
        bool seen = false;
        for (int32_t k = 0; k < i && !seen; k++)
            seen = !differs(at(d->t, i, d->x), at(d->t, k, d->x));
        if (seen) continue;
        if (written++) fputs(", ", out);
        plot_tic(out, a, value_text(a, &d->t->axes[d->x], at(d->t, i, d->x)));
        fprintf(out, " %.10g", at(d->t, i, d->x));
    }
    fputs(")\n", out);
}

static void write_panel(FILE *out, struct arena *a, const struct drawing *d, enum table_column c,
                        bool missing)
{
    bool first = true, keyed = c == TABLE_iteration_s;
    static const char *const labels[TABLE_COLUMN_COUNT] = {[TABLE_iteration_s] =
                                                               "seconds of an iteration",
                                                           [TABLE_samples_per_s] = "samples/s",
                                                           [TABLE_tokens_per_s] = "tokens/s",
                                                           [TABLE_cost] = "cost of an iteration"};
    fprintf(out, "set ylabel '%s'\nset yrange [0:*]\nset key %s\nplot ", labels[c],
            keyed ? "outside top left horizontal font ',9' samplen 2" : "off");
    for (int32_t s = 0; s < d->n_series; s++) {
        if (!has_values(d, s, c)) continue;
        const char *name = d->n_series > 1 ? series_name(a, d, s) : "plan found";
        fprintf(out, "%s$s%d_%d using 1:2 with linespoints pt 7 ps 0.8 lc rgb '%s' ",
                first ? "" : ", ", (int)s, (int)c, hues[s % HUES]);
        if (s < SERIES_NAMED)
            fputs("title ", out), gnuplot_text(out, name);
        else
            fputs("notitle", out);
        if (keyed && has_values(d, s, TABLE_lower_bound_s)) {
            fprintf(out, ", $s%d_%d using 1:2 with lines dt 2 lc rgb '%s' ", (int)s,
                    TABLE_lower_bound_s, hues[s % HUES]);
            fputs(s ? "notitle" : "title 'lower bound'", out);
        }
        if (keyed && has_values(d, s, TABLE_strategy_s)) {
            fprintf(out, ", $s%d_%d using 1:2 with linespoints pt 4 ps 0.8 dt 3 lc rgb '%s' ", (int)s, TABLE_strategy_s, hues[s % HUES]);
            fputs(s ? "notitle" : "title 'trained differently (--allow)'", out);
        }
        first = false;
    }
    if (missing)
        fprintf(out,
                "%s$missing using 1:2 with points pt 2 ps 1.5 lc rgb '#B3202A' title 'no plan'",
                first ? "" : ", ");
    fprintf(out, "%s\n", first && !missing ? "NaN notitle" : "");
}

static void write_sweep(FILE *out, struct arena *a, const char *terminal, const char *output,
                        const void *what)
{
    const struct drawing *d = what;
    enum table_column panels[PANELS] = {TABLE_iteration_s};
    int n = 1;
    panels[n++] = has_values(d, -1, TABLE_tokens_per_s) ? TABLE_tokens_per_s : TABLE_samples_per_s;
    if (has_values(d, -1, TABLE_cost)) panels[n++] = TABLE_cost;
    plot_head(out, a, terminal, output, n > 2 ? 1600 : 1200,
              520 + 18 * (d->n_series < SERIES_NAMED ? d->n_series : SERIES_NAMED));
    for (int32_t s = 0; s < d->n_series; s++) {
        for (int i = 0; i < n; i++) write_series(out, d, s, panels[i]);
        write_series(out, d, s, TABLE_lower_bound_s);
        write_series(out, d, s, TABLE_strategy_s);
    }
    bool missing = write_missing(out, d);
    write_across(out, a, d);
    int32_t named = d->n_series < SERIES_NAMED ? d->n_series : SERIES_NAMED;
    /* room for a line of the key each, the lower bound and the missing points; its letters are 6/7 as high as the margin's unit */
    fprintf(out, "set tmargin %d\nset multiplot layout 1,%d", 2 + (named + 2) * 6 / 7, n);
    if (d->n_series > SERIES_NAMED) {
        fputs(" title ", out);
        gnuplot_text(out, arena_printf(a, "%d lines, of which %d are named", (int)d->n_series,
                                       SERIES_NAMED));
    }
    fputc('\n', out);
    for (int i = 0; i < n; i++) write_panel(out, a, d, panels[i], missing);
    fputs("unset multiplot\n", out);
}

enum status picture_sweep(struct arena *a, const struct sweep_table *t, const char *path,
                          struct error *err)
{
    struct drawing d = {.t = t};
    find_series(a, &d);
    return plot_image(a, path, write_sweep, &d, err);
}
