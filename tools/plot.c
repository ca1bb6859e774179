/* A timeline draws calls, not operators: gnuplot draws a thousand boxes in a third of a second but a hundred thousand in a
 * minute. */
#include "tools/plot.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "tools/gnuplot.h"
#include "tools/timeline.h"

#include <stdio.h>
#include <string.h>

const char *plot_shown(struct arena *a, const char *name)
{
    size_t n = 4 * strlen(name) + 1;
    return log_safe(arena_alloc(a, n, 1), n, name);
}

void plot_tic(FILE *out, struct arena *a, const char *label)
{
    size_t n = 0;
    char *format = arena_alloc(a, 2 * strlen(label) + 1, 1);
    for (const char *c = label; *c; c++) {
        if (*c == '%') format[n++] = '%';
        format[n++] = *c;
    }
    format[n] = 0;
    gnuplot_text(out, format);
}

void plot_head(FILE *out, struct arena *a, const char *terminal, const char *output, int width,
               int height)
{
    fputs("set encoding utf8\n", out);
    if (!strcmp(terminal, "svg"))
        fprintf(out,
                "set terminal svg size %d,%d font 'DejaVu Sans,13' noenhanced background rgb "
                "'white'\n",
                width, height);
    else
        fprintf(out, "set terminal pngcairo size %d,%d font 'DejaVu Sans,11' noenhanced\n", width,
                height);
    fputs("set output ", out);
    /* gnuplot takes a leading '|' for a command and '~' for a home directory. */
    if (output) gnuplot_text(out, *output == '/' ? output : arena_printf(a, "./%s", output));
    fputs("\nset style fill solid 1.0 noborder\nset border 3\nset xtics nomirror out\n"
          "set ytics nomirror\nset grid x lc rgb '#DDDDDD'\n",
          out);
}

/* --- a picture in a file --- */

static enum status draw(FILE *out, struct arena *a, plot_script *write, const void *what,
                        const char *format, struct error *err)
{
    FILE *script = NULL;
    char *image = NULL;
    size_t bytes = 0;
    TRY(gnuplot_open(&script, err));
    write(script, a, format, NULL, what);
    TRY(gnuplot_draw(a, script, format, &image, &bytes, err));
    fwrite(image, 1, bytes, out); /* file_commit checks for write errors */
    return OK;
}

enum status plot_format(const char *path, struct error *err)
{
    const char *ending = strrchr(path, '.');
    if (ending && (!strcmp(ending, ".gp") || !strcmp(ending, ".png") || !strcmp(ending, ".svg")))
        return OK;
    if (!strcmp(path, "-"))
        return error_set(err, ERR_USAGE,
                         "a picture is not written to standard output, because the suffix of its "
                         "file selects the format: -o NAME.png, .svg or .gp");
    return error_set(err, ERR_USAGE, "%s: plot writes .png, .svg, .gp or .json (Chrome/Perfetto)",
                     path);
}

