#include "tools/validate/plans.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "core/lower/lower.h"
#include "core/model/measured.h"
#include "profiles/measured.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "sim/engine/sim.h"
#include "tools/csv.h"
#include "tools/import/sailor_tables.h"
#include "tools/validate/row.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 64, CSV_MAX = 1 << 26 };

/* --- the file -------------------------------------------------------------------------------- */

/* clang-format off */
#define COLUMNS(X) \
    X(model) X(set) X(file) X(nodes) X(pp) X(dp) X(tp) X(mbs) X(gbs) X(layers_per_stage) X(gpu_per_stage_replica) \
    X(real_s_main) X(real_s_other) X(max_mem_bytes_main) X(max_mem_bytes_other)
/* clang-format on */
enum column {
#define X(name) COLUMN_##name,
    COLUMNS(X)
#undef X
        COLUMN_COUNT
};
static const char *const column_names[] = {
#define X(name) #name,
    COLUMNS(X)
#undef X
};

struct table {
    const char *path;
    int at[COLUMN_COUNT]; /* field of the column, -1 */
};

static const char *field(const struct table *t, char *const *fields, enum column c)
{
    return t->at[c] < 0 ? "" : fields[t->at[c]];
}

static enum status read_head(struct table *t, char **text, int *n, struct error *err)
{
    static const enum column needed[] = {COLUMN_tp, COLUMN_mbs, COLUMN_gbs, COLUMN_layers_per_stage,
                                         COLUMN_gpu_per_stage_replica};
    char *fields[FIELDS_MAX];
    if (!strncmp(*text, "\xef\xbb\xbf", 3)) *text += 3;
    *n = csv_split(text, fields, FIELDS_MAX);
    for (int c = 0; c < COLUMN_COUNT; c++) {
        t->at[c] = -1;
        for (int i = 0; i < *n; i++)
            if (!strcmp(fields[i], column_names[c])) t->at[c] = i;
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (t->at[needed[i]] < 0)
            return error_set(err, ERR_INPUT, "%s:1: no column '%s'", t->path,
                             column_names[needed[i]]);
    if (t->at[COLUMN_model] < 0 && t->at[COLUMN_set] < 0)
        return error_set(err, ERR_INPUT, "%s:1: no column 'model', and none 'set' that names it",
                         t->path);
    return OK;
}

/* Notes a prediction that extrapolates measured rows. */
static void note_reach(struct row_plan *r)
{
    for (int32_t i = 0; i < r->n_replicas * r->n_stages; i++) {
        const struct spot *s = &r->spots[i];
        const struct device_type *t = &r->plan.cluster.types[s->type];
        for (int32_t k = 0; k < r->model->layers; k++) {
            int64_t row = op_measured_row(r->model->name, r->model->measured->layers[k].cost);
            enum measured_reach reach =
                measured_reach(r->profile, t->catalogue, s->tp, row, r->microbatch);
            if (reach != MEASURED_BEYOND && reach != MEASURED_BETWEEN) continue;
            r->note = arena_printf(r->a, "microbatch %" PRId64 " was not measured on %s x%" PRId32 ": %s",
                                   r->microbatch, s->gpu, s->tp,
                                   reach == MEASURED_BEYOND ? "extrapolated" : "interpolated");
            return;
        }
    }
}

/* Sum of the layer times of one step; the time of a plan without messages is close to it. */
static double layers_seconds(const struct row_plan *r, const struct program *p, struct cost *k,
                             struct error *err)
{
    double sum = 0;
    for (int32_t i = 0; i < p->stages[0].n_ops; i++) {
        const struct program_op *op = &p->stages[0].ops[i];
        int64_t ns = 0;
        if (op->phase == PHASE_U || cost_op(k, p->devices[0].type_index, op, &ns, err) != OK)
            continue;
        sum += units_s_from_ns(ns) * (double)r->plan.replicas[0].microbatches;
    }
    return sum;
}

static enum status predict(struct row_plan *r, struct validated_row *out, struct error *err)
{
    struct lower_options o = {0};
    struct program program;
    struct sim_result result;
    TRY(team_fused(r->a, &r->plan.cluster, &o, err));
    TRY(lower_plan(r->a, &r->plan, &o, &program, err));
    struct cost *k = cost_new(r->a, r->profile, &r->plan.cluster);
    struct sim_options options = {0};
    TRY(sim_run(r->a, &program, k, &options, &result, err));
    out->seconds = units_s_from_ns(result.iteration_ns);
    for (int32_t i = 0; i < program.n_devices; i++)
        if (result.devices[i].peak_bytes > out->bytes) out->bytes = result.devices[i].peak_bytes;
    if (r->n_stages == 1 && r->n_replicas == 1)
        out->profile_s = layers_seconds(r, &program, k, err);
    note_reach(r);
    if (r->nodes && r->nodes != r->plan.cluster.n_nodes && !r->note)
        r->note = arena_printf(r->a, "nodes is %" PRId64 ", predicted on the %" PRId32 " they fill",
                               r->nodes, r->plan.cluster.n_nodes);
    for (int32_t i = 0; i < program.n_devices && !r->note; i++)
        if (result.devices[i].peak_bytes > program.devices[i].memory_bytes)
            r->note =
                arena_printf(r->a, "needs more memory than a %s has", program.devices[i].type);
    out->note = r->note;
    return OK;
}

/* --- all rows -------------------------------------------------------------------------------- */

static double mean_of(const double *x)
{
    if (x[VALIDATED_MAIN] > 0 && x[VALIDATED_OTHER] > 0)
        return (x[VALIDATED_MAIN] + x[VALIDATED_OTHER]) / 2;
    return x[VALIDATED_MAIN] > 0 ? x[VALIDATED_MAIN] : x[VALIDATED_OTHER];
}

static void read_measured(struct validated_row *row, const struct table *t, char *const *f)
{
    const struct {
        enum column column;
        double *out;
    } wanted[] = {{COLUMN_real_s_main, &row->measured_s[VALIDATED_MAIN]},
                  {COLUMN_real_s_other, &row->measured_s[VALIDATED_OTHER]},
                  {COLUMN_max_mem_bytes_main, &row->measured_bytes[VALIDATED_MAIN]},
                  {COLUMN_max_mem_bytes_other, &row->measured_bytes[VALIDATED_OTHER]}};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        double value = 0;
        if (units_parse_number(field(t, f, wanted[i].column), &value) && value > 0)
            *wanted[i].out = value;
    }
    row->measured_s[VALIDATED_MEAN] = mean_of(row->measured_s);
    row->measured_bytes[VALIDATED_MEAN] = mean_of(row->measured_bytes);
}

