#include "tools/print/plan.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "planner/candidate/robust.h"
#include "planner/search.h"
#include "tools/common.h"
#include "tools/print/classes.h"
#include "tools/print/metrics.h"
#include "tools/print/replicas.h"
#include "tools/print/stated.h"
#include "tools/print/strategies.h"
#include "tools/print/unused.h"
#include "tools/wrap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WHY_MAX = 160, PLAN_INDENT = 4, BOUND_INDENT = 4 };

/* Two lower bounds: no plan is faster than the first; no plan of the class searched is faster than the second. */
static void put_gap(struct json *j, const char *name, double gap)
{
    if (isfinite(gap))
        json_put_double(j, name, gap);
    else
        json_put_null(j, name);
}

static void print_bounds_json(struct json *j, const struct search_result *r)
{
    bool known = r->lower_bound_ns > 0;
    if (known)
        json_put_int(j, "lower_bound_ns", r->lower_bound_ns);
    else
        json_put_null(j, "lower_bound_ns");
    put_gap(j, "gap", known ? r->gap : INFINITY);
    json_put_text(j, "binding", known ? r->binding : NULL);
    json_put_text(j, "class", known ? r->bound_class : NULL);
    if (r->equal_bound_ns > 0) {
        json_put_int(j, "equal_bound_ns", r->equal_bound_ns);
        json_put_text(j, "equal_binding", r->equal_binding);
        json_put_text(j, "equal_class", SEARCH_EQUAL);
    }
    if (r->lower_cost > 0) {
        json_put_double(j, "lower_cost", r->lower_cost);
        put_gap(j, "cost_gap", r->cost_gap);
    }
    if (!r->exact) return;
    if (r->class_ns > 0)
        json_put_int(j, "class_optimum_ns", r->class_ns);
    else
        json_put_null(j, "class_optimum_ns"); /* nothing of the class fits */
    json_put_text(j, "class_searched", SEARCH_CLASS);
}

/* A bound of cost is zero where a type is free. */
static void print_free(const struct cluster *c)
{
    const char *between = "  no lower bound of cost, because device types are free: ";
    for (int32_t t = 0; t < c->n_types; t++) {
        if (c->types[t].price_per_h > 0) continue;
        printf("%s%s", between, c->types[t].name);
        between = ", ";
    }
    puts("");
}

static void print_line(const char *text)
{
    wrap_text(stdout, text, 0, BOUND_INDENT, wrap_width());
    puts("");
}

/* A plan outside the class may be faster than its bound. */
static void print_equal(struct arena *a, const struct search_result *r)
{
    char text[32];
    int64_t ns = r->plans[0].iteration_ns, bound = r->equal_bound_ns;
    if (bound <= 0) return;
    const char *gap = ns > bound ? arena_printf(a, "at most %.1f %% slower than",
                                                100 * (double)(ns - bound) / (double)bound)
                                 : "at least as fast as";
    print_line(arena_printf(a, "  lower bound %s (%s) for equal pipelines: this plan is %s the fastest plan whose replicas are all alike",
                            units_print_ns(text, bound), r->equal_binding, gap));
}

static void print_cost_bound(struct arena *a, const struct plan_report *x)
{
    const struct search_result *r = x->result;
    if (!(r->lower_cost > 0)) {
        print_free(x->cluster);
        return;
    }
    print_line(arena_printf(a, "  lower bound of cost %.4g per iteration (price of all work): this plan is at most %.1f %% dearer than the "
                               "cheapest%s",
                            r->lower_cost, 100 * r->cost_gap,
                            x->min_rate > 0 ? " within --min-rate" : ""));
}

/* "this plan is at most 4.2 % slower than the optimum over all stages, …": the class is the feasible set of the bound. */
static void print_bounds(struct arena *a, const struct plan_report *x)
{
    const struct search_result *r = x->result;
    bool cost = x->objective == OBJECTIVE_COST;
    char text[32];
    if (cost) print_cost_bound(a, x);
    if (r->lower_bound_ns <= 0) {
        printf("  no lower bound%s is known\n", cost ? " of time" : "");
        return;
    }
    print_line(arena_printf(
        a, "  lower bound %s%s (%s): %s %s", cost ? "of time " : "",
        units_print_ns(text, r->lower_bound_ns), r->binding,
        isfinite(r->gap) ? arena_printf(a, "this plan is at most %.1f %% slower than the %s over",
                                        100 * r->gap, cost ? "fastest" : "optimum")
                         : "no gap is known; the bound is over",
        r->bound_class));
    if (!cost) print_equal(a, r);
    if (r->exact && r->class_ns > 0) /* else nothing of the class fits */
        printf("  optimum %s of the class searched: %s\n", units_print_ns(text, r->class_ns),
               SEARCH_CLASS);
}

