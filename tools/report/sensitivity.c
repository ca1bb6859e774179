/* Sensitivity: the iteration with each class of devices or links 10 % faster and 10 % slower, plan and order unchanged. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* PERCENT: about the error of a prediction. CLASSES_MAX: two simulations each; a cluster has fewer types and families of links that
 * matter. PATH_SHARE: links on less than 1 / so much of the critical path are left out, because 10 % of that is below 0.1 % of the
 * iteration. */
enum { PERCENT = 10, CLASSES_MAX = 16, PATH_SHARE = 100 };

struct factor_class {
    const char *name;
    bool links;
    int64_t n;       /* devices or links of the program */
    int64_t path_ns; /* on the critical path: the longest are simulated */
    int64_t faster_ns, slower_ns;
};
struct classes {
    int32_t n;
    size_t capacity;
    struct factor_class *items;
    int32_t *of_device, *of_link; /* (n_devices), (n_links); -1: none */
};

/* "up" of "up12": links of one `count: N`. */
static const char *family(struct arena *a, const char *name)
{
    size_t n = strlen(name);
    while (n > 1 && name[n - 1] >= '0' && name[n - 1] <= '9') n--;
    return arena_strndup(a, name, n);
}

static int32_t find(struct arena *a, struct classes *c, const char *name, bool links)
{
    for (int32_t i = 0; i < c->n; i++)
        if (c->items[i].links == links && !strcmp(c->items[i].name, name)) return i;
    c->items = arena_grow(a, c->items, (size_t)c->n, &c->capacity, sizeof *c->items);
    c->items[c->n] = (struct factor_class){.name = name, .links = links};
    return c->n++;
}

static void find_classes(struct arena *a, const struct report_plan *x, struct classes *c)
{
    const struct program *p = x->told.explained;
    const struct cluster *cluster = &x->plan.cluster;
    c->of_device = ARENA_ARRAY(a, int32_t, (size_t)p->n_devices + 1);
    c->of_link = ARENA_ARRAY(a, int32_t, (size_t)p->n_links + 1);
    for (int32_t d = 0; d < p->n_devices; d++) {
        const struct device_type *t = &cluster->types[p->devices[d].type_index];
        c->of_device[d] = find(a, c, t->name, false);
        c->items[c->of_device[d]].n += x->weight[d];
        c->items[c->of_device[d]].path_ns += x->why.devices[d].path_ns;
    }
    for (int32_t l = 0; l < p->n_links; l++) {
        const struct program_link *link = &p->links[l];
        c->of_link[l] = -1;
        if (link->n_hops) continue; /* a route is scaled by its links */
        c->of_link[l] =
            find(a, c, link->paired ? cluster->links[link->of].name : family(a, link->name), true);
        c->items[c->of_link[l]].n++;
        c->items[c->of_link[l]].path_ns += x->why.links[l].path_ns;
    }
    for (int32_t l = 0; l < p->n_links; l++) /* time on a route counts for its hops */
        for (int32_t h = 0; h < p->links[l].n_hops; h++)
            c->items[c->of_link[p->links[l].hop[h]]].path_ns += x->why.links[l].path_ns;
}

static enum status simulate(struct arena *scratch, const struct report_plan *x,
                            const struct classes *c, int32_t class, double factor, int64_t *out_ns,
                            struct error *err)
{
    const struct program *p = x->told.explained;
    double *devices = ARENA_ARRAY(scratch, double, (size_t)p->n_devices + 1),
           *links = ARENA_ARRAY(scratch, double, (size_t)p->n_links + 1);
    const struct sim_scale scale = {.device = devices, .link = links};
    struct sim_result r;
    for (int32_t d = 0; d < p->n_devices; d++) devices[d] = c->of_device[d] == class ? factor : 1;
    for (int32_t l = 0; l < p->n_links; l++) links[l] = c->of_link[l] == class ? factor : 1;
    struct sim_options o = {.scale = &scale};
    if (x->told.by_replicas) o.steps = x->told.explained_result.steps; /* as what it is compared with */
    TRY(sim_run(scratch, p, x->cost, &o, &r, err));
    *out_ns = r.iteration_ns;
    return OK;
}