/* A plan without messages takes the sum of its layers' times; a deviation means that profile and run disagree. */
static void note_contradiction(struct arena *a, struct validated_row *row)
{
    const double noticeable = 0.1;
    double measured = row->measured_s[VALIDATED_MEAN], off = row->profile_s / measured - 1;
    if (!(row->profile_s > 0) || !(measured > 0)) return;
    double main = row->profile_s / row->measured_s[VALIDATED_MAIN] - 1;
    if (fabs(off) < noticeable && !(fabs(main) >= noticeable)) return;
    row->note = arena_printf(
        a, "contradicted by the profile: its layers alone take %.4g s, %+.1f %% of the mean run",
        row->profile_s, 100 * off);
}

static enum status validate_row(struct arena *a, const struct row_plan *shared,
                                const struct table *t, char *const *f, int n, int line,
                                struct validated_row *row)
{
    struct row_plan r = *shared;
    struct error why = {0};
    struct arena *own =
        arena_new(); /* for the row's plan and program, which are large and freed with the row */
    *row = (struct validated_row){.line = line};
    r.a = own;
    for (int c = 0; c < COLUMN_COUNT; c++)
        if (t->at[c] >= n) {
            row->name = arena_printf(a, "line %d", line);
            row->why = arena_printf(a, "has %d fields, column '%s' is missing", n, column_names[c]);
            arena_free(own);
            return OK;
        }
    const char *name = field(t, f, COLUMN_file);
    row->name = *name ? arena_strdup(a, name) : arena_printf(a, "line %d", line);
    read_measured(row, t, f);
#define X(name) field(t, f, COLUMN_##name)
    const struct row_text words = {X(model),
                                   X(set),
                                   X(nodes),
                                   X(pp),
                                   X(dp),
                                   X(tp),
                                   X(mbs),
                                   X(gbs),
                                   X(layers_per_stage),
                                   X(gpu_per_stage_replica)};
#undef X
    enum status st = row_plan_make(&r, &words, row->name, &why);
    if (st == OK) st = predict(&r, row, &why);
    if (row->note) row->note = arena_strdup(a, row->note);
    arena_free(own);
    if (st == OK) note_contradiction(a, row);
    if (st == ERR_INPUT || st == ERR_INFEASIBLE) row->why = arena_strdup(a, why.text);
    return st == ERR_INPUT || st == ERR_INFEASIBLE ? OK : st;
}

