/* The timeline of a steady iteration and the memory over it, as inline SVG. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <math.h>

enum {
    WIDTH = 1000,
    LABELS = 190, /* of WIDTH, for names */
    ROW = 24,
    AXIS = 26,
    LABEL_LETTERS = 26,
    PANEL_WIDTH = 320,
    PANEL_HEIGHT = 150,
    PANEL_LEFT = 44,
    TICS = 5
};

/* A step between tics of about `most` of them: 1, 2 or 5 times a power of ten. */
static double tic_step(double range, int most)
{
    double raw = range / most, power = pow(10, floor(log10(raw > 0 ? raw : 1)));
    for (double factor = 1; factor < 10; factor = factor < 2 ? 2 : factor < 5 ? 5 : 10)
        if (factor * power >= raw) return factor * power;
    return 10 * power;
}

static void write_time_axis(FILE *out, double left, double width, double bottom, double length_ns)
{
    double step = tic_step(length_ns, TICS);
    char text[32];
    for (double t = 0; t <= length_ns; t += step) {
        double x = left + width * t / length_ns;
        fprintf(out,
                "<path class=\"grid\" d=\"M%.1f 0V%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                "text-anchor=\"%s\">%s</text>",
                x, bottom, x, bottom + 16,
                t > 0.97 * length_ns ? "end"
                : t > 0              ? "middle"
                                     : "start",
                t > 0 ? units_print_ns(text, llround(t)) : "0");
    }
}

/* Tenths of a pixel; "12.5", "12", ".5". */
static void write_tenths(FILE *out, const char *command, int64_t tenths)
{
    fputs(command, out);
    if (tenths >= 10 || !tenths) fprintf(out, "%lld", (long long)(tenths / 10));
    if (tenths % 10) fprintf(out, ".%d", (int)(tenths % 10));
}

/* One path of a colour: a stroke per box, as high as the box, from the end of the one before it in its row. */
static void write_colour(FILE *out, const struct step_timeline *l, int32_t colour)
{
    const struct timeline_colour *c = &timeline_colours[colour % TIMELINE_COLOURS];
    double scale = 10.0 * (WIDTH - LABELS) / (double)(l->end_ns - l->begin_ns);
    int64_t at = 0;
    int32_t row = -1;
    for (size_t i = 0; i < l->n_boxes; i++) {
        const struct timeline_box *b = &l->boxes[i];
        if (b->colour != colour) continue;
        int64_t begin = llround(scale * (double)b->begin_ns), end = llround(scale * (double)b->end_ns);
        int height = b->compute ? ROW - 9 : 4;
        if (row < 0)
            fprintf(out, "<path fill=\"none\" stroke=\"%s\" stroke-width=\"%d\" d=\"",
                    colour < TIMELINE_COLOURS ? c->rgb : c->dark, height);
        if (b->row != row || begin < at) {
            write_tenths(out, "M", 10 * LABELS + begin);
            write_tenths(out, " ", 10 * (b->row * ROW + (b->compute ? 2 : ROW - 6)) + 5 * height);
        } else if (begin > at) {
            write_tenths(out, "m", begin - at);
            fputs(" 0", out);
        }
        write_tenths(out, "h", end - begin);
        at = end, row = b->row;
    }
    if (row >= 0) fputs("\"/>", out);
}

void charts_timeline(FILE *out, struct arena *a, const struct report_plan *x)
{
    const struct step_timeline *l = &x->line;
    bool used[TIMELINE_COLOURS] = {false};
    if (l->end_ns <= l->begin_ns) return;
    double bottom = (double)l->n_rows * ROW;
    const char *folded =
        l->n_rows < l->n_devices ? " A row is a class of devices with equal calls." : "";
    if (l->n_rows < l->n_classes)
        folded = arena_printf(a, "%s %d of %d classes are shown.", folded, (int)l->n_rows,
                              (int)l->n_classes);
    fputs("<h3>Timeline of a steady iteration</h3>\n", out);
    html_paragraph(
        out, a, "soft",
        arena_printf(a, "Computation above, messages and collectives below it.%s", folded));
    for (size_t i = 0; i < l->n_boxes; i++) used[l->boxes[i].colour % TIMELINE_COLOURS] = true;
    html_legend_begin(out);
    for (int c = 0; c < TIMELINE_COLOURS; c++)
        if (used[c]) html_legend(out, a, timeline_colours[c].rgb, timeline_colours[c].title);
    html_legend_end(out);
    fprintf(out,
            "<div class=\"scroll\"><svg class=\"wide\" viewBox=\"0 0 %d %.0f\" font-size=\"12\" "
            "role=\"img\">",
            WIDTH, bottom + AXIS);
    write_time_axis(out, LABELS, WIDTH - LABELS, bottom, (double)(l->end_ns - l->begin_ns));
    for (int32_t r = 0; r < l->n_rows; r++) {
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LABELS - 8, (int)r * ROW + 14);
        html_text(out, a, l->rows[r].label);
        fputs("</text>", out);
    }
    for (int32_t c = 0; c < 2 * TIMELINE_COLOURS; c++) write_colour(out, l, c);
    fputs("</svg></div>\n", out);
}

