#include "tools/report/report.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/common.h"
#include "tools/report/html.h"

#include <math.h>

enum { MEMORY_POINTS = 240 }; /* of a panel 300 pixels wide */

const char *report_type_colour(int32_t type)
{
    static const char *const colours[] = {"#56B4E9", "#E69F00", "#7CCBA2", "#CC79A7",
                                          "#F0E442", "#B7A6E0", "#D5A08A", "#B0B8C0"};
    return colours[(size_t)type % (sizeof colours / sizeof *colours)];
}

/* How many devices of the plan each simulated one represents: of a folded trace its own number, of representatives that of their
 * class of replicas. */
static void weigh(struct arena *a, struct report_plan *x)
{
    const struct program *p = x->told.explained;
    struct trace *t = x->told.explained_result.trace;
    struct plan_class *classes = NULL;
    int32_t n = x->told.by_replicas ? common_classes(a, &x->plan, &classes) : 0;
    x->weight = ARENA_ARRAY(a, int64_t, (size_t)p->n_devices + 1);
    for (int32_t d = 0; d < p->n_devices; d++) {
        int32_t replica = p->stages[p->lanes[d].stages[0]].replica;
        for (int32_t k = 0; k < n; k++)
            if (classes[k].replicas[0] == replica) t->devices[d].stands_for = classes[k].n;
        x->weight[d] = trace_weight(t, d);
    }
}

enum status report_predict(struct arena *a, const struct profile *profile, int64_t tokens,
                           struct report_plan *x, struct error *err)
{
    const struct sim_options o = {.keep_trace = true, .beside_trace = explain_bytes, .fold = true};
    int64_t known_ns = x->plan.profile_id == profile->id ? x->plan.predicted_ns : 0;
    TRY(predict(a, &x->plan, profile, &o, true, known_ns, &x->told, err));
    struct trace *t = x->told.explained_result.trace;
    x->cost = cost_new(a, profile, &x->plan.cluster);
    weigh(a, x);
    TRY(explain_result(a, x->told.explained, x->cost, &x->told.explained_result, &x->why, err));
    predict_metrics(a, &x->plan, profile, x->told.result.iteration_ns, tokens, &x->metrics);
    timeline_make(a, t, &x->line);
    return live_rows_make(a, x->told.explained, t, &x->line, REPORT_MEMORY_PANELS, MEMORY_POINTS,
                          &x->n_live, &x->live, err);
}

/* --- the page --- */

static void tile(FILE *out, struct arena *a, const char *value, const char *name)
{
    fputs("<div class=\"tile\"><b>", out);
    html_text(out, a, value);
    fputs("</b><span>", out);
    html_text(out, a, name);
    fputs("</span></div>\n", out);
}

static void write_use_tiles(FILE *out, struct arena *a, const struct metrics *m)
{
    char peak[32], limit[64];
    const struct metrics_class *full = m->classes;
    for (int32_t i = 1; i < m->n_classes; i++)
        if ((double)m->classes[i].peak_bytes / (double)m->classes[i].memory_bytes >
            (double)full->peak_bytes / (double)full->memory_bytes)
            full = &m->classes[i];
    if (!m->no_flops && !m->no_peak)
        tile(out, a, arena_printf(a, "%.1f %%", 100 * m->mfu),
             arena_printf(a, "MFU (HFU %.1f %%) of %s, %lld devices", 100 * m->hfu,
                          units_print_flops(peak, m->peak_flops), (long long)m->devices));
    if (m->n_classes)
        tile(out, a, units_print_bytes(peak, (double)full->peak_bytes),
             arena_printf(a, "of %s: the fullest device (%s)",
                          units_print_capacity(limit, (double)full->memory_bytes), full->type));
}

static void write_run_tiles(FILE *out, struct arena *a, const struct metrics *m)
{
    char count[32];
    const char *unit = m->listed ? " USD" : "",
               *prices = m->listed ? "at the catalogue's prices" : "at the cluster's prices";
    if (!m->no_price && m->cost > 0)
        tile(out, a, arena_printf(a, "%.4g%s", m->cost, unit),
             arena_printf(a, "an iteration, %s", prices));
    if (!m->run.tokens) return;
    tile(out, a, arena_printf(a, "%.3g days", m->run.days),
         arena_printf(a, "for %s %s, without failures",
                      units_print_count(count, (double)m->run.tokens),
                      m->images ? "images" : "tokens"));
    if (!m->no_price)
        tile(out, a, arena_printf(a, "%s%s", outcome_number(count, m->run.cost), unit),
             "cost of the run");
    if (!m->no_power)
        tile(out, a, arena_printf(a, "%.4g MWh", m->run.kwh / 1000), "energy of the run, GPUs only");
}

static void write_tiles(FILE *out, struct arena *a, const struct report *r,
                        const struct report_plan *x)
{
    char text[32];
    const struct outcome *o = &x->outcome;
    fputs("<div class=\"tiles\">\n", out);
    tile(out, a, units_print_ns(text, x->told.result.iteration_ns), "an iteration, predicted");
    if (o->rate.tokens_per_s > 0)
        tile(out, a, outcome_number(text, o->rate.tokens_per_s), "tokens/s");
    else
        tile(out, a, outcome_number(text, o->rate.samples_per_s), "images/s");
    if (!x->metrics.failed) write_use_tiles(out, a, &x->metrics);
    if (!x->metrics.failed) write_run_tiles(out, a, &x->metrics);
    if (isfinite(o->gap))
        tile(out, a, arena_printf(a, "%.1f %%", 100 * o->gap), "above the lower bound, at most");
    if (r->n_plans > 1) {
        double best = INFINITY;
        for (int32_t i = 0; i < r->n_plans; i++) best = fmin(best, r->plans[i].outcome.iteration_s);
        tile(out, a, arena_printf(a, "%.2f ×", o->iteration_s / best), "the fastest plan's time");
    }
    fputs("</div>\n", out);
}

static void write_nav(FILE *out, struct arena *a, const struct report *r)
{
    fputs("<nav><a href=\"#question\">Question</a><a href=\"#alternatives\">Alternatives</a>", out);
    for (int32_t i = 0; i < r->n_plans; i++) {
        fprintf(out, "<a href=\"#%s\">", r->plans[i].id);
        html_text(out, a, arena_printf(a, "Plan %s", r->plans[i].label));
        fputs("</a>", out);
    }
    fputs("<a href=\"#assumptions\">Assumptions</a></nav>\n", out);
}

static enum status write_plan(FILE *out, struct arena *a, const struct report *r,
                              const struct report_plan *x, struct error *err)
{
    html_section(out, a, x->id, arena_printf(a, "Plan %s", x->label),
                 arena_printf(a, "Predicted with %s.", common_profile_label(a, r->profile)));
    write_tiles(out, a, r, x);
    layout_write(out, a, x);
    charts_timeline(out, a, x);
    charts_memory(out, a, x);
    usage_write(out, a, x);
    TRY(sensitivity_write(out, a, x, err));
    html_section_end(out);
    return OK;
}

enum status report_write(FILE *out, struct arena *a, const struct report *r, struct error *err)
{
    const struct plan *first = &r->plans[0].plan;
    html_begin(out, a, arena_printf(a, "%s on %s", first->job.model.name, first->cluster.name));
    write_nav(out, a, r);
    question_write(out, a, r);
    alternatives_write(out, a, r);
    for (int32_t i = 0; i < r->n_plans; i++) TRY(write_plan(out, a, r, &r->plans[i], err));
    assumptions_write(out, a, r);
    html_end(out);
    return OK;
}
