/* Losses of runs over their steps, tokens or hours, from the logs of `run --log`. */
#include "tools/plot.h"

#include "core/base/arena.h"
#include "tools/gnuplot.h"
#include "tools/run_log.h"

#include <math.h>
#include <string.h>

const char *const plot_over_names[] = {"steps", "tokens", "hours", NULL};

struct run_curve {
    const char *name;
    struct run_log_row *rows;
    size_t n;
    bool images;
};
struct run_curves {
    const struct run_curve *items;
    size_t n;
    enum plot_over over;
};

/* Okabe and Ito's palette without yellow, which is too light for a line. */
static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999"};

static double place(const struct run_log_row *r, enum plot_over over)
{
    return over == PLOT_OVER_TOKENS ? r->tokens : over == PLOT_OVER_HOURS ? r->elapsed_s / 3600 : (double)r->step;
}

static bool has(const struct run_curve *c, bool validation)
{
    bool any = false;
    for (size_t i = 0; i < c->n; i++) any |= c->rows[i].validation == validation && isfinite(c->rows[i].loss);
    return any;
}

/* A loss that is not finite leaves a gap in the line. */
static void write_points(FILE *out, const struct run_curve *c, enum plot_over over, bool validation)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct run_log_row *r = &c->rows[i];
        if (r->validation != validation) continue;
        if (isfinite(r->loss))
            fprintf(out, "%.9g %.9g\n", place(r, over), r->loss);
        else
            fputc('\n', out);
    }
}

static void write_losses(FILE *out, struct arena *a, const char *terminal, const char *output, const void *what)
{
    static const char *const units[] = {"steps", "tokens", "hours"};
    const struct run_curves *x = what;
    plot_head(out, a, terminal, output, 1000, 600);
    fprintf(out, "set xlabel '%s'\nset ylabel 'loss'\nset key outside top center horizontal\nset grid x y lc rgb '#DDDDDD'\n",
            x->over == PLOT_OVER_TOKENS && x->items[0].images ? "images" : units[x->over]);
    for (size_t i = 0; i < x->n; i++)
        for (int v = 0; v < 2; v++) {
            if (!has(&x->items[i], v)) continue;
            fprintf(out, "$r%zu%c << END\n", i, v ? 'v' : 't');
            write_points(out, &x->items[i], x->over, v);
            fputs("END\n", out);
        }
    fputs("plot ", out);
    const char *between = "";
    for (size_t i = 0; i < x->n; i++)
        for (int v = 0; v < 2; v++) {
            if (!has(&x->items[i], v)) continue;
            fprintf(out, "%s$r%zu%c using 1:2 with %s lc rgb '%s' title ", between, i, v ? 'v' : 't', v ? "linespoints dt 2 lw 2 pt 7 ps 0.6" : "lines lw 1.5",
                    colours[i % (sizeof colours / sizeof *colours)]);
            gnuplot_text(out, arena_printf(a, "%s%s", plot_shown(a, x->items[i].name), v ? " validation" : ""));
            between = ", ";
        }
    fprintf(out, "%s\n", *between ? "" : "NaN notitle");
}

enum status plot_runs(struct arena *a, const char *const *logs, size_t n, enum plot_over over, const char *path, struct error *err)
{
    struct run_curve *items = ARENA_ARRAY(a, struct run_curve, n);
    TRY(plot_format(path, err));
    for (size_t i = 0; i < n; i++) {
        if (!run_log_is(logs[i])) return error_set(err, ERR_INPUT, "%s is no log of run --log, as %s is: both must be drawn alone", logs[i], logs[0]);
        items[i].name = logs[i];
        TRY(run_log_read(a, logs[i], &items[i].rows, &items[i].n, &items[i].images, err));
        if (over == PLOT_OVER_TOKENS && items[i].images != items[0].images)
            return error_set(err, ERR_INPUT, "%s is of %s, %s of %s: draw them over steps or hours", logs[i], items[i].images ? "images" : "text", logs[0],
                             items[0].images ? "images" : "text");
    }
    const struct run_curves x = {items, n, over};
    return plot_image(a, path, write_losses, &x, err);
}
