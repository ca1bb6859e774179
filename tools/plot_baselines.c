/* The plans of one search as bars: the found plan, and the textbook plans that fit. */
#include "tools/plot.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "tools/gnuplot.h"

#include <string.h>

struct bar {
    const char *name;
    int64_t ns;
};
struct bars {
    size_t n, left_out; /* left_out: without a plan */
    struct bar *items;
    int64_t bound_ns; /* 0: none */
};

bool plot_is_search(struct arena *a, const char *json)
{
    struct node *root;
    return document_read(a, json, &root, NULL) == OK && root->kind == NODE_MAP &&
           node_get(root, "baselines") && node_get(root, "iteration_ns");
}

static enum status read_bars(struct arena *a, const char *json, struct bars *x, struct error *err)
{
    struct node *root;
    const struct node *list, *n;
    int64_t best = 0;
    TRY(document_read(a, json, &root, err));
    TRY(node_need(root, "iteration_ns", &n, err));
    TRY(node_int(n, 1, INT64_MAX, &best, err));
    TRY(node_get_int(root, "lower_bound_ns", 0, INT64_MAX, &x->bound_ns, err));
    TRY(node_need(root, "baselines", &list, err));
    TRY(node_is(list, NODE_LIST, err));
    x->items = ARENA_ARRAY(a, struct bar, list->count + 1);
    x->items[x->n++] = (struct bar){"found", best};
    for (size_t i = 0; i < list->count; i++) {
        struct bar b = {0};
        TRY(node_is(list->members[i], NODE_MAP, err));
        TRY(node_need(list->members[i], "name", &n, err));
        TRY(node_text(n, &b.name, err));
        TRY(node_get_int(list->members[i], "iteration_ns", 1, INT64_MAX, &b.ns, err));
        if (b.ns)
            x->items[x->n++] = b;
        else
            x->left_out++;
    }
    return OK;
}

static void write_bars(FILE *out, struct arena *a, const char *terminal, const char *output,
                       const void *what)
{
    const struct bars *x = what;
    char text[32];
    plot_head(out, a, terminal, output, 1200, 140 + 34 * (int)x->n);
    fputs("set xlabel 'seconds of an iteration'\nset key off\nset ytics scale 0\nset title ", out);
    const char *title = "textbook plans beside the search";
    if (x->left_out) title = arena_printf(a, "%s (%zu more do not fit)", title, x->left_out);
    if (x->bound_ns)
        title =
            arena_printf(a, "%s; dashed: lower bound %s", title, units_print_ns(text, x->bound_ns));
    gnuplot_text(out, title);
    fprintf(out, "\nset xrange [0:*<%.9f]\nset yrange [-0.6:%g]\nset ytics (",
            1e-9 * 20 * (double)x->items[0].ns, (double)x->n - 0.4);
    for (size_t i = 0; i < x->n; i++) {
        if (i) fputs(", ", out);
        plot_tic(out, a,
                 arena_printf(a, "%s %s", plot_shown(a, x->items[i].name),
                              units_print_ns(text, x->items[i].ns)));
        fprintf(out, " %zu", x->n - 1 - i);
    }
    fputs(")\n", out);
    if (x->bound_ns)
        fprintf(
            out,
            "set arrow from %.9f, graph 0 to %.9f, graph 1 nohead front lc rgb '#000000' dt 2\n",
            1e-9 * (double)x->bound_ns, 1e-9 * (double)x->bound_ns);
    fputs("$bars << END\n", out);
    for (size_t i = 0; i < x->n; i++) {
        double s = 1e-9 * (double)x->items[i].ns, y = (double)(x->n - 1 - i);
        fprintf(out, "%.9f %g 0 %.9f %g %g %d\n", s / 2, y, s, y - 0.35, y + 0.35,
                i ? 0x56B4E9 : 0x0072B2);
    }
    fputs("END\nplot $bars using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable\n", out);
}

enum status plot_baselines(struct arena *a, const char *json, const char *path, struct error *err)
{
    struct bars x = {0};
    TRY(plot_format(path, err));
    TRY(read_bars(a, json, &x, err));
    return plot_image(a, path, write_bars, &x, err);
}
