#include "tools/sweep/picture.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/gnuplot.h"
#include "tools/plot.h"

#include <math.h>
#include <string.h>

enum { SERIES_NAMED = 12, TICS_MAX = 12, HUES = 8, PANELS = 3, KEY_COLUMNS = 3 };
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

/* --- strategies: effective samples/s, a line for each, and the best over ranges of the axis --- */

static double line_s(const struct sweep_table *t, int32_t row, int32_t line) { return t->line_s[(size_t)row * (size_t)t->n_lines + (size_t)line]; }

static bool is_textbook(const char *name) { return !strncmp(name, LINE_TEXTBOOK, strlen(LINE_TEXTBOOK)); }

/* The strategy of the least effective time; -1: the plan found; -2: the row has no plan. */
static int32_t best_line(const struct sweep_table *t, int32_t row)
{
    int32_t best = -1;
    double least = value(t, row, TABLE_iteration_s);
    if (!isfinite(least)) return -2;
    for (int32_t k = 0; k < t->n_lines; k++)
        if (!is_textbook(t->lines[k]) && line_s(t, row, k) < least) least = line_s(t, row, k), best = k;
    return best;
}

static const char *line_hue(int32_t line) { return line < 0 ? hues[0] : hues[(line + 1) % HUES]; }

static const char *line_name(const struct drawing *d, int32_t line) { return line < 0 ? "synchronous, as found" : d->t->lines[line]; }

static void write_region(FILE *out, struct arena *a, const struct drawing *d, int32_t line, const char *from, const char *to, double middle,
                         int32_t number)
{
    fprintf(out, "set object %d rectangle from %s, graph 0 to %s, graph 1 fillcolor rgb '%s' fillstyle solid 0.13 noborder behind\n",
            (int)number + 1, from, to, line_hue(line));
    fprintf(out, "set label %d ", (int)number + 1);
    gnuplot_text(out, plot_shown(a, arena_printf(a, "%s", line < 0 ? "synchronous" : line_name(d, line))));
    fprintf(out, " at %.10g, graph 0.03 rotate by 90 left font ',10'\n", middle);
}

/* The border of two regions is half way between their points on the axis's scale. */
static void write_regions(FILE *out, struct arena *a, const struct drawing *d)
{
    const struct sweep_table *t = d->t;
    int32_t *row = ARENA_ARRAY(a, int32_t, (size_t)t->n_rows), n = 0;
    for (int32_t i = 0; i < t->n_rows; i++) {
        int32_t k = n++;
        for (; k > 0 && at(t, i, d->x) < at(t, row[k - 1], d->x); k--) row[k] = row[k - 1];
        row[k] = i;
    }
    double first_x = at(t, row[0], d->x);
    bool logarithmic = first_x > 0 && at(t, row[n - 1], d->x) >= 10 * first_x;
    const char *from = "graph 0";
    for (int32_t i = 0, begin = 0, number = 0; i < n; i++) {
        int32_t best = best_line(t, row[i]);
        if (i + 1 < n && best_line(t, row[i + 1]) == best) continue;
        const char *to = "graph 1";
        if (i + 1 < n) {
            double x = at(t, row[i], d->x), y = at(t, row[i + 1], d->x);
            to = arena_printf(a, "first %.10g", logarithmic ? sqrt(x * y) : (x + y) / 2);
        }
        double x = at(t, row[begin], d->x), y = at(t, row[i], d->x);
        if (best > -2) write_region(out, a, d, best, from, to, logarithmic ? sqrt(x * y) : (x + y) / 2, number++);
        from = to, begin = i + 1;
    }
}

static void write_line(FILE *out, const struct drawing *d, int32_t line)
{
    const struct sweep_table *t = d->t;
    fprintf(out, "$line%d << END\n", (int)line + 1);
    for (int32_t i = 0; i < t->n_rows; i++) {
        double s = line < 0 ? value(t, i, TABLE_iteration_s) : line_s(t, i, line),
               samples = value(t, i, TABLE_samples_per_s) * value(t, i, TABLE_iteration_s) / s;
        if (isfinite(samples))
            fprintf(out, "%.10g %.10g\n", at(t, i, d->x), samples);
        else
            fputs("\n", out);
    }
    fputs("END\n", out);
}

/* The last panel, because the regions stay set. */
static void write_strategies(FILE *out, struct arena *a, const struct drawing *d)
{
    write_regions(out, a, d);
    fprintf(out, "set ylabel 'effective samples/s (samples/s x progress)'\nset yrange [0:*]\nset key outside top left horizontal maxcols %d font ',9' samplen 2\nplot ", KEY_COLUMNS);
    for (int32_t k = -1; k < d->t->n_lines; k++) {
        bool textbook = k >= 0 && is_textbook(d->t->lines[k]);
        fprintf(out, "%s$line%d using 1:2 with linespoints pt %d ps 0.8 dt %d lw %d lc rgb '%s' title ", k < 0 ? "" : ", ", (int)k + 1,
                k < 0 ? 7 : 4, textbook ? 3 : 1, k < 0 ? 2 : 1, textbook ? "#000000" : line_hue(k));
        gnuplot_text(out, plot_shown(a, line_name(d, k)));
    }
    fputc('\n', out);
}

static void write_sweep(FILE *out, struct arena *a, const char *terminal, const char *output,
                        const void *what)
{
    const struct drawing *d = what;
    enum table_column panels[PANELS] = {TABLE_iteration_s};
    int n = 1;
    panels[n++] = has_values(d, -1, TABLE_tokens_per_s) ? TABLE_tokens_per_s : TABLE_samples_per_s;
    if (has_values(d, -1, TABLE_cost)) panels[n++] = TABLE_cost;
    bool strategies = d->t->n_lines && d->n_series == 1;
    plot_head(out, a, terminal, output, 600 * (n + strategies),
              520 + 18 * (d->n_series < SERIES_NAMED ? d->n_series : SERIES_NAMED));
    for (int32_t s = 0; s < d->n_series; s++) {
        for (int i = 0; i < n; i++) write_series(out, d, s, panels[i]);
        write_series(out, d, s, TABLE_lower_bound_s);
        write_series(out, d, s, TABLE_strategy_s);
    }
    for (int32_t k = -1; strategies && k < d->t->n_lines; k++) write_line(out, d, k);
    bool missing = write_missing(out, d);
    write_across(out, a, d);
    int32_t named = d->n_series < SERIES_NAMED ? d->n_series : SERIES_NAMED, rows = strategies ? d->t->n_lines / KEY_COLUMNS + 1 : 0;
    if (rows < named + 2) rows = named + 2;
    /* room for a line of the key each, the lower bound and the missing points; its letters are 6/7 as high as the margin's unit */
    fprintf(out, "set tmargin %d\nset multiplot layout 1,%d", 2 + rows * 6 / 7, n + strategies);
    if (d->n_series > SERIES_NAMED) {
        fputs(" title ", out);
        gnuplot_text(out, arena_printf(a, "%d lines, of which %d are named", (int)d->n_series,
                                       SERIES_NAMED));
    }
    fputc('\n', out);
    for (int i = 0; i < n; i++) write_panel(out, a, d, panels[i], missing);
    if (strategies) write_strategies(out, a, d);
    fputs("unset multiplot\n", out);
}

enum status picture_sweep(struct arena *a, const struct sweep_table *t, const char *path,
                          struct error *err)
{
    struct drawing d = {.t = t};
    find_series(a, &d);
    return plot_image(a, path, write_sweep, &d, err);
}
