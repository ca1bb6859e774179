#include "tools/print/variants.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/bound/any.h"
#include "tools/common.h"
#include "tools/print/stated.h"
#include "tools/team/replan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int32_t devices_used(struct arena *a, const struct plan *p)
{
    return replan_mark(p, ARENA_ARRAY(a, bool, (size_t)p->cluster.n_devices));
}

/* Of what is minimised, money or time; INFINITY: no bound is known. */
static double gap_of(enum objective aim, const struct variant *v)
{
    if (aim == OBJECTIVE_COST)
        return bound_cost_gap(plan_cost(v->best, v->best_ns), v->lower_cost);
    return bound_gap(v->best_ns, v->lower_bound_ns);
}

/* What a variant's plan saves of the money of the old plan on the cluster as it is: 1 - cost / that cost; NAN: unknown. */
static double saving_of(const struct variants_report *q, const struct variant *first, const struct variant *v)
{
    double before = first->old_ns ? plan_cost(q->old, first->old_ns) : 0;
    return before > 0 && v->best_ns && plan_priced(v->best) ? 1 - plan_cost(v->best, v->best_ns) / before : NAN;
}

/* Whether any device type has a price; otherwise there is no cost to print. */
static bool is_priced(const struct variant *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int32_t t = 0; t < v[i].team.n_types; t++)
            if (v[i].team.types[t].priced) return true;
    return false;
}

static void put_ns(struct json *j, const char *key, int64_t ns)
{
    if (ns)
        json_put_int(j, key, ns);
    else
        json_put_null(j, key);
}

void print_variants_json(struct arena *a, const struct variants_report *q, const struct variant *v,
                         size_t n)
{
    struct json j;
    double search_s = 0;
    bool priced = is_priced(v, n);
    common_json_begin(&j);
    json_put_text(&j, "plan", q->plan);
    json_put_int(&j, "profile_id", q->profile->id);
    print_stated(a, &v[n - 1].team, &q->old->job, &j);
    json_put_list(&j, "variants");
    for (size_t i = 0; i < n; i++) {
        json_put_object(&j, NULL);
        json_put_text(&j, "name", v[i].name);
        put_ns(&j, "old_plan_ns", v[i].old_ns);
        if (v[i].old_why) json_put_text(&j, "old_plan_error", v[i].old_why);
        put_ns(&j, "iteration_ns", v[i].best_ns);
        if (v[i].why) json_put_text(&j, "why", v[i].why);
        json_put_int(&j, "devices", v[i].team.n_devices);
        if (v[i].best_ns) {
            json_put_int(&j, "devices_used", devices_used(a, v[i].best));
            put_ns(&j, "lower_bound_ns", v[i].lower_bound_ns);
            if (isfinite(gap_of(q->objective, &v[i]))) json_put_double(&j, "gap", gap_of(q->objective, &v[i]));
            if (v[i].lower_bound_ns) json_put_text(&j, "binding", v[i].binding);
            if (v[0].old_ns)
                json_put_double(&j, "speedup", (double)v[0].old_ns / (double)v[i].best_ns);
            if (priced && isfinite(saving_of(q, v, &v[i]))) json_put_double(&j, "saving", saving_of(q, v, &v[i]));
            print_metrics_json(&j, &v[i].metrics);
            if (priced) json_put_double(&j, "cost", plan_cost(v[i].best, v[i].best_ns));
            json_put_text(&j, "best", plan_describe(a, v[i].best));
            json_put_bool(&j, "stays", v[i].stays);
            json_put_bool(&j, "exact", v[i].exact);
        }
        json_put_int(&j, "evaluated", v[i].evaluated);
        json_put_text(&j, "stopped", v[i].stopped);
        json_close(&j);
        search_s += v[i].search_s;
    }
    json_close(&j);
    json_put_object_line(&j, "timing"); /* outside "same inputs, same bytes" */
    json_put_double(&j, "search_s", search_s);
    json_close(&j);
    common_json_end(&j);
}

static const char *cut(struct arena *a, const char *text, size_t most)
{
    return strlen(text) <= most ? text : arena_printf(a, "%s...", arena_strndup(a, text, most - 3));
}

/* By cost what is saved, else the speed-up. */
static void print_gain(const struct variants_report *q, const struct variant *first, const struct variant *v)
{
    double saving = saving_of(q, first, v);
    if (q->objective == OBJECTIVE_COST && isfinite(saving))
        printf(" %7.1f %%", 100 * saving);
    else if (q->objective != OBJECTIVE_COST && first->old_ns)
        printf(" %8.2fx", (double)first->old_ns / (double)v->best_ns);
    else
        printf(" %9s", "-");
}

/* first: the variant without a change. */
static void print_row(struct arena *a, const struct variants_report *q, const struct variant *first,
                      const struct variant *v, int width, bool priced)
{
    char text[32];
    printf("  %-*s %11s", width, v->name, v->old_ns ? units_print_ns(text, v->old_ns) : "-");
    if (!v->best_ns) {
        printf(" %11s  %s\n", "-", cut(a, v->why, 120));
        return;
    }
    printf(" %11s", units_print_ns(text, v->best_ns));
    print_gain(q, first, v);
    if (isfinite(gap_of(q->objective, v)))
        printf(" %6.1f %%", 100 * gap_of(q->objective, v));
    else
        printf(" %8s", v->exact ? "exact" : "-");
    printf(" %5d of %-5d", (int)devices_used(a, v->best), (int)v->team.n_devices);
    if (priced && plan_priced(v->best)) printf(" %11.6g ", plan_cost(v->best, v->best_ns));
    if (priced && !plan_priced(v->best)) printf(" %11s ", "-");
    printf(" %s%s\n", v->stays ? "the old plan: " : "", cut(a, plan_describe(a, v->best), 120));
}

void print_variants(struct arena *a, const struct variants_report *q, const struct variant *v, size_t n)
{
    int width = 8;
    bool priced = is_priced(v, n);
    for (size_t i = 0; i < n; i++)
        if ((int)strlen(v[i].name) > width) width = (int)strlen(v[i].name);
    printf("predicted with %s%s\n", common_profile_label(a, q->profile),
           v[0].team.emulated ? ", for emulated devices" : "");
    print_stated(a, &v[n - 1].team, &q->old->job, NULL);
    printf("  %-*s %11s %11s %9s %8s %14s%s\n", width, "", "old plan", "best plan", q->objective == OBJECTIVE_COST ? "saving" : "speed-up",
           "gap", "devices used", priced ? "  cost/iter." : "");
    for (size_t i = 0; i < n; i++) print_row(a, q, &v[0], &v[i], width, priced);
    for (size_t i = 0; i < n; i++)
        if (v[i].old_why)
            printf("  old plan cannot run (%s): %s\n", v[i].name, cut(a, v[i].old_why, 120));
    if (q->only_repaired)
        printf(
            "  beyond %d devices the best plan is the old one adapted, and searched anew only where that is slower than "
            "expected; --search searches every row, which may be faster\n",
            SEARCH_DEVICES_MAX);
    for (size_t i = 0; i < n; i++) {
        if (!v[i].best_ns) continue;
        printf("%s\n", v[i].name);
        print_metrics(a, &v[i].metrics);
    }
}