static const char *const start_names[] = {
#define X(name, text) text,
    SEARCH_STARTS(X)
#undef X
};

void print_plan_json(struct arena *a, const struct plan_report *x)
{
    const struct search_result *r = x->result;
    struct unused idle;
    struct json j;
    unused_find(a, x->cluster, &r->plans[0].plan, &idle);
    common_json_begin(&j);
    json_put_int(&j, "iteration_ns", r->plans[0].iteration_ns);
    json_put_double(&j, "cost", r->plans[0].cost);
    json_put_text(&j, "plan", plan_describe(a, &r->plans[0].plan));
    json_put_list(&j, "idle");
    for (int32_t i = 0; i < idle.n; i++) json_put_text(&j, NULL, idle.names[i]);
    json_close(&j);
    json_put_list(&j, "idle_without_link");
    for (int32_t i = 0; i < idle.n; i++)
        if (idle.apart[i]) json_put_text(&j, NULL, idle.names[i]);
    json_close(&j);
    json_put_text(&j, "file", x->file);
    json_put_int(&j, "profile_id", x->profile->id);
    print_stated(a, x->cluster, &r->plans[0].plan.job, &j);
    json_put_list(&j, "baselines");
    for (int32_t i = 0; i < r->n_baselines; i++) {
        json_put_object_line(&j, NULL);
        json_put_text(&j, "name", r->baselines[i].name);
        if (r->baselines[i].iteration_ns == INT64_MAX) {
            json_put_null(&j, "iteration_ns");
            json_put_text(&j, "why", r->baselines[i].why);
        } else {
            json_put_int(&j, "iteration_ns", r->baselines[i].iteration_ns);
            print_rate_json(&j, &r->baselines[i].plan.job, r->baselines[i].iteration_ns);
            json_put_text(&j, "plan", plan_describe(a, &r->baselines[i].plan));
            if (r->baselines[i].quick) json_put_bool(&j, "quick", true);
            if (r->baselines[i].estimated) json_put_bool(&j, "estimated", true);
            if (r->baselines[i].sampled) json_put_bool(&j, "sampled", true);
        }
        json_close(&j);
    }
    json_close(&j);
    json_put_list(&j, "top");
    for (int32_t i = 0; i < r->n_plans; i++) {
        json_put_object(&j, NULL);
        json_put_int(&j, "iteration_ns", r->plans[i].iteration_ns);
        json_put_double(&j, "cost", r->plans[i].cost);
        json_put_text(&j, "plan", plan_describe(a, &r->plans[i].plan));
        print_metrics_json(&j, &x->metrics[i]);
        json_close(&j);
    }
    json_close(&j);
    json_put_int(&j, "candidates", r->candidates);
    json_put_int(&j, "evaluated", r->evaluated);
    json_put_int(&j, "budget", r->budget);
    json_put_bool(&j, "exact", r->exact);
    if (r->sampled) json_put_bool(&j, "sampled", true);
    if (r->start) json_put_text(&j, "from_plan", start_names[r->start]);
    json_put_text(&j, "stopped", x->timed_out ? "time" : r->stopped);
    print_bounds_json(&j, r);
    if (x->preset) print_preset_json(&j, x->preset);
    if (x->strategies) print_strategies_json(a, &j, x->strategies, x->file);
    json_put_object_line(&j, "timing"); /* outside "same inputs, same bytes" */
    json_put_double(&j, "search_s", x->search_s);
    json_close(&j);
    common_json_end(&j);
}

static const char *stop_text(const char *stopped)
{
    return !strcmp(stopped, "end")           ? "search ended, optimality not proved"
           : !strcmp(stopped, "evaluations") ? "stopped by the budget of simulations (--evaluations)"
           : !strcmp(stopped, "work") ? "stopped by the budget of work, which grows with --evaluations"
                                             : stopped;
}

/* "found  5.71 s  costs 0.0495 per iteration  1 replica of 8 microbatches: …". */
static void print_plans(struct arena *a, const struct search_result *r)
{
    char text[32];
    for (int32_t i = 0; i < r->n_plans; i++) {
        const struct search_plan *x = &r->plans[i];
        const char *cost =
            x->cost > 0 ? arena_printf(a, "costs %.4g per iteration  ", x->cost) : "";
        int at = printf("  %-14s %10s  %s%s", x->plan.name, units_print_ns(text, x->iteration_ns),
                        cost, r->sampled && !i ? "(sample)  " : "");
        print_replicas(a, &x->plan, (struct print_replicas){.at = at, .indent = PLAN_INDENT});
    }
}

