/* The question: what is trained, on what. */
#include "core/base/arena.h"
#include "core/base/ranges.h"
#include "core/base/units.h"
#include "tools/common.h"
#include "tools/print/links.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <string.h>

enum { RUNS_SHOWN = 6 };

static void fact(FILE *out, struct arena *a, const char *name, const char *value)
{
    html_row(out);
    html_cell(out, a, name, false);
    html_cell(out, a, value, false);
    html_row_end(out);
}

static void write_job(FILE *out, struct arena *a, const struct job *j)
{
    static const char *const heads[] = {"Job", ""};
    const struct model *m = &j->model;
    char bytes[32], number[32];
    int64_t parameters = model_parameters(m);
    const char *sizes = "chosen by the planner";
    for (int32_t i = 0; i < j->n_microbatches_sizes; i++)
        sizes = arena_printf(a, "%s%s%lld", i ? sizes : "", i ? ", " : "",
                             (long long)j->microbatch_sizes[i]);
    html_table(out, a, heads, 2);
    fact(out, a, "Model", arena_printf(a, "%s (%s)", m->name, m->family));
    fact(out, a, "Parameters",
         arena_printf(a, "%s, %s in %s", outcome_number(number, (double)parameters),
                      units_print_bytes(bytes, (double)(parameters * dtype_bytes(j->precision))),
                      dtype_name(j->precision)));
    if (m->experts) {
        fact(out, a, "Active parameters per token",
             outcome_number(number, (double)model_active_parameters(m)));
        fact(out, a, "Experts",
             arena_printf(a, "%lld of %lld a layer for one token", (long long)m->chosen,
                          (long long)m->experts));
    }
    if (model_pixels(m))
        fact(out, a, "Step", arena_printf(a, "%lld images", (long long)j->global_batch));
    else
        fact(out, a, "Step",
             arena_printf(a, "%lld sequences of %lld tokens", (long long)j->global_batch,
                          (long long)j->sequence_length));
    fact(out, a, "Microbatch sizes allowed", sizes);
    fact(out, a, "Optimizer", optimizer_name(j->optimizer.kind));
    html_table_end(out);
}

/* Devices of a type: their number and their nodes. */
static void write_type(FILE *out, struct arena *a, const struct cluster *c, int32_t type,
                       bool priced)
{
    const struct device_type *t = &c->types[type];
    const char **nodes = ARENA_ARRAY(a, const char *, (size_t)c->n_nodes + 1);
    int64_t devices = 0;
    size_t n = 0;
    char memory[64];
    for (int32_t i = 0, last = -1; i < c->n_devices; i++) {
        if (c->devices[i].type != type) continue;
        devices++;
        if (c->devices[i].node != last) nodes[n++] = c->nodes[c->devices[i].node].name;
        last = c->devices[i].node;
    }
    if (!devices) return;
    html_row(out);
    html_cell_open(out);
    fprintf(out, "<span class=\"legend\"><span><i style=\"background:%s\"></i>",
            report_type_colour(type));
    html_text(out, a, t->name);
    fputs("</span></span>", out);
    html_cell_end(out);
    html_cell(out, a,
              t->slowdown > 0
                  ? arena_printf(a, "%s, %g times slower (emulated)", t->catalogue, t->slowdown)
                  : t->catalogue,
              false);
    html_cell(out, a, arena_printf(a, "%lld", (long long)devices), true);
    html_cell(out, a, arena_printf(a, "%zu: %s", n, ranges_of_names(a, nodes, n, RUNS_SHOWN)),
              false);
    html_cell(out, a, units_print_capacity(memory, (double)t->memory_bytes), true);
    if (priced)
        html_cell(out, a, t->priced ? arena_printf(a, "%g/h", t->price_per_h) : "-", true);
    html_row_end(out);
}

static void write_cluster(FILE *out, struct arena *a, const struct cluster *c)
{
    static const char *const heads[] = {"Device type", "Catalogue",    "#Devices",
                                        "Nodes",       "#Memory each", "#Price each"},
                             *const links[] = {"Links", "Between", "Bandwidth, latency", "#Number"};
    struct print_class *x;
    bool priced = false;
    for (int32_t t = 0; t < c->n_types; t++) priced |= c->types[t].priced;
    fputs("<h3>", out);
    html_text(out, a,
              arena_printf(a, "Cluster %s: %d devices%s", c->name, (int)c->n_devices,
                           c->emulated ? ", emulated" : ""));
    fputs("</h3>\n", out);
    html_table(out, a, heads, priced ? 6 : 5);
    for (int32_t t = 0; t < c->n_types; t++) write_type(out, a, c, t, priced);
    html_table_end(out);
    int32_t n = links_classes(a, c, false, &x);
    if (!n) return;
    html_table(out, a, links, 4);
    for (int32_t i = 0; i < n; i++) {
        html_row(out);
        html_cell(out, a, x[i].names, false);
        html_cell(out, a, links_ends(a, c, &x[i]), false);
        html_cell(out, a, x[i].text, false);
        html_cell(out, a, arena_printf(a, "%d", (int)x[i].n), true);
        html_row_end(out);
    }
    html_table_end(out);
}

void question_write(FILE *out, struct arena *a, const struct report *r)
{
    html_section(out, a, "question", "Question", NULL);
    write_job(out, a, &r->plans[0].plan.job);
    for (int32_t i = 0; i < r->n_plans; i++)
        if (!i || !r->plans[i].same_cluster) write_cluster(out, a, &r->plans[i].plan.cluster);
    html_section_end(out);
}
