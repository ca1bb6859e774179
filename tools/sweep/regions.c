#include "tools/sweep/regions.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/document/json.h"
#include "tools/objective.h"
#include "tools/print/classes.h"
#include "tools/sweep/table.h"
#include "tools/wrap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_MAX = 320, PLAN_INDENT = 6, COLUMNS_MAX = 12 };

#define SYNCHRONOUS "synchronous"

/* Iterations, and costs, that differ by less are a tie: the simulator's own error is larger (1.5 % at best against real runs, README.md), so
 * that a smaller gain is no reason to train differently. */
#define TIE_SHARE 0.01

/* Whether best, of another training, is too little better than the synchronous plan to be preferred. */
static bool ties(const struct search_options *o, const struct sweep_line *synchronous, const struct sweep_line *best, bool by_time)
{
    struct search_plan x = sweep_line_value(synchronous, by_time), y = sweep_line_value(best, by_time);
    bool costs = o->objective == OBJECTIVE_COST;
    double mine = costs ? x.cost : (double)x.iteration_ns, other = costs ? y.cost : (double)y.iteration_ns;
    return objective_better(o, &x, NULL) && mine - other < TIE_SHARE * mine;
}

struct sweep_line regions_best(const struct sweep_point *x, const struct search_options *o, bool by_time)
{
    struct search_options plain = *o;
    struct sweep_line synchronous = {x->hierarchical ? SYNCHRONOUS ", hierarchical" : SYNCHRONOUS, x->plan, x->iteration_ns, 1,
                              isfinite(x->outcome.cost) ? x->outcome.cost : 0, NULL}, best = synchronous;
    if (by_time) plain = (struct search_options){.objective = OBJECTIVE_TIME};
    for (int32_t i = 0; i < x->n_lines; i++) {
        struct search_plan mine = sweep_line_value(&x->lines[i], by_time), now = sweep_line_value(&best, by_time);
        if (x->lines[i].file && objective_precedes(&plain, &mine, &now)) best = x->lines[i];
    }
    return ties(&plain, &synchronous, &best, by_time) ? synchronous : best;
}

/* Points that differ in one axis only, in the order of its values. */
struct series {
    const struct axis *axis;
    int32_t n;
    const struct sweep_point **points; /* (n) with a plan */
    const char *others;                /* "batch=64, nodes:h=2"; "" */
};
struct run_of_best {
    int32_t first, last; /* points of the series */
    struct sweep_line from, to;
};

static int32_t longest_axis(const struct sweep_grid *s)
{
    int32_t best = 0;
    for (int32_t k = 1; k < s->n_axes; k++)
        if (s->axes[k].n > s->axes[best].n) best = k;
    return best;
}

static double at_axis(const struct sweep_grid *s, const struct sweep_point *x, int32_t axis) { return s->axes[axis].values[x->at[axis]]; }

/* The series through a point with the first value of the axis. */
static struct series series_of(struct arena *a, const struct sweep_grid *s, const struct sweep_point *head, int32_t axis)
{
    struct series out = {.axis = &s->axes[axis], .points = ARENA_ARRAY(a, const struct sweep_point *, (size_t)s->axes[axis].n), .others = ""};
    int64_t stride = 1;
    for (int32_t k = axis + 1; k < s->n_axes; k++) stride *= s->axes[k].n;
    for (int32_t i = 0; i < s->axes[axis].n; i++) {
        const struct sweep_point *x = head + i * stride;
        int32_t at = out.n;
        if (!x->done || x->why) continue;
        for (; at > 0 && at_axis(s, x, axis) < at_axis(s, out.points[at - 1], axis); at--) out.points[at] = out.points[at - 1];
        out.points[at] = x, out.n++;
    }
    for (int32_t k = 0; k < s->n_axes; k++)
        if (k != axis)
            out.others = arena_printf(a, "%s%s%s=%s", out.others, *out.others ? ", " : "", s->axes[k].name, s->axes[k].texts[head->at[k]]);
    return out;
}

static int32_t find_regions(struct arena *a, const struct series *x, const struct search_options *o, bool by_time, struct run_of_best **out)
{
    int32_t n = 0;
    *out = ARENA_ARRAY(a, struct run_of_best, (size_t)x->n + 1);
    for (int32_t i = 0; i < x->n; i++) {
        struct sweep_line best = regions_best(x->points[i], o, by_time);
        if (n && !strcmp((*out)[n - 1].from.name, best.name))
            (*out)[n - 1].last = i, (*out)[n - 1].to = best;
        else
            (*out)[n++] = (struct run_of_best){i, i, best, best};
    }
    return n;
}

static bool same_regions(const struct run_of_best *x, int32_t n, const struct run_of_best *y, int32_t m)
{
    bool same = n == m;
    for (int32_t i = 0; i < n && same; i++) same = x[i].first == y[i].first && !strcmp(x[i].from.name, y[i].from.name);
    return same;
}

static const char *value_text(const struct series *x, int32_t point, int32_t axis)
{
    return x->axis->texts[x->points[point]->at[axis]];
}

/* Progress is an assumption: of which progress on the answer holds against the synchronous plan. */
static const char *needs_progress(struct arena *a, const struct series *x, const struct run_of_best *r)
{
    double least = (double)r->from.ns / (double)x->points[r->first]->iteration_ns, last = (double)r->to.ns / (double)x->points[r->last]->iteration_ns;
    if (!strncmp(r->from.name, SYNCHRONOUS, strlen(SYNCHRONOUS))) return "";
    return arena_printf(a, ", faster than synchronous with a progress above %.3g%s", least,
                        r->first == r->last ? "" : arena_printf(a, " to %.3g", last));
}