/* --- memory --- */

static double top_of(const struct live *x)
{
    return 1.05 * (double)(x->memory_bytes > x->peak_bytes ? x->memory_bytes : x->peak_bytes);
}

/* The area below a class's upper edge; the classes below it are drawn over it. Points at which the edge stays within a tenth of a pixel add
 * nothing. */
static void write_area(FILE *out, const struct live *x, enum live_class c, double length_ns)
{
    double width = PANEL_WIDTH - PANEL_LEFT, top = top_of(x);
    int64_t low, high, at = -1;
    bool any = false;
    for (size_t i = 0; i < x->n; i++) {
        live_rows_edges(x, i, c, &low, &high);
        any |= high > low;
    }
    if (!any) return;
    fprintf(out, "<path fill=\"%s\" d=\"M%d %d", live_rows_colours[c], PANEL_LEFT, PANEL_HEIGHT);
    for (size_t i = 0; i < x->n; i++) {
        live_rows_edges(x, i, c, &low, &high);
        int64_t y = llround(10 * PANEL_HEIGHT * (1 - (double)high / top));
        if (y == at) continue;
        if (i)
            write_tenths(out, "H", llround(10 * (PANEL_LEFT + width * (double)x->points[i].at_ns / length_ns)));
        write_tenths(out, "V", y);
        at = y;
    }
    fprintf(out, "H%dV%dz\"/>", PANEL_WIDTH, PANEL_HEIGHT);
}

static void write_panel(FILE *out, struct arena *a, const struct report_plan *p,
                        const struct live_row *row)
{
    const struct live *x = &row->live;
    double length_ns = (double)(p->line.end_ns - p->line.begin_ns), top = top_of(x),
           unit = top > 2e9 ? 0x1p30 : 0x1p20, step = tic_step(top / unit, 5),
           limit = PANEL_HEIGHT * (1 - (double)x->memory_bytes / top);
    char peak[32], memory[64], text[32];
    fputs("<figure><figcaption>", out);
    html_text(out, a,
              arena_printf(a, "%s: %s of %s", p->line.classes[row->class].label,
                           units_print_bytes(peak, (double)x->peak_bytes),
                           units_print_capacity(memory, (double)x->memory_bytes)));
    fprintf(out,
            "</figcaption><svg viewBox=\"0 0 %d %d\" width=\"100%%\" font-size=\"10\" "
            "role=\"img\">",
            PANEL_WIDTH, PANEL_HEIGHT + 18);
    for (double v = 0; v * unit <= top; v += step) {
        double y = PANEL_HEIGHT * (1 - v * unit / top);
        fprintf(out,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\">%g</text>",
                PANEL_LEFT, y, PANEL_WIDTH, PANEL_LEFT - 4, y > 8 ? y + 3 : y + 9, v);
    }
    fprintf(out, "<text x=\"2\" y=\"%d\">%s</text>", PANEL_HEIGHT + 14,
            unit > 0x1p20 ? "GiB" : "MiB");
    for (int c = LIVE_CLASS_COUNT; c-- > 0;) write_area(out, x, (enum live_class)c, length_ns);
    fprintf(out,
            "<path class=\"limit\" d=\"M%d %.1fH%d\"/><text x=\"%d\" y=\"%d\">0</text><text "
            "x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text></svg></figure>\n",
            PANEL_LEFT, limit, PANEL_WIDTH, PANEL_LEFT, PANEL_HEIGHT + 14, PANEL_WIDTH,
            PANEL_HEIGHT + 14, units_print_ns(text, p->line.end_ns - p->line.begin_ns));
}

void charts_memory(FILE *out, struct arena *a, const struct report_plan *x)
{
    if (x->line.end_ns <= x->line.begin_ns) return;
    fputs("<h3>Memory over that iteration</h3>\n", out);
    html_paragraph(out, a, "soft",
                   x->n_live < x->line.n_classes
                       ? arena_printf(a,
                                      "By class of slot, dashed: the device's memory. The %d "
                                      "fullest of %d classes of devices.",
                                      (int)x->n_live, (int)x->line.n_classes)
                       : "By class of slot, dashed: the device's memory.");
    html_legend_begin(out);
    for (int c = 0; c < LIVE_CLASS_COUNT; c++)
        html_legend(out, a, live_rows_colours[c], live_class_name((enum live_class)c));
    html_legend_end(out);
    fputs("<div class=\"panels\">\n", out);
    for (int32_t i = 0; i < x->n_live; i++) write_panel(out, a, x, &x->live[i]);
    fputs("</div>\n", out);
}
