/* A timeline draws calls, not operators. The operators of one call of a procedure run back to back, so one box covers
 * them; and gnuplot draws a thousand boxes in a third of a second but a hundred thousand in a
 * minute. Names enter the script only through gnuplot_text, without markup (`noenhanced`). */
#include "tools/plot.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"
#include "tools/gnuplot.h"

#include <stdio.h>
#include <string.h>

enum { COLOURS = 11 };
static const char kind_letters[COLLECTIVE_CALL_KINDS] = {[COLLECTIVE_ALL_GATHER] = 'g',
                                                         [COLLECTIVE_REDUCE_SCATTER] = 'c',
                                                         [COLLECTIVE_ALL_REDUCE] = 'a',
                                                         [COLLECTIVE_ALL_TO_ALL] = 'x'};
/* Okabe and Ito's palette, whose colours differ for all kinds of colour vision. dark: of a device's every second stage, so that its chunks can be distinguished. */
static const struct {
    char letter;
    const char *title, *rgb, *dark;
} colours[COLOURS] = {
    {'F', "forward", "#56B4E9", "#0072B2"},        {'B', "backward", "#009E73", "#00614A"},
    {'I', "input gradient", "#CC79A7", "#9A4C78"}, {'W', "weight gradient", "#F0E442", "#B9AE1F"},
    {'U', "update", "#7F7F7F", "#4D4D4D"},         {'s', "message", "#E69F00", "#E69F00"},
    {'r', "collective", "#D55E00", "#D55E00"},     {'g', "all_gather", "#882255", "#882255"},
    {'c', "reduce_scatter", "#A0522D", "#A0522D"}, {'a', "all_reduce", "#B3202A", "#B3202A"},
    {'x', "all_to_all", "#7A7A2E", "#7A7A2E"},
};

struct box {
    int32_t row, colour; /* colour: colour_of, + COLOURS where dark */
    int64_t begin_ns, end_ns;
    double height;
};
struct boxes {
    struct arena *arena;
    struct box *items;
    size_t n, capacity;
};

/* A name with control characters escaped (core/base/log.h). */
static const char *shown(struct arena *a, const char *name)
{
    size_t n = 4 * strlen(name) + 1;
    return log_safe(arena_alloc(a, n, 1), n, name);
}

/* A tic's label is a format of its value. */
static void write_tic(FILE *out, struct arena *a, const char *label)
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

static int32_t colour_of(char letter)
{
    for (int32_t i = 0; i < COLOURS; i++)
        if (colours[i].letter == letter) return i;
    return 0;
}

/* The last complete step in the clock of the spans: from the end of the update before it to the end
 * of its own. */
static void steady_window(const struct trace *t, int64_t *begin_ns, int64_t *end_ns)
{
    int32_t last = 0;
    *begin_ns = *end_ns = 0;
    if (trace_is_predicted(t)) { /* may contain a single step, and the ends of the others */
        for (size_t i = 0; i < t->n_spans; i++)
            if (t->spans[i].kind != SPAN_STEP && t->spans[i].step > last) last = t->spans[i].step;
        for (size_t i = 0; i < t->n_spans; i++)
            if (t->spans[i].kind == SPAN_STEP && t->spans[i].step == last)
                *begin_ns = t->spans[i].begin_ns, *end_ns = t->spans[i].end_ns;
        if (*end_ns > *begin_ns) return;
        *begin_ns = *end_ns = 0;
    }
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_COMPUTE && t->spans[i].phase == PHASE_U &&
            t->spans[i].step > last)
            last = t->spans[i].step;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_COMPUTE || s->phase != PHASE_U) continue;
        if (s->step == last && s->end_ns > *end_ns) *end_ns = s->end_ns;
        if (s->step == last - 1 && s->end_ns > *begin_ns) *begin_ns = s->end_ns;
    }
}

/* The stages that a device computes, ascending; spans[0] is its first. */
struct stages {
    size_t n, capacity;
    int32_t *items;
};

static void find_stages(struct arena *a, struct stages *x, const struct span *spans, size_t n)
{
    x->n = 0;
    for (size_t i = 0; i < n && spans[i].device == spans->device; i++) {
        size_t at = 0;
        if (spans[i].kind != SPAN_COMPUTE) continue;
        while (at < x->n && x->items[at] < spans[i].stage) at++;
        if (at < x->n && x->items[at] == spans[i].stage) continue;
        x->items = arena_grow(a, x->items, x->n, &x->capacity, sizeof *x->items);
        memmove(&x->items[at + 1], &x->items[at], (x->n - at) * sizeof *x->items);
        x->items[at] = spans[i].stage;
        x->n++;
    }
}

/* A device's second stage, its fourth, … */
static bool is_dark(const struct stages *x, int32_t stage)
{
    size_t at = 0;
    while (at < x->n && x->items[at] != stage) at++;
    return at % 2;
}

static void add(struct boxes *b, struct box x)
{
    b->items = arena_grow(b->arena, b->items, b->n, &b->capacity, sizeof *b->items);
    b->items[b->n++] = x;
}

