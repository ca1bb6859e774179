/* tests/validate/harp_cases.c - reads HARP's cases and its bandwidth sweep from their files, and simulates them. */
#include "core/base/arena.h"
#include "core/base/units.h"
#include "sim/pipeline/static.h"
#include "tools/common.h"
#include "tools/team/edit.h"
#include "tests/validate/harp.h"

#include <math.h>
#include <string.h>

const enum schedule_kind HARP_RULE[HARP_RULES] = {SCHEDULE_1F1B, SCHEDULE_EAGER,
                                                  SCHEDULE_H1F1B_PUBLISHED, SCHEDULE_H1F1B};
const char *const HARP_RULE_NAME[HARP_RULES] = {"1f1b", "eager-1f1b", "h-1f1b-published", "h-1f1b"};

/* --- rows --- */

/* Splits a text at bars; returns the number of pieces. */
static int32_t parts(struct arena *a, const char *text, const char *out[HARP_STAGES_MAX])
{
    int32_t n = 0;
    for (char *at = arena_strdup(a, text), *bar; at && n < HARP_STAGES_MAX; at = bar) {
        bar = strchr(at, '|');
        if (bar) *bar++ = 0;
        out[n++] = at;
    }
    return n;
}

static enum status row_error(const struct csv *c, int32_t row, const char *column,
                             struct error *err)
{
    return error_set(err, ERR_INPUT,
                     "%s:%d: %s: '%.60s': expected one for each stage, between bars", c->file,
                     (int)c->line[row], column, csv_text(c, row, column));
}

static enum status numbers(struct arena *a, const struct csv *c, int32_t row, const char *column,
                           int32_t n, double *out, struct error *err)
{
    const char *text[HARP_STAGES_MAX];
    if (parts(a, csv_text(c, row, column), text) != n) return row_error(c, row, column, err);
    for (int32_t i = 0; i < n; i++)
        if (!units_parse_number(text[i], &out[i])) return row_error(c, row, column, err);
    return OK;
}

/* HARP's layers equal ours (a prologue, two a block), except that its epilogue contains all our layers behind the last block. */
static enum status read_published(struct arena *a, const struct csv *c, int32_t row,
                                  struct harp_case *out, bool *own_warmup, struct error *err)
{
    struct harp_pipeline *p = &out->published;
    const char *node[HARP_STAGES_MAX];
    double layers[HARP_STAGES_MAX], warmup[HARP_STAGES_MAX];
    p->n = parts(a, csv_text(c, row, "nodes"), node);
    TRY(numbers(a, c, row, "layers", p->n, layers, err));
    TRY(numbers(a, c, row, "peak_GB", p->n, out->peak_GB, err));
    *own_warmup = *csv_text(c, row, "warmup") != 0;
    if (*own_warmup) TRY(numbers(a, c, row, "warmup", p->n, warmup, err));
    for (int32_t s = 0, last = -1; s < p->n; s++) {
        last += (int32_t)layers[s];
        p->node[s] = team_node(&out->team.cluster, node[s]);
        p->last[s] = s + 1 < p->n ? last : out->team.n_layers - 1;
        p->warmup[s] = *own_warmup ? (int32_t)warmup[s] : 0;
        if (p->node[s] < 0 || layers[s] < 1 || last >= out->team.n_layers ||
            (*own_warmup && warmup[s] < 1))
            return row_error(c, row, p->node[s] < 0 ? "nodes" : "layers", err);
    }
    return OK;
}

/* With the operator fusion of HARP's framework, as in the stage costs (harp_model.c). */
static enum status simulate(struct arena *a, struct harp_case *x, struct error *err)
{
    struct lower_options lower = {.check_memory = true};
    struct plan plan;
    struct program program;
    struct sim_result r;
    struct sim_options o = {.detail = SIM_STAGE, .fold = true};
    memset(x->peak_bytes, 0, sizeof x->peak_bytes);
    harp_model_plan(a, &x->team, &x->published, &plan);
    published_fused(&lower);
    TRY(lower_plan(a, &plan, &lower, &program, err));
    TRY(sim_run(a, &program, cost_new(a, &x->team.profile, &plan.cluster), &o, &r, err));
    x->iteration_ns = r.iteration_ns;
    for (int32_t i = 0; i < program.n_stages; i++) { /* a stage of the program is one GPU's */
        int64_t peak = r.devices[program.stages[i].device].peak_bytes;
        int64_t *most = &x->peak_bytes[program.stages[i].stage];
        if (peak > *most) *most = peak;
    }
    return OK;
}

static enum status at_pace(struct arena *a, const struct csv *c, int32_t row, double pace,
                           struct harp_case *x, struct error *err)
{
    bool own_warmup;
    const char *shared = csv_text(c, row, "shared");
    enum harp_sharing how = strcmp(shared, "operators") ? HARP_SEQUENCES : HARP_OPERATORS;
    if (how == HARP_SEQUENCES && strcmp(shared, "sequences") != 0)
        return error_set(err, ERR_INPUT, "%s:%d: shared: '%.60s': expected operators or sequences",
                         c->file, (int)c->line[row], shared);
    TRY(harp_team_read(a, x->job, x->cluster, how, pace, &x->team, err));
    TRY(read_published(a, c, row, x, &own_warmup, err));
    TRY(harp_model_time(a, &x->team, SCHEDULE_H1F1B_PUBLISHED, own_warmup, &x->published, err));
    return simulate(a, x, err);
}

/* The pace for which the simulated time equals the measured one; the secant method, because time is nearly linear in the pace. */
static enum status fit_pace(struct arena *a, const struct csv *c, double *pace, struct harp_case *x,
                            struct error *err)
{
    *pace = 1;
    for (int i = 0; i < 8; i++) {
        TRY(at_pace(a, c, 0, *pace, x, err));
        double ratio = x->measured_s / (1e-9 * (double)x->iteration_ns);
        if (fabs(ratio - 1) < 1e-6) break;
        *pace *= ratio;
    }
    return OK;
}