enum status plot_image(struct arena *a, const char *path, plot_script *write, const void *what,
                       struct error *err)
{
    struct file f = {0};
    TRY(plot_format(path, err));
    const char *ending = strrchr(path, '.');
    TRY(file_open(&f, path, err));
    enum status st = OK;
    if (!strcmp(ending, ".gp"))
        write(f.stream, a, "png", arena_printf(a, "%s.png", path), what);
    else
        st = draw(f.stream, a, write, what, ending + 1, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    return st;
}

/* --- timelines --- */

struct timelines {
    size_t n;
    int32_t n_rows; /* of all */
    struct trace *const *traces;
    struct step_timeline *items;
};

static const char *made_by(const struct trace *t)
{
    return trace_is_predicted(t) ? "predicted" : "measured";
}

static void write_rows(FILE *out, struct arena *a, const struct timelines *x)
{
    int32_t row = 0;
    fprintf(out, "set yrange [-0.7:%g]\nset ytics (", x->n_rows - 0.3);
    for (size_t i = 0; i < x->n; i++)
        for (int32_t r = 0; r < x->items[i].n_rows; r++, row++) {
            if (row) fputs(", ", out);
            plot_tic(out, a,
                     arena_printf(a, "%s %s", made_by(x->traces[i]), x->items[i].rows[r].label));
            fprintf(out, " %d", (int)(x->n_rows - 1 - row));
        }
    fprintf(out, ")\n");
}

static void write_titles(FILE *out, struct arena *a, const struct timelines *x)
{
    const char *title = "";
    for (size_t i = 0; i < x->n; i++) {
        char text[32];
        const struct trace *t = x->traces[i];
        const struct step_timeline *l = &x->items[i];
        title = arena_printf(a, "%s%s%s %s %s%s", title, i ? "    " : "", made_by(t),
                             plot_shown(a, t->plan), units_print_ns(text, t->iteration_ns),
                             !trace_is_predicted(t) && t->emulated ? " (emulated devices)" : "");
        if (l->n_rows < l->n_devices)
            title = arena_printf(a, "%s, %d of %d classes of %lld devices", title, (int)l->n_rows,
                                 (int)l->n_classes, (long long)l->n_devices);
    }
    fputs("set title ", out);
    gnuplot_text(out, title);
    fputc('\n', out);
    for (int32_t row = 0, i = 0; (size_t)i + 1 < x->n; i++) {
        row += x->items[i].n_rows;
        double y = x->n_rows - row - 0.5;
        fprintf(
            out,
            "set arrow from graph 0, first %g to graph 1, first %g nohead lc rgb '#888888' dt 2\n",
            y, y);
    }
}

static void write_box(FILE *out, const struct timeline_box *b, int32_t row, int32_t rows)
{
    double y = rows - 1 - row,
           middle = b->compute ? y : y - 0.4; /* messages below their device's row */
    double low = b->compute ? middle - 0.28 : middle,
           high = b->compute ? middle + 0.4 : middle + 0.1;
    fprintf(out, "%.6f %.3f %.6f %.6f %.3f %.3f\n", 0.5e-6 * (double)(b->begin_ns + b->end_ns),
            middle, 1e-6 * (double)b->begin_ns, 1e-6 * (double)b->end_ns, low, high);
}

static bool write_data(FILE *out, const struct timelines *x, int32_t colour)
{
    bool any = false;
    for (size_t i = 0, row = 0; i < x->n; row += (size_t)x->items[i++].n_rows)
        for (size_t k = 0; k < x->items[i].n_boxes; k++) {
            const struct timeline_box *b = &x->items[i].boxes[k];
            if (b->colour != colour) continue;
            if (!any) fprintf(out, "$c%d << END\n", (int)colour);
            any = true;
            write_box(out, b, (int32_t)row + b->row, x->n_rows);
        }
    if (any) fprintf(out, "END\n");
    return any;
}

static void write_boxes(FILE *out, const struct timelines *x)
{
    int64_t length_ns = 1;
    for (size_t i = 0; i < x->n; i++)
        length_ns = units_max(length_ns, x->items[i].end_ns - x->items[i].begin_ns);
    fprintf(out, "set xrange [0:%.6f]\n", 1e-6 * (double)length_ns);
    bool used[2 * TIMELINE_COLOURS], first = true;
    for (int32_t k = 0; k < 2 * TIMELINE_COLOURS; k++) used[k] = write_data(out, x, k);
    fprintf(out, "plot ");
    for (int32_t k = 0; k < 2 * TIMELINE_COLOURS; k++) {
        if (!used[k]) continue;
        const struct timeline_colour *c = &timeline_colours[k % TIMELINE_COLOURS];
        fprintf(out, "%s$c%d using 1:2:3:4:5:6 with boxxyerror lc rgb '%s' ", first ? "" : ", ",
                (int)k, k >= TIMELINE_COLOURS ? c->dark : c->rgb);
        if (k >= TIMELINE_COLOURS)
            fprintf(out, "notitle"); /* same hue as its light variant */
        else
            fprintf(out, "title '%s'", c->title);
        first = false;
    }
    fprintf(out, "%s\n", first ? "NaN notitle" : "");
}

static void write_timelines(FILE *out, struct arena *a, const char *terminal, const char *output,
                            const void *what)
{
    const struct timelines *x = what;
    plot_head(out, a, terminal, output, 1600, 140 + 34 * x->n_rows);
    fputs("set ytics scale 0\nset xlabel 'milliseconds since the step began'\n"
          "set key outside top center horizontal\n",
          out);
    write_rows(out, a, x);
    write_titles(out, a, x);
    write_boxes(out, x);
}

enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n, const char *path,
                           struct error *err)
{
    struct timelines x = {
        .n = n, .traces = traces, .items = ARENA_ARRAY(a, struct step_timeline, n)};
    for (size_t i = 0; i < n; i++) {
        timeline_make(a, traces[i], &x.items[i]);
        x.n_rows += x.items[i].n_rows;
    }
    return plot_image(a, path, write_timelines, &x, err);
}