static void print_baseline(struct arena *a, const struct plan_report *x,
                           const struct search_baseline *b)
{
    char text[32];
    const struct search_plan *best = &x->result->plans[0];
    const char *cost = "";
    if (x->objective == OBJECTIVE_COST && best->cost > 0)
        cost = arena_printf(a, "%.2f times the cost, ",
                            plan_cost(&b->plan, b->iteration_ns) / best->cost);
    printf("  %-14s %10s  %s%.2f times as long, %s%s\n", b->name,
           units_print_ns(text, b->iteration_ns), cost,
           (double)b->iteration_ns / (double)best->iteration_ns,
           print_rate(a, &b->plan.job, b->iteration_ns),
           arena_printf(a, "%s%s",
                        b->estimated ? " (estimated)"
                        : b->sampled ? " (sample)"
                                     : "",
                        b->quick ? " *" : ""));
}

/* The baselines that do not fit, those of one reason on one line, where the first of them stands. */
static void print_baselines(struct arena *a, const struct plan_report *x)
{
    const struct search_baseline *b = x->result->baselines;
    bool quick = false, estimated = false, sampled = false;
    for (int32_t i = 0; !x->baseline && i < x->result->n_baselines; i++) {
        const char *names = b[i].name;
        bool said = false;
        if (b[i].iteration_ns != INT64_MAX) {
            quick |= b[i].quick, estimated |= b[i].estimated;
            sampled |= b[i].sampled && !b[i].estimated;
        }
        if (b[i].iteration_ns != INT64_MAX) {
            print_baseline(a, x, &b[i]);
            continue;
        }
        for (int32_t k = 0; k < i; k++)
            said |= b[k].iteration_ns == INT64_MAX && !strcmp(b[k].why, b[i].why);
        for (int32_t k = i + 1; k < x->result->n_baselines; k++)
            if (b[k].iteration_ns == INT64_MAX && !strcmp(b[k].why, b[i].why))
                names = arena_printf(a, "%s, %s", names, b[k].name);
        if (!said)
            printf("  %-23s -  %s\n", names,
                   x->verbose ? b[i].why : print_cut(a, b[i].why, WHY_MAX));
    }
    if (estimated) puts("  (estimated): not simulated; --baseline NAME simulates it");
    if (sampled)
        puts("  (sample): some microbatches and replicas simulated; --baseline NAME simulates all");
    if (quick) puts("  *: not all settings of the family tried; --baseline NAME tries more");
}

static const char *start_text(enum search_start s)
{
    switch (s) {
    case SEARCH_START_NONE: return NULL;
    case SEARCH_START_ADAPTED:
        return "the old plan adapted to this cluster and improved by local search, without a new "
               "search (--evaluations N: with one of N simulations)";
    case SEARCH_START_SEARCHED:
        return "a new search, with the old plan adapted to this cluster as a start";
    }
    return NULL;
}

/* Where the rounds of a search (planner/search.h) begin another budget than was asked for. */
static void print_budget(const struct plan_report *x)
{
    int64_t spent = x->result->budget, next = x->result->next_budget;
    if (x->baseline || !x->evaluations || x->evaluations == spent || x->evaluations >= next) return;
    printf("  budget %lld evaluations, not %lld: beyond %d devices the next larger one is %lld\n",
           (long long)spent, (long long)x->evaluations, SEARCH_DEVICES_MAX, (long long)next);
}

void print_plan(struct arena *a, const struct plan_report *x)
{
    const struct search_result *r = x->result;
    struct unused idle;
    printf("predicted with %s%s\n", common_profile_label(a, x->profile),
           r->plans[0].plan.cluster.emulated ? ", for emulated devices" : "");
    print_stated(a, x->cluster, &r->plans[0].plan.job, NULL);
    print_plans(a, r);
    if (r->sampled)
        puts("  (sample): the search was stopped before this plan was simulated whole, or the "
             "cluster is too large for that; musher simulate gives its time");
    if (r->robust)
        printf("  the first plan is the most robust within %d %% of the fastest (--fastest: the "
               "fastest)\n",
               (int)ROBUST_PERCENT);
    if (start_text(r->start)) printf("  %s\n", start_text(r->start));
    print_metrics(a, &x->metrics[0]);
    unused_find(a, x->cluster, &r->plans[0].plan, &idle);
    unused_print(a, &idle, x->objective == OBJECTIVE_COST);
    print_baselines(a, x);
    if (r->candidates) /* 0: the search was stopped before plans with a bound of their own were counted */
        printf("  %lld candidate plan%s,", (long long)r->candidates, r->candidates == 1 ? "" : "s");
    printf("%s %lld simulation%s, %s\n", r->candidates ? "" : " ", (long long)r->evaluated, r->evaluated == 1 ? "" : "s",
           r->exact       ? "class searched completely"
           : x->timed_out ? "stopped by --time-limit"
                          : stop_text(r->stopped));
    print_budget(x);
    if (x->preset)
        print_preset(a, x->preset);
    else
        print_bounds(a, x);
    if (x->strategies) print_strategies(a, x->strategies, &r->plans[0], x->file);
}
