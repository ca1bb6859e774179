/* A timeline is drawn from calls, not operators: the operators of one call of a procedure run back
 * to back, so a box from the first one's begin to the last one's end is what they look like from
 * afar, and a thousand boxes take gnuplot a third of a second where a hundred thousand take a
 * minute. Names go to gnuplot quoted and `noenhanced`, with everything but letters, digits and a
 * few marks replaced: gnuplot executes backticks. */
#include "tools/plot.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/units.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COLOURS = 11, MEETING_COLOURS = 7 }; /* those of meetings, in the order of their kinds */
/* dark: of a device's every second stage, so that its chunks can be told apart. */
static const struct {
    char letter;
    const char *title, *rgb, *dark;
} colours[COLOURS] = {
    {'F', "forward", "#4C9BE8", "#2F6FB0"},          {'B', "backward", "#2CA87F", "#1B7557"},
    {'I', "input gradient", "#2CA87F", "#1B7557"},   {'W', "weight gradient", "#9BD770", "#6FA84B"},
    {'U', "update", "#8E6BBF", "#644691"},           {'s', "message", "#F2A93B", "#F2A93B"},
    {'r', "sum over devices", "#E4572E", "#E4572E"}, {'g', "all_gather", "#D9568C", "#D9568C"},
    {'c', "reduce_scatter", "#A0522D", "#A0522D"},   {'a', "all_reduce", "#B3202A", "#B3202A"},
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

static const char *plain(struct arena *a, const char *name)
{
    char *copy = arena_strdup(a, name);
    for (char *c = copy; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-:#+ ", *c)) *c = '_';
    return copy;
}

static int32_t colour_of(char letter)
{
    for (int32_t i = 0; i < COLOURS; i++)
        if (colours[i].letter == letter) return i;
    return 0;
}

/* The last whole step in the spans' own clock: from the end of the last update before it to the end
 * of its own. */
static void steady_window(const struct trace *t, int64_t *begin_ns, int64_t *end_ns)
{
    int32_t last = 0;
    *begin_ns = *end_ns = 0;
    for (size_t i = 0; i < t->n_spans; i++)
        if (t->spans[i].kind == SPAN_COMPUTE && t->spans[i].letter == 'U' &&
            t->spans[i].step > last)
            last = t->spans[i].step;
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (s->kind != SPAN_COMPUTE || s->letter != 'U') continue;
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

/* Spans of one trace inside its window, as boxes; neighbouring operators of one call become one
 * box. Spans come sorted by device, stream and begin. */
static void collect(struct boxes *b, const struct trace *t, int32_t first_row, int64_t from_ns,
                    int64_t to_ns)
{
    const struct span *open = NULL;
    struct stages stages = {0};
    for (size_t i = 0; i < t->n_spans; i++) {
        const struct span *s = &t->spans[i];
        if (!i || s[-1].device != s->device) find_stages(b->arena, &stages, s, t->n_spans - i);
        if (s->end_ns <= from_ns || s->begin_ns >= to_ns || s->kind == SPAN_STEP ||
            s->kind == SPAN_RECEIVE || s->kind == SPAN_KERNEL)
            continue;
        int64_t begin = (s->begin_ns > from_ns ? s->begin_ns : from_ns) - from_ns;
        int64_t end = (s->end_ns < to_ns ? s->end_ns : to_ns) - from_ns;
        bool compute = s->kind == SPAN_COMPUTE;
        if (compute && open && open->device == s->device && open->stage == s->stage &&
            open->letter == s->letter && open->step == s->step &&
            open->microbatch == s->microbatch) {
            b->items[b->n - 1].end_ns = end;
            continue;
        }
        open = compute ? s : NULL;
        char letter = compute ? s->letter : s->kind == SPAN_SEND ? 's' : 'r';
        if (s->meeting) letter = colours[MEETING_COLOURS + s->meeting - 1].letter;
        int32_t colour = colour_of(letter) + (compute && is_dark(&stages, s->stage) ? COLOURS : 0);
        add(b, (struct box){first_row + s->device, colour, begin, end, compute ? 0.4 : 0.08});
    }
}

static void write_head(FILE *out, const char *terminal, const char *image, int32_t rows)
{
    int height = 140 + 34 * rows;
    if (!strcmp(terminal, "svg"))
        fprintf(out,
                "set terminal svg size 1600,%d font 'DejaVu Sans,13' noenhanced background rgb "
                "'white'\n",
                height);
    else
        fprintf(out, "set terminal pngcairo size 1600,%d font 'DejaVu Sans,11' noenhanced\n",
                height);
    fprintf(
        out,
        "set output '%s'\nset style fill solid 1.0 noborder\nset border 3\nset xtics nomirror out\n"
        "set ytics nomirror scale 0\nset xlabel 'milliseconds since the step began'\n"
        "set key outside top center horizontal\nset grid x lc rgb '#DDDDDD'\n",
        image);
}

static void write_rows(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                       int32_t rows)
{
    int32_t row = 0;
    fprintf(out, "set yrange [-0.7:%g]\nset ytics (", rows - 0.3);
    for (size_t i = 0; i < n; i++)
        for (int32_t d = 0; d < traces[i]->n_devices; d++, row++)
            fprintf(out, "%s\"%s %s\" %d", row ? ", " : "",
                    traces[i]->source == TRACE_SIM ? "predicted" : "measured",
                    plain(a, traces[i]->devices[d].name), (int)(rows - 1 - row));
    fprintf(out, ")\n");
}

static void write_titles(FILE *out, struct arena *a, struct trace *const *traces, size_t n,
                         const int64_t *length_ns)
{
    fprintf(out, "set title \"");
    for (size_t i = 0; i < n; i++) {
        char text[32];
        fprintf(out, "%s%s%s %s", i ? "    " : "",
                traces[i]->source == TRACE_SIM ? "predicted " : "measured ",
                plain(a, traces[i]->plan), units_print_ns(text, length_ns[i]));
        if (traces[i]->source != TRACE_SIM && traces[i]->emulated)
            fprintf(out, " (emulated devices)");
    }
    fprintf(out, "\"\n");
    for (int32_t row = 0, i = 0; (size_t)i + 1 < n; i++) {
        row += traces[i]->n_devices;
        int32_t rows = row;
        for (size_t k = (size_t)i + 1; k < n; k++) rows += traces[k]->n_devices;
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
            fprintf(out, "notitle"); /* the hue says it */
        else
            fprintf(out, "title '%s'", colours[k].title);
        first = false;
    }
    fprintf(out, "%s\n", first ? "NaN notitle" : "");
}

static enum status write_script(struct arena *a, struct trace *const *traces, size_t n,
                                const char *terminal, const char *image, const char *path,
                                struct error *err)
{
    struct file f = {0};
    struct boxes b = {.arena = a};
    int32_t rows = 0;
    int64_t *length_ns = ARENA_ARRAY(a, int64_t, n);
    for (size_t i = 0; i < n; i++) {
        int64_t from = 0, to = 0;
        trace_sort(traces[i]);
        steady_window(traces[i], &from, &to);
        collect(&b, traces[i], rows, from, to);
        length_ns[i] = traces[i]->iteration_ns;
        rows += traces[i]->n_devices;
    }
    TRY(file_open(&f, path, err));
    write_head(f.stream, terminal, image, rows);
    write_rows(f.stream, a, traces, n, rows);
    write_titles(f.stream, a, traces, n, length_ns);
    write_boxes(f.stream, &b, rows);
    return file_commit(&f, err);
}

static enum status run_gnuplot(const char *script, struct error *err)
{
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return error_set(err, ERR_RESOURCE, "cannot start gnuplot: %s", strerror(errno));
    if (child == 0) {
        execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    int how = 0;
    if (waitpid(child, &how, 0) < 0)
        return error_set(err, ERR_RESOURCE, "gnuplot: %s", strerror(errno));
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return OK;
    if (WIFEXITED(how) && WEXITSTATUS(how) == 127)
        return error_set(err, ERR_RESOURCE, "gnuplot is not installed; the script is kept as %s",
                         script);
    return error_set(err, ERR_RESOURCE, "gnuplot failed on %s", script);
}

enum status plot_timelines(struct arena *a, struct trace *const *traces, size_t n, const char *path,
                           struct error *err)
{
    const char *ending = strrchr(path, '.');
    if (ending && !strcmp(ending, ".gp"))
        return write_script(a, traces, n, "png", arena_printf(a, "%s.png", path), path, err);
    if (!ending || (strcmp(ending, ".png") && strcmp(ending, ".svg")))
        return error_set(err, ERR_USAGE,
                         "%s: plot writes .png, .svg, .gp or .json (Chrome/Perfetto)", path);
    if (strchr(path, '\''))
        return error_set(err, ERR_USAGE, "%s: no quotes in the name of a picture", path);
    const char *script = arena_printf(a, "%s.gp", path);
    const char *image = arena_printf(a, "%s.part%s", path, ending); /* complete or not there */
    if (write_script(a, traces, n, ending + 1, image, script, err) != OK)
        return error_wrap(err, err->code, "cannot plot to '%s'", path);
    enum status st = run_gnuplot(script, err);
    if (st == OK && rename(image, path) != 0)
        st = error_set(err, ERR_RESOURCE, "%s: %s", path, strerror(errno));
    if (st != OK) {
        unlink(image);
        return st;
    }
    unlink(script);
    return OK;
}