static void print_regions(struct arena *a, const struct series *x, int32_t axis, const struct run_of_best *r, int32_t n, bool all)
{
    const char **ranges = ARENA_ARRAY(a, const char *, (size_t)n + 1), **times = ARENA_ARRAY(a, const char *, (size_t)n + 1);
    char first[32], last[32];
    int range = 0, name = 0;
    for (int32_t i = 0; i < n; i++) {
        const char *from = value_text(x, r[i].first, axis), *to = value_text(x, r[i].last, axis);
        bool one = r[i].first == r[i].last;
        units_print_ns(first, r[i].from.ns), units_print_ns(last, r[i].to.ns);
        ranges[i] = one ? from : arena_printf(a, "%s to %s", from, to);
        times[i] = one ? arena_strdup(a, first) : arena_printf(a, "%s to %s", first, last);
        range = (int)strlen(ranges[i]) > range ? (int)strlen(ranges[i]) : range;
        name = (int)strlen(r[i].from.name) > name ? (int)strlen(r[i].from.name) : name;
    }
    for (int32_t i = 0; i < n; i++) {
        printf("    %-*s  %-*s  %s%s\n      ", range, ranges[i], name, r[i].from.name, times[i], needs_progress(a, x, &r[i]));
        wrap_text(stdout, all ? r[i].from.plan : print_cut(a, r[i].from.plan, TEXT_MAX), PLAN_INDENT, PLAN_INDENT, wrap_width());
        puts("");
    }
}

static bool any_lines(const struct sweep_grid *s)
{
    bool any = false;
    for (int64_t i = 0; i < s->n_points; i++) any |= s->points[i].n_lines > 0;
    return any;
}

static void print_cell(const char *text) { printf("  %9s", text); }

/* A row for each training: effective times over the values of the axis. */
static void print_lines(struct arena *a, const struct sweep_grid *s, const struct series *x, int32_t axis)
{
    char text[32];
    const char **names;
    int32_t n = table_lines(a, s, &names);
    int width = (int)strlen(SYNCHRONOUS);
    if (x->n > COLUMNS_MAX) return;
    for (int32_t k = 0; k < n; k++) width = (int)strlen(names[k]) > width ? (int)strlen(names[k]) : width;
    printf("  effective times\n    %*s", width, "");
    for (int32_t i = 0; i < x->n; i++) print_cell(value_text(x, i, axis));
    for (int32_t k = -1; k < n; k++) {
        printf("\n    %-*s", width, k < 0 ? SYNCHRONOUS : names[k]);
        for (int32_t i = 0; i < x->n; i++) {
            const struct sweep_line *l = k < 0 ? NULL : table_line(x->points[i], names[k]);
            double ns = l ? (double)l->ns / l->progress : (double)x->points[i]->iteration_ns;
            print_cell(l || k < 0 ? units_print_ns(text, llround(ns)) : "-");
        }
    }
    puts("");
}

void regions_print(struct arena *a, const struct sweep_grid *s, const struct search_options *o, bool all)
{
    int32_t axis = longest_axis(s);
    for (int64_t i = 0; any_lines(s) && i < s->n_points; i++) {
        if (s->points[i].at[axis]) continue;
        struct series x = series_of(a, s, &s->points[i], axis);
        struct run_of_best *r, *by_time;
        int32_t n = find_regions(a, &x, o, false, &r), m = find_regions(a, &x, o, true, &by_time);
        bool same = same_regions(r, n, by_time, m);
        printf("  best over %s%s%s, by effective %s%s\n", x.axis->name, *x.others ? ", with " : "", x.others,
               o->objective == OBJECTIVE_COST ? "cost (cost / progress)" : "time (iteration / progress)", same ? ", and by time alone" : "");
        print_regions(a, &x, axis, r, n, all);
        if (!same) puts("  by time alone");
        if (!same) print_regions(a, &x, axis, by_time, m, all);
        print_lines(a, s, &x, axis);
    }
}

void regions_json(struct arena *a, const struct sweep_grid *s, const struct search_options *o, struct json *j)
{
    int32_t axis = longest_axis(s);
    json_put_list(j, "regions");
    for (int64_t i = 0; any_lines(s) && i < s->n_points; i++) {
        if (s->points[i].at[axis]) continue;
        struct series x = series_of(a, s, &s->points[i], axis);
        for (int by_time = 0; by_time < 2; by_time++) {
            struct run_of_best *r;
            int32_t n = find_regions(a, &x, o, by_time, &r);
            for (int32_t k = 0; k < n; k++) {
                json_put_object(j, NULL);
                json_put_text(j, "axis", x.axis->name);
                if (*x.others) json_put_text(j, "with", x.others);
                json_put_bool(j, "by_time_alone", by_time);
                json_put_double(j, "from", at_axis(s, x.points[r[k].first], axis));
                json_put_double(j, "to", at_axis(s, x.points[r[k].last], axis));
                json_put_text(j, "best", r[k].from.name);
                json_put_text(j, "plan", r[k].from.plan);
                json_close(j);
            }
        }
    }
    json_close(j);
}