/* If the image has too few rows for all devices, evenly spaced ones are drawn. */
enum { ROWS_MAX = 64, BOXES_ACROSS = 3200 };

static int32_t rows_of(const struct trace *t)
{
    return t->n_devices < ROWS_MAX ? t->n_devices : ROWS_MAX;
}

static int32_t device_of_row(const struct trace *t, int32_t row)
{
    return (int32_t)((int64_t)row * t->n_devices / rows_of(t));
}

/* -1: not shown */
static int32_t row_of_device(const struct trace *t, int32_t device)
{
    int32_t row = (int32_t)((int64_t)device * rows_of(t) / t->n_devices);
    if (device_of_row(t, row) < device && row + 1 < rows_of(t)) row++;
    return device_of_row(t, row) == device ? row : -1;
}

/* Spans of one trace inside its window, as boxes; neighbouring operators of one call become one
 * box. Spans come sorted by device, stream and begin. */
static void collect(struct boxes *b, const struct trace *t, int32_t first_row, int64_t from_ns,
                    int64_t to_ns)
{
    const struct span *open = NULL;
    struct stages stages = {0};
    const int64_t narrow_ns = t->n_devices > ROWS_MAX / 2 ? (to_ns - from_ns) / BOXES_ACROSS : 0;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (!i || s[-1].device != s->device) find_stages(b->arena, &stages, s, t->n_spans - i);
        if (s->end_ns <= from_ns || s->begin_ns >= to_ns || s->kind == SPAN_STEP ||
            s->kind == SPAN_RECEIVE || s->kind == SPAN_KERNEL || row_of_device(t, s->device) < 0)
            continue;
        int64_t begin = (s->begin_ns > from_ns ? s->begin_ns : from_ns) - from_ns;
        int64_t end = (s->end_ns < to_ns ? s->end_ns : to_ns) - from_ns;
        bool compute = s->kind == SPAN_COMPUTE;
        if (compute && open && open->device == s->device && open->stage == s->stage &&
            open->phase == s->phase && open->step == s->step && open->microbatch == s->microbatch) {
            b->items[b->n - 1].end_ns = end;
            continue;
        }
        open = compute ? s : NULL;
        char letter = compute ? s->phase : s->kind == SPAN_SEND ? 's' : 'r';
        if (s->collective) letter = kind_letters[s->collective - 1];
        int32_t colour = colour_of(letter) + (compute && is_dark(&stages, s->stage) ? COLOURS : 0);
        int32_t row = first_row + row_of_device(t, s->device);
        struct box *before = b->n ? &b->items[b->n - 1] : NULL;
        if (before && before->row == row && before->colour == colour &&
            begin - before->end_ns < narrow_ns) /* gap narrower than a pixel */
            before->end_ns = end > before->end_ns ? end : before->end_ns;
        else
            add(b, (struct box){row, colour, begin, end, compute ? 0.4 : 0.08});
    }
}

/* output: file name of the image; NULL: gnuplot's standard output. */
static void write_head(FILE *out, struct arena *a, const char *terminal, const char *output,
                       int32_t rows)
{
    int height = 140 + 34 * rows;
    fputs("set encoding utf8\n", out);
    if (!strcmp(terminal, "svg"))
        fprintf(out,
                "set terminal svg size 1600,%d font 'DejaVu Sans,13' noenhanced background rgb "
                "'white'\n",
                height);
    else
        fprintf(out, "set terminal pngcairo size 1600,%d font 'DejaVu Sans,11' noenhanced\n",
                height);
    fputs("set output ", out);
    /* gnuplot takes a leading '|' for a command and '~' for a home directory. */
    if (output) gnuplot_text(out, *output == '/' ? output : arena_printf(a, "./%s", output));
    fputs("\nset style fill solid 1.0 noborder\nset border 3\nset xtics nomirror out\n"
          "set ytics nomirror scale 0\nset xlabel 'milliseconds since the step began'\n"
          "set key outside top center horizontal\nset grid x lc rgb '#DDDDDD'\n",
          out);
}

static const char *made_by(const struct trace *t)
{
    return trace_is_predicted(t) ? "predicted" : "measured";
}

static void write_rows(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                       int32_t rows)
{
    int32_t row = 0;
    fprintf(out, "set yrange [-0.7:%g]\nset ytics (", rows - 0.3);
    for (size_t i = 0; i < n; i++)
        for (int32_t r = 0; r < rows_of(traces[i]); r++, row++) {
            const struct trace_device *d = &traces[i]->devices[device_of_row(traces[i], r)];
            const char *times =
                d->stands_for > 1 ? arena_printf(a, " ×%d", (int)d->stands_for) : "";
            if (row) fputs(", ", out);
            write_tic(out, a,
                      arena_printf(a, "%s %s%s", made_by(traces[i]), shown(a, d->name), times));
            fprintf(out, " %d", (int)(rows - 1 - row));
        }
    fprintf(out, ")\n");
}