static int by_path(const void *a, const void *b)
{
    const struct factor_class *const *x = a, *const *y = b;
    if ((*x)->path_ns != (*y)->path_ns) return (*x)->path_ns > (*y)->path_ns ? -1 : 1;
    return *x < *y ? -1 : *x > *y;
}

static int64_t effect(const struct factor_class *c) { return c->slower_ns - c->faster_ns; }

static int by_effect(const void *a, const void *b)
{
    const struct factor_class *const *x = a, *const *y = b;
    if (effect(*x) != effect(*y)) return effect(*x) > effect(*y) ? -1 : 1;
    return by_path(a, b);
}

static void write_row(FILE *out, struct arena *a, const struct factor_class *c, int64_t now_ns,
                      double widest)
{
    double faster = (double)(c->faster_ns - now_ns) / (double)now_ns,
           slower = (double)(c->slower_ns - now_ns) / (double)now_ns;
    html_row(out);
    html_cell(out, a, arena_printf(a, "%s %s", c->links ? "links" : "devices", c->name), false);
    html_cell(out, a, arena_printf(a, "%+.2f %%", 100 * faster), true);
    html_cell_open(out);
    html_diverging(out, widest > 0 ? fmax(-faster, 0) / widest : 0,
                   widest > 0 ? fmax(slower, 0) / widest : 0);
    html_cell_end(out);
    html_cell(out, a, arena_printf(a, "%+.2f %%", 100 * slower), true);
    html_row_end(out);
}

enum status sensitivity_write(FILE *out, struct arena *a, const struct report_plan *x,
                              struct error *err)
{
    const char *heads[] = {"What", "#10 % faster", "Change of the iteration", "#10 % slower"};
    struct classes c = {0};
    int64_t now_ns = x->told.explained_result.iteration_ns;
    double widest = 0;
    find_classes(a, x, &c);
    struct factor_class **order = ARENA_ARRAY(a, struct factor_class *, (size_t)c.n + 1);
    for (int32_t i = 0; i < c.n; i++) order[i] = &c.items[i];
    qsort(order, (size_t)c.n, sizeof *order, by_path);
    int32_t n = 0;
    for (int32_t i = 0; i < c.n && n < CLASSES_MAX; i++)
        if (!order[i]->links || PATH_SHARE * order[i]->path_ns >= now_ns) order[n++] = order[i];
    struct arena *scratch = arena_new();
    enum status st = OK;
    for (int32_t i = 0; i < n && st == OK; i++) {
        int32_t class = (int32_t)(order[i] - c.items);
        st = simulate(scratch, x, &c, class, 100.0 / (100 + PERCENT), &order[i]->faster_ns, err);
        arena_reset(scratch);
        if (st == OK)
            st =
                simulate(scratch, x, &c, class, 100.0 / (100 - PERCENT), &order[i]->slower_ns, err);
        arena_reset(scratch);
        widest = fmax(widest, fabs((double)(order[i]->faster_ns - now_ns) / (double)now_ns));
        widest = fmax(widest, fabs((double)(order[i]->slower_ns - now_ns) / (double)now_ns));
    }
    arena_free(scratch);
    if (st != OK) return st;
    qsort(order, (size_t)n, sizeof *order, by_effect);
    fputs("<h3>Sensitivity</h3>\n", out);
    html_paragraph(
        out, a, "soft",
        arena_printf(a,
                     "The iteration if one class of devices or links is 10 %% faster or slower "
                     "than assumed, with the plan unchanged.%s",
                     c.n > n ? arena_printf(a,
                                            " %d classes with less time on the critical "
                                            "path are left out.",
                                            (int)(c.n - n))
                             : ""));
    html_table(out, a, heads, 4);
    for (int32_t i = 0; i < n; i++) write_row(out, a, order[i], now_ns, widest);
    html_table_end(out);
    return OK;
}
