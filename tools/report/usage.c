/* Where the time goes: busy, and waits by their kind (sim/engine/sim.h); by device type and by class. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "tools/report/html.h"
#include "tools/report/report.h"

#include <string.h>

enum { USE_BUSY = SIM_WAIT_COUNT, USE_COUNT };
static const struct {
    const char *colour, *title;
} uses[USE_COUNT] = {
    [SIM_WAIT_messages] = {"#E69F00", "messages: exposed, under way"},
    [SIM_WAIT_collectives] = {"#D55E00", "collectives: exposed, under way"},
    [SIM_WAIT_bubble] = {"#999999", "bubble: the pipeline fills or drains"},
    [SIM_WAIT_imbalance] = {"#56B4E9", "imbalance: another device is later"},
    [USE_BUSY] = {"#009E73", "busy: operators"}};

enum { ROWS_SHOWN = 32 };

/* Adds a device's nanoseconds, as often as the plan has it. */
static void add(const struct report_plan *x, int32_t device, double *ns)
{
    const struct explain_device *d = &x->why.devices[device];
    double weight = (double)x->weight[device];
    ns[USE_BUSY] += weight * (double)d->busy_ns;
    for (int w = 0; w < SIM_WAIT_COUNT; w++) ns[w] += weight * (double)d->wait_ns[w];
}

static void write_row(FILE *out, struct arena *a, const char *name, const double *ns, double peak,
                      double memory)
{
    char text[32], limit[64];
    struct html_part parts[USE_COUNT];
    double all = 0;
    for (int u = 0; u < USE_COUNT; u++) all += ns[u];
    if (!(all > 0)) return;
    for (int k = 0; k < USE_COUNT; k++) {
        int u = k ? k - 1 : USE_BUSY; /* busy first */
        parts[k] = (struct html_part){uses[u].colour, uses[u].title, ns[u] / all};
    }
    double exposed = (ns[SIM_WAIT_messages] + ns[SIM_WAIT_collectives]) / all,
           idle = (ns[SIM_WAIT_bubble] + ns[SIM_WAIT_imbalance]) / all;
    html_row(out);
    html_cell(out, a, name, false);
    html_cell_open(out);
    html_bar(out, a, parts, USE_COUNT);
    html_cell_end(out);
    html_cell(out, a, arena_printf(a, "%.1f %%", 100 * ns[USE_BUSY] / all), true);
    html_cell(out, a, arena_printf(a, "%.1f %%", 100 * exposed), true);
    html_cell(out, a, arena_printf(a, "%.1f %%", 100 * idle), true);
    html_cell(out, a,
              arena_printf(a, "%s of %s", units_print_bytes(text, peak),
                           units_print_capacity(limit, memory)),
              true);
    html_row_end(out);
}

static void write_types(FILE *out, struct arena *a, const struct report_plan *x)
{
    const struct program *p = x->told.explained;
    const struct cluster *c = &x->plan.cluster;
    for (int32_t t = 0; t < c->n_types; t++) {
        double ns[USE_COUNT] = {0};
        int64_t devices = 0, peak = 0;
        for (int32_t d = 0; d < p->n_devices; d++) {
            if (strcmp(p->devices[d].type, c->types[t].name) != 0) continue;
            add(x, d, ns);
            devices += x->weight[d];
            peak = units_max(peak, x->told.explained_result.devices[d].peak_bytes);
        }
        write_row(out, a, arena_printf(a, "%s (%lld in use)", c->types[t].name, (long long)devices),
                  ns, (double)peak, (double)c->types[t].memory_bytes);
    }
}

static void write_classes(FILE *out, struct arena *a, const struct report_plan *x)
{
    int32_t n = x->line.n_rows < ROWS_SHOWN ? x->line.n_rows : ROWS_SHOWN;
    for (int32_t i = 0; i < n; i++) {
        double ns[USE_COUNT] = {0};
        int32_t row = (int32_t)((int64_t)i * x->line.n_rows / n);
        int32_t device = x->line.rows[row].device;
        add(x, device, ns);
        write_row(out, a, x->line.rows[row].label, ns,
                  (double)x->told.explained_result.devices[device].peak_bytes,
                  (double)x->told.explained->devices[device].memory_bytes);
    }
}

/* The critical path by kind of activity. */
static void write_path(FILE *out, struct arena *a, const struct report_plan *x)
{
    static const char *const heads[] = {"Critical path", "#Time", "#Share"};
    char text[32];
    html_table(out, a, heads, 3);
    for (int k = 0; k < EXPLAIN_KIND_COUNT; k++) {
        if (!x->why.kind_ns[k]) continue;
        html_row(out);
        html_cell(out, a, explain_kind_name((enum explain_kind)k), false);
        html_cell(out, a, units_print_ns(text, x->why.kind_ns[k]), true);
        html_cell(out, a,
                  arena_printf(a, "%.1f %%",
                               100 * (double)x->why.kind_ns[k] / (double)x->why.iteration_ns),
                  true);
        html_row_end(out);
    }
    html_table_end(out);
}

void usage_write(FILE *out, struct arena *a, const struct report_plan *x)
{
    static const char *const heads[] = {"Devices", "Time of an iteration", "#Busy",       "#Exposed",
                                        "#Idle",   "#Peak memory"};
    fputs("<h3>Where the time goes</h3>\n", out);
    html_paragraph(
        out, a, "soft",
        arena_printf(
            a,
            "Exposed: the device waits for a message or a collective that is under way. Idle: "
            "bubble and imbalance, waits for what another device has not issued yet.%s",
            x->told.by_replicas
                ? " One replica of each class was explained, without the traffic of the others."
                : ""));
    html_legend_begin(out);
    for (int u = 0; u < USE_COUNT; u++) html_legend(out, a, uses[u].colour, uses[u].title);
    html_legend_end(out);
    html_table(out, a, heads, 6);
    write_types(out, a, x);
    write_classes(out, a, x);
    html_table_end(out);
    write_path(out, a, x);
}