static int32_t apart(const struct harp_pipeline *x, const struct harp_pipeline *y)
{
    int32_t most = 0;
    for (int32_t s = 0; s < x->n; s++) {
        int32_t nx = x->last[s] - (s ? x->last[s - 1] : -1),
                ny = y->last[s] - (s ? y->last[s - 1] : -1), d = nx > ny ? nx - ny : ny - nx;
        if (d > most) most = d;
    }
    return most;
}

/* The cluster file lists the nodes in the order of the case's plan. */
static enum status best_of_class(struct arena *a, const struct csv *c, int32_t row,
                                 struct harp_case *x, struct error *err)
{
    for (int32_t s = 0; s < x->published.n; s++)
        if (x->published.node[s] != s || x->published.n != x->team.cluster.n_nodes)
            return error_set(err, ERR_INPUT, "%s:%d: nodes: expected all of %s in its order",
                             c->file, (int)c->line[row], x->cluster);
    struct harp_class class = {.rule = SCHEDULE_H1F1B_PUBLISHED};
    TRY(harp_model_search(a, &x->team, &class, &x->best, err));
    x->apart = apart(&x->best.best, &x->published);
    return OK;
}

enum status harp_cases_read(struct arena *a, const char *folder, struct harp_cases *out,
                            struct error *err)
{
    struct csv c;
    TRY(csv_read(a, arena_printf(a, "%s/cases.csv", folder), &c, err));
    if (!c.n_rows) return error_set(err, ERR_INPUT, "%s: no cases", c.file);
    *out = (struct harp_cases){.n = c.n_rows};
    out->cases = ARENA_ARRAY(a, struct harp_case, (size_t)c.n_rows);
    for (int32_t i = 0; i < c.n_rows; i++) {
        struct harp_case *x = &out->cases[i];
        x->name = csv_text(&c, i, "case");
        x->job = arena_printf(a, "%s/%s", folder, csv_text(&c, i, "job"));
        x->cluster = arena_printf(a, "%s/%s", folder, csv_text(&c, i, "cluster"));
        TRY(csv_number(&c, i, "seconds", &x->measured_s, err));
        if (i == 0)
            TRY(fit_pace(a, &c, &out->pace, x, err));
        else
            TRY(at_pace(a, &c, i, out->pace, x, err));
        TRY(best_of_class(a, &c, i, x, err));
    }
    return OK;
}

/* --- the sweep --- */

/* HARP's 2.6B plan (from its logs): seconds of a microbatch on each stage, a quarter of them forward; bytes across a cut; and
 * link latencies, which occupy the link as its bytes do. */
static const double sweep_s[] = {0.3928, 0.3777, 0.3849};
static const double sweep_bytes = 83.9e6, sweep_latency_s[] = {1e-3, 0.2e-3};
enum { SWEEP_STAGES = 3, SWEEP_MICROBATCHES = 64 };

static enum status sweep_one(struct arena *a, double Gbps, enum schedule_kind rule, int64_t *out,
                             struct error *err)
{
    struct pipeline_stage stages[SWEEP_STAGES] = {0};
    struct pipeline_link links[SWEEP_STAGES] = {0};
    struct pipeline p = {
        .n_devices = SWEEP_STAGES, .n_stages = SWEEP_STAGES, .stages = stages, .links = links};
    double transfer[SWEEP_STAGES];
    struct schedule s;
    struct static_timer *t;
    for (int i = 0; i < SWEEP_STAGES; i++) {
        stages[i].forward_ns = units_ns_from_s(sweep_s[i] / 4);
        stages[i].fused_ns = units_ns_from_s(sweep_s[i] * 3 / 4);
    }
    for (int i = 0; i + 1 < SWEEP_STAGES; i++) {
        transfer[i] = sweep_bytes * 8 / (Gbps * 1e9) + sweep_latency_s[i];
        links[i].occupancy_ns[0] = links[i].occupancy_ns[1] = units_ns_from_s(transfer[i]);
    }
    struct schedule_spec spec = {.kind = rule,
                                 .n_devices = SWEEP_STAGES,
                                 .n_microbatches = SWEEP_MICROBATCHES,
                                 .time = sweep_s,
                                 .transfer = transfer};
    TRY(schedule_make(a, &spec, &s, err));
    TRY(static_new(a, &s, &t, err));
    if (!static_time(t, &p, out)) BUG("one chunk per device contends");
    return OK;
}

enum status harp_sweep_read(struct arena *a, const char *folder, int32_t *n,
                            struct harp_sweep **out, struct error *err)
{
    struct csv c;
    TRY(csv_read(a, arena_printf(a, "%s/sweep.csv", folder), &c, err));
    *n = c.n_rows;
    *out = ARENA_ARRAY(a, struct harp_sweep, (size_t)c.n_rows);
    for (int32_t i = 0; i < c.n_rows; i++) {
        struct harp_sweep *x = &(*out)[i];
        TRY(csv_number(&c, i, "Gbps", &x->Gbps, err));
        if (!(x->Gbps > 0))
            return error_set(err, ERR_INPUT, "%s:%d: Gbps: expected more than 0", c.file,
                             (int)c.line[i]);
        for (int k = 0; k < HARP_RULES; k++) {
            TRY(csv_number(&c, i, HARP_RULE_NAME[k], &x->published_s[k], err));
            TRY(sweep_one(a, x->Gbps, HARP_RULE[k], &x->simulated_ns[k], err));
        }
    }
    return OK;
}
