/* The plans of the page beside each other, and beside the found and the textbook plans of a search. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/print/classes.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <math.h>
#include <string.h>

enum { TEXT_MAX = 160 };

struct row {
    const char *name, *what;
    struct outcome o;
    bool given;
};

static void write_row(FILE *out, struct arena *a, const struct row *r, double best_s,
                      double worst_s, bool priced)
{
    char text[32];
    const struct outcome *o = &r->o;
    struct html_part part = {r->given ? "#0072B2" : "#56B4E9", r->name, o->iteration_s / worst_s};
    html_row(out);
    html_cell(out, a, r->name, false);
    html_cell(out, a, units_print_ns(text, units_ns_from_s(o->iteration_s)), true);
    html_cell_open(out);
    html_bar(out, a, &part, 1);
    html_cell_end(out);
    html_cell(out, a, arena_printf(a, "%.2f ×", o->iteration_s / best_s), true);
    html_cell(out, a, isfinite(o->gap) ? arena_printf(a, "%.1f %%", 100 * o->gap) : "-", true);
    html_cell(out, a,
              outcome_number(text, o->rate.tokens_per_s > 0 ? o->rate.tokens_per_s : o->rate.samples_per_s), true);
    if (priced) html_cell(out, a, isfinite(o->cost) ? arena_printf(a, "%.4g", o->cost) : "-", true);
    html_cell(out, a, r->what, false);
    html_row_end(out);
}

/* A plan outside the class of the bound may be below it, and then has no gap. */
static struct outcome outcome_beside(const struct search_result *s, const struct plan *p,
                                     int64_t ns)
{
    return outcome_of(p, ns, s->lower_bound_ns <= ns ? s->lower_bound_ns : 0);
}

static int32_t list(struct arena *a, const struct report *r, struct row *rows)
{
    int32_t n = 0;
    const struct search_result *s = r->search;
    for (int32_t i = 0; i < r->n_plans; i++) {
        const struct report_plan *x = &r->plans[i];
        rows[n++] = (struct row){x->label, plan_describe(a, &x->plan), x->outcome, true};
    }
    for (int32_t i = 0; s && i < s->n_plans; i++)
        rows[n++] =
            (struct row){"found by the search", plan_describe(a, &s->plans[i].plan),
                         outcome_beside(s, &s->plans[i].plan, s->plans[i].iteration_ns), false};
    for (int32_t i = 0; s && i < s->n_baselines; i++) {
        const struct search_baseline *b = &s->baselines[i];
        if (b->iteration_ns == INT64_MAX) continue;
        rows[n++] = (struct row){b->name,
                                 arena_printf(a, "%s%s", plan_describe(a, &b->plan),
                                              b->estimated ? " (estimated, not simulated)"
                                              : b->sampled ? b->quick ? " (of a sample; not all settings tried)" : " (of a sample)"
                                              : b->quick   ? " (not all settings tried)"
                                                           : ""),
                                 outcome_beside(s, &b->plan, b->iteration_ns), false};
    }
    return n;
}

static void write_misfits(FILE *out, struct arena *a, const struct search_result *s)
{
    static const char *const heads[] = {"Textbook plan", "Does not fit, because"};
    bool any = false;
    for (int32_t i = 0; i < s->n_baselines; i++) {
        const struct search_baseline *b = &s->baselines[i];
        if (b->iteration_ns != INT64_MAX) continue;
        if (!any) html_table(out, a, heads, 2);
        any = true;
        html_row(out);
        html_cell(out, a, b->name, false);
        html_cell(out, a, print_cut(a, b->why, TEXT_MAX), false);
        html_row_end(out);
    }
    if (any) html_table_end(out);
}

static const char *equal_bound(struct arena *a, const struct search_result *s)
{
    char ns[32];
    if (s->equal_bound_ns <= 0) return "";
    return arena_printf(a, " Lower bound %s (%s) over %s.", units_print_ns(ns, s->equal_bound_ns),
                        s->equal_binding, SEARCH_EQUAL);
}

void alternatives_write(FILE *out, struct arena *a, const struct report *r)
{
    const struct search_result *s = r->search;
    size_t most = (size_t)r->n_plans + (s ? (size_t)(s->n_plans + s->n_baselines) : 0);
    struct row *rows = ARENA_ARRAY(a, struct row, most + 1);
    int32_t n = list(a, r, rows);
    double best_s = INFINITY, worst_s = 0;
    bool priced = false;
    for (int32_t i = 0; i < n; i++) {
        best_s = fmin(best_s, rows[i].o.iteration_s);
        worst_s = fmax(worst_s, rows[i].o.iteration_s);
        priced |= isfinite(rows[i].o.cost);
    }
    bool images = !(rows[0].o.rate.tokens_per_s > 0);
    const char *heads[] = {"Plan",         "#Iteration", "",
                           "#vs. fastest", "#vs. bound", images ? "#Images/s" : "#Tokens/s",
                           "#Cost",        "What it is"};
    if (!priced) heads[6] = heads[7];
    char bound[32];
    html_section(out, a, "alternatives", "Alternatives",
                 s ? arena_printf(a, "Lower bound %s (%s) over %s.%s The column vs. bound states how much slower a plan is than the first bound.",
                                  units_print_ns(bound, s->lower_bound_ns), s->binding,
                                  s->bound_class, equal_bound(a, s))
                   : "No search was asked for (--search): no lower bound, no textbook plans.");
    html_table(out, a, heads, priced ? 8 : 7);
    for (int32_t i = 0; i < n; i++) {
        rows[i].what = print_cut(a, rows[i].what, TEXT_MAX);
        write_row(out, a, &rows[i], best_s, worst_s, priced);
    }
    html_table_end(out);
    if (s) write_misfits(out, a, s);
    html_section_end(out);
}