static void write_titles(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                         const int64_t *length_ns)
{
    const char *title = "";
    for (size_t i = 0; i < n; i++) {
        char text[32];
        title = arena_printf(
            a, "%s%s%s %s %s%s", title, i ? "    " : "", made_by(traces[i]),
            shown(a, traces[i]->plan), units_print_ns(text, length_ns[i]),
            !trace_is_predicted(traces[i]) && traces[i]->emulated ? " (emulated devices)" : "");
        if (traces[i]->n_devices > ROWS_MAX)
            title = arena_printf(a, "%s, %d of %d devices", title, (int)rows_of(traces[i]),
                                 (int)traces[i]->n_devices);
    }
    fputs("set title ", out);
    gnuplot_text(out, title);
    fputc('\n', out);
    for (int32_t row = 0, i = 0; (size_t)i + 1 < n; i++) {
        row += rows_of(traces[i]);
        int32_t rows = row;
        for (size_t k = (size_t)i + 1; k < n; k++) rows += rows_of(traces[k]);
        fprintf(
            out,
            "set arrow from graph 0, first %g to graph 1, first %g nohead lc rgb '#888888' dt 2\n",
            rows - row - 0.5, rows - row - 0.5);
    }
}

static void write_box(FILE *out, const struct box *x, int32_t rows)
{
    double y = rows - 1 - x->row,
           middle = x->height > 0.2 ? y : y - 0.4; /* messages below their device's row */
    double low = x->height > 0.2 ? middle - 0.28 : middle,
           high = x->height > 0.2 ? middle + 0.4 : middle + 0.1;
    fprintf(out, "%.6f %.3f %.6f %.6f %.3f %.3f\n", 0.5e-6 * (double)(x->begin_ns + x->end_ns),
            middle, 1e-6 * (double)x->begin_ns, 1e-6 * (double)x->end_ns, low, high);
}

static void write_boxes(FILE *out, const struct boxes *b, int32_t rows)
{
    bool used[2 * COLOURS] = {0}, first = true;
    for (size_t i = 0; i < b->n; i++) used[b->items[i].colour] = true;
    for (int32_t k = 0; k < 2 * COLOURS; k++) {
        if (!used[k]) continue;
        fprintf(out, "$c%d << END\n", (int)k);
        for (size_t i = 0; i < b->n; i++)
            if (b->items[i].colour == k) write_box(out, &b->items[i], rows);
        fprintf(out, "END\n");
    }
    fprintf(out, "plot ");
    for (int32_t k = 0; k < 2 * COLOURS; k++) {
        if (!used[k]) continue;
        bool dark = k >= COLOURS;
        fprintf(out, "%s$c%d using 1:2:3:4:5:6 with boxxyerror lc rgb '%s' ", first ? "" : ", ",
                (int)k, dark ? colours[k - COLOURS].dark : colours[k].rgb);
        if (dark)
            fprintf(out, "notitle"); /* same hue as its light variant */
        else
            fprintf(out, "title '%s'", colours[k].title);
        first = false;
    }
    fprintf(out, "%s\n", first ? "NaN notitle" : "");
}

static void write_script(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                         const char *terminal, const char *output)
{
    struct boxes b = {.arena = a};
    int32_t rows = 0;
    int64_t *length_ns = ARENA_ARRAY(a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        int64_t from = 0, to = 0;
        trace_sort(traces[i]);
        steady_window(traces[i], &from, &to);
        collect(&b, traces[i], rows, from, to);
        length_ns[i] = traces[i]->iteration_ns;
        rows += rows_of(traces[i]);
    }
    write_head(out, a, terminal, output, rows);
    write_rows(out, a, traces, n, rows);
    write_titles(out, a, traces, n, length_ns);
    write_boxes(out, &b, rows);
}

static enum status draw(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                        const char *format, struct error *err)
{
    FILE *script = NULL;
    char *image = NULL;
    size_t bytes = 0;
    TRY(gnuplot_open(&script, err));
    write_script(script, a, traces, n, format, NULL);
    TRY(gnuplot_draw(a, script, format, &image, &bytes, err));
    fwrite(image, 1, bytes, out); /* file_commit checks for write errors */
    return OK;
}

enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n, const char *path,
                           struct error *err)
{
    struct file f = {0};
    const char *ending = strrchr(path, '.');
    bool script = ending && !strcmp(ending, ".gp");
    if (!script && (!ending || (strcmp(ending, ".png") && strcmp(ending, ".svg"))))
        return error_set(err, ERR_USAGE,
                         "%s: plot writes .png, .svg, .gp or .json (Chrome/Perfetto)", path);
    TRY(file_open(&f, path, err));
    enum status st = OK;
    if (script)
        write_script(f.stream, a, traces, n, "png", arena_printf(a, "%s.png", path));
    else
        st = draw(f.stream, a, traces, n, ending + 1, err);
    if (st == OK) st = file_commit(&f, err);
    file_abandon(&f);
    return st;
}