/* --- models and profile ---------------------------------------------------------------------- */

static int by_name(const void *x, const void *y)
{
    return strcmp(*(const char *const *)x, *(const char *const *)y);
}

static enum status read_models(struct arena *a, const char *folder, struct row_plan *r,
                               struct error *err)
{
    static const char ending[] = ".layers.json";
    const char **names = NULL;
    size_t n = 0, capacity = 0;
    DIR *d = opendir(folder);
    if (!d) return error_set(err, ERR_INPUT, "cannot read folder '%s'", folder);
    for (const struct dirent *e; (e = readdir(d));) {
        size_t length = strlen(e->d_name);
        if (length < sizeof ending || strcmp(e->d_name + length - sizeof ending + 1, ending) != 0)
            continue;
        names = arena_grow(a, names, n, &capacity, sizeof *names);
        names[n++] = arena_strdup(a, e->d_name);
    }
    closedir(d);
    if (!n)
        return error_set(
            err, ERR_INPUT,
            "no *%s in '%s': musher import sailor writes them; --models names their folder", ending,
            folder);
    qsort(names, n, sizeof *names, by_name);
    struct model *models = ARENA_ARRAY(a, struct model, n);
    for (size_t i = 0; i < n; i++) {
        struct node *root;
        const char *name = arena_strndup(a, names[i], strlen(names[i]) - sizeof ending + 1);
        TRY(document_read(a, arena_printf(a, "%s/%s", folder, names[i]), &root, err));
        TRY(model_parse(a, root, name, &models[i], err));
        if (!models[i].measured)
            return error_set(err, ERR_INPUT, "%s/%s: not a table of measured layers", folder,
                             names[i]);
    }
    r->models = models, r->n_models = (int32_t)n;
    return OK;
}

static enum status read_profile(struct arena *a, const char *db, struct profile *out,
                                struct error *err)
{
    struct store *s = NULL;
    struct cluster none = {.name = SAILOR_CLUSTER};
    int64_t id = 0;
    bool exact;
    enum status st = store_open(a, db, false, &s, err);
    if (st == OK) st = store_latest(s, rng_hash_text(0, SAILOR_CLUSTER), &none, &id, &exact, err);
    if (st == OK) st = store_load(s, a, id, out, err);
    store_close(s);
    return st;
}

enum status validate_plans(struct arena *a, const char *csv, const char *db, const char *models,
                           struct validated_row **out, struct validated_summary *summary,
                           struct error *err)
{
    struct table t = {.path = csv};
    struct profile profile;
    struct row_plan shared = {.profile = &profile};
    struct validated_row *rows = NULL;
    size_t n = 0, capacity = 0;
    char *text;
    int columns, line = 1;
    TRY(file_read(a, csv, CSV_MAX, &text, NULL, err));
    TRY(read_head(&t, &text, &columns, err));
    TRY(read_profile(a, db, &profile, err));
    TRY(read_models(a, models, &shared, err));
    while (*text) {
        char *fields[FIELDS_MAX];
        line++;
        int found = csv_split(&text, fields, FIELDS_MAX);
        if (found < 0)
            return error_set(err, ERR_INPUT,
                             "%s:%d: more than %d fields, or a quote that does not end", csv, line,
                             FIELDS_MAX);
        if (found == 1 && !*fields[0]) continue;
        rows = arena_grow(a, rows, n, &capacity, sizeof *rows);
        TRY(validate_row(a, &shared, &t, fields, found, line, &rows[n++]));
    }
    if (!n) return error_set(err, ERR_INPUT, "%s has no rows", csv);
    validated_sum_up(a, rows, (int32_t)n, summary);
    *out = rows;
    return OK;
}
