/* Memory over a steady step: a panel per device or class, stacked by class of slot. */
#include "tools/plot.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/common.h"
#include "tools/gnuplot.h"
#include "tools/live_rows.h"

#include <string.h>

#define GIB 0x1p30
enum {
    POINTS = 2000,
    ACROSS = 3,
    WIDTH = 1600,
    PANEL_HEIGHT = 260,
    HEAD_HEIGHT = 80,
    LEGEND_Y = 48
};

struct panels {
    const struct trace *trace;
    struct step_timeline line;
    int32_t n;
    struct live_row *rows;
};

static bool has_class(const struct live *x, enum live_class c)
{
    for (size_t i = 0; i < x->n; i++) {
        int64_t low, high;
        live_rows_edges(x, i, c, &low, &high);
        if (high > low) return true;
    }
    return false;
}

/* Steps, as two points for each. */
static void write_class(FILE *out, const struct live *x, enum live_class c, int32_t panel,
                        int64_t end_ns)
{
    fprintf(out, "$p%d_%d << END\n", (int)panel, (int)c);
    for (size_t i = 0; i < x->n; i++) {
        int64_t low, high, until = i + 1 < x->n ? x->points[i + 1].at_ns : end_ns;
        live_rows_edges(x, i, c, &low, &high);
        for (int k = 0; k < 2; k++)
            fprintf(out, "%.6f %.6f %.6f\n", 1e-6 * (double)(k ? until : x->points[i].at_ns),
                    (double)low / GIB, (double)high / GIB);
    }
    fputs("END\n", out);
}

static void write_panel(FILE *out, struct arena *a, const struct panels *x, int32_t panel)
{
    const struct live *l = &x->rows[panel].live;
    int64_t length_ns = x->line.end_ns - x->line.begin_ns;
    char peak[32], limit[64];
    bool first = true;
    for (int c = 0; c < LIVE_CLASS_COUNT; c++)
        if (has_class(l, (enum live_class)c))
            write_class(out, l, (enum live_class)c, panel, length_ns);
    fputs("set title ", out);
    gnuplot_text(out, arena_printf(a, "%s: %s of %s", x->line.classes[x->rows[panel].class].label,
                                   units_print_bytes(peak, (double)l->peak_bytes),
                                   units_print_capacity(limit, (double)l->memory_bytes)));
    fprintf(out, "\nset xrange [0:%.6f]\nset yrange [0:%.6f]\nplot ", 1e-6 * (double)length_ns,
            1.08 * (double)(l->memory_bytes > l->peak_bytes ? l->memory_bytes : l->peak_bytes) /
                GIB);
    for (int c = 0; c < LIVE_CLASS_COUNT; c++) {
        if (!has_class(l, (enum live_class)c)) continue;
        fprintf(out, "%s$p%d_%d using 1:2:3 with filledcurves lc rgb '%s'", first ? "" : ", ",
                (int)panel, c, live_rows_colours[c]);
        first = false;
    }
    fprintf(out, ", %.6f with lines lc rgb '#000000' dt 2\n", (double)l->memory_bytes / GIB);
}

/* One for all panels, in the colours of the classes. */
static void write_legend(FILE *out, const struct panels *x, int height)
{
    double left = 0.05, y = 1 - (double)LEGEND_Y / height;
    for (int c = 0; c < LIVE_CLASS_COUNT; c++) {
        bool any = false;
        for (int32_t i = 0; i < x->n && !any; i++)
            any = has_class(&x->rows[i].live, (enum live_class)c);
        if (!any) continue;
        fprintf(out, "set label %d ", 2 * c + 1);
        gnuplot_text(out, "\xe2\x96\xa0");
        fprintf(out,
                " at screen %.4f, screen %.5f textcolor rgb '%s' font ',16'\n"
                "set label %d '%s' at screen %.4f, screen %.5f\n",
                left, y, live_rows_colours[c], 2 * c + 2, live_class_name((enum live_class)c),
                left + 0.013, y);
        left += 0.03 + 0.0065 * (double)strlen(live_class_name((enum live_class)c));
    }
    fprintf(out, "set label %d '- - limit' at screen %.4f, screen %.5f\n", 2 * LIVE_CLASS_COUNT + 1,
            left, y);
}

static void write_panels(FILE *out, struct arena *a, const char *terminal, const char *output,
                         const void *what)
{
    const struct panels *x = what;
    int32_t across = x->n < ACROSS ? x->n : ACROSS, down = (x->n + across - 1) / across;
    plot_head(out, a, terminal, output, WIDTH, HEAD_HEIGHT + PANEL_HEIGHT * down);
    fprintf(out, "set multiplot layout %d,%d title ", (int)down, (int)across);
    const char *title = arena_printf(a, "memory of %s", plot_shown(a, x->trace->plan));
    if (x->n < x->line.n_classes)
        title = arena_printf(a, "%s, the %d fullest of %d classes of devices", title, (int)x->n,
                             (int)x->line.n_classes);
    gnuplot_text(out, arena_printf(a, "%s\n \n ", title));
    fputs("\nset xlabel 'ms since the step began'\nset ylabel 'GiB'\nset key off\n", out);
    write_legend(out, x, HEAD_HEIGHT + PANEL_HEIGHT * down);
    for (int32_t i = 0; i < x->n; i++) {
        write_panel(out, a, x, i);
        fputs("unset label\n", out);
    }
    fputs("unset multiplot\n", out);
}

enum status plot_memory(struct arena *a, struct trace *t, const char *name, const char *path,
                        struct error *err)
{
    struct panels x = {.trace = t};
    struct plan plan;
    struct program program;
    TRY(plot_format(path, err));
    TRY(common_trace_plan(a, t, name, &plan, err));
    TRY(common_lower(a, &plan, false, &program, err));
    timeline_make(a, t, &x.line);
    TRY(live_rows_make(a, &program, t, &x.line, PLOT_PANELS, POINTS, &x.n, &x.rows, err));
    return plot_image(a, path, write_panels, &x, err);
}
