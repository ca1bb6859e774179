#include "tools/validate_plans.h"

#include "core/arena.h"
#include "core/document.h"
#include "core/file.h"
#include "core/lower.h"
#include "core/model_measured.h"
#include "core/rng.h"
#include "core/units.h"
#include "profiles/catalogue.h"
#include "profiles/measured.h"
#include "profiles/store.h"
#include "profiles/team.h"
#include "sim/sim.h"
#include "tools/sailor.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MOST = 64, STAGES_MOST = 256, CSV_MOST = 1 << 26, REPLICAS_MOST = 512 };

/* --- the file -------------------------------------------------------------------------------- */

#define COLUMNS(X)                                                                                 \
    X(model)                                                                                       \
    X(set)                                                                                         \
    X(file) X(nodes) X(pp) X(dp) X(tp) X(mbs) X(gbs) X(layers_per_stage) X(gpu_per_stage_replica)  \
        X(real_s_main) X(real_s_other) X(max_mem_bytes_main) X(max_mem_bytes_other)
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

/* One line into fields, quotes taken off; *line goes on behind it. -1: too many fields or an open quote. */
static int split(char **line, char *fields[FIELDS_MOST])
{
    char *at = *line;
    int n = 0;
    for (;;) {
        if (n == FIELDS_MOST) return -1;
        char *out = fields[n++] = at;
        bool quoted = *at == '"';
        if (quoted) at++;
        while (*at && (quoted || (*at != ',' && *at != '\n'))) {
            if (quoted && *at == '"') {
                if (at[1] != '"') {
                    quoted = false, at++;
                    continue;
                }
                at++;
            }
            if (*at != '\r') *out++ = *at;
            at++;
        }
        if (quoted) return -1;
        char end = *at;
        if (*at) at++;
        *out = '\0';
        if (end != ',') break;
    }
    *line = at;
    return n;
}

static const char *field(const struct table *t, char *const *fields, enum column c)
{
    return t->at[c] < 0 ? "" : fields[t->at[c]];
}

static enum status read_head(struct table *t, char **text, int *n, struct error *err)
{
    static const enum column needed[] = {COLUMN_tp, COLUMN_mbs, COLUMN_gbs, COLUMN_layers_per_stage,
                                         COLUMN_gpu_per_stage_replica};
    char *fields[FIELDS_MOST];
    if (!strncmp(*text, "\xef\xbb\xbf", 3)) *text += 3;
    *n = split(text, fields);
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

/* --- one row --------------------------------------------------------------------------------- */

struct spot { /* one stage of one replica */
    const char *gpu;
    int32_t cards, type, node;
};

struct row_plan {
    struct arena *a;
    const struct profile *profile;
    const struct model *models;
    int32_t n_models;
    const struct model *model;
    int32_t n_stages, n_replicas;
    int64_t layers[STAGES_MOST];
    struct spot *spots;               /* (n_replicas, n_stages) */
    int32_t *device;                  /* (n_replicas, n_stages), of the cluster */
    int64_t microbatch, batch, nodes; /* nodes: 0 where the row does not say */
    struct plan plan;
    const char *note;
};

static enum status whole(const char *column, const char *text, int64_t most, int64_t *out,
                         struct error *err)
{
    double value;
    if (!units_parse_number(text, &value) || value < 1 || value > (double)most ||
        value != floor(value))
        return error_set(err, ERR_INPUT, "%s is '%.60s', not a whole number from 1 to %" PRId64,
                         column, text, most);
    *out = (int64_t)value;
    return OK;
}

/* Pieces of text between separators; the arena's. */
static int32_t pieces(struct arena *a, const char *text, char separator, int32_t most,
                      const char **out)
{
    int32_t n = 0;
    for (const char *at = text;; at++) {
        const char *end = strchr(at, separator);
        if (n == most) return -1;
        while (isspace((unsigned char)*at)) at++;
        out[n++] = end ? arena_strndup(a, at, (size_t)(end - at)) : at;
        if (!end) return n;
        at = end;
    }
}

static bool contains(const char *text, const char *name)
{
    for (; *text; text++) {
        size_t i = 0;
        while (name[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)name[i])) i++;
        if (!name[i]) return true;
    }
    return false;
}

static enum status find_model(struct row_plan *r, const char *name, struct error *err)
{
    r->model = NULL;
    for (int32_t i = 0; i < r->n_models; i++)
        if (contains(name, r->models[i].name) &&
            (!r->model || strlen(r->models[i].name) > strlen(r->model->name)))
            r->model = &r->models[i];
    if (r->model) return OK;
    return error_set(err, ERR_INPUT, "no table of layers of a model named in '%.80s'", name);
}

static enum status read_layers(struct row_plan *r, const char *text, struct error *err)
{
    const char *list[STAGES_MOST];
    int64_t sum = 0;
    r->n_stages = pieces(r->a, text, '|', STAGES_MOST, list);
    if (r->n_stages < 0) return error_set(err, ERR_INPUT, "more than %d stages", STAGES_MOST);
    for (int32_t s = 0; s < r->n_stages; s++) {
        TRY(whole("layers_per_stage", list[s], r->model->layers, &r->layers[s], err));
        sum += r->layers[s];
    }
    if (sum == r->model->layers) return OK;
    return error_set(err, ERR_INPUT, "layers_per_stage adds up to %" PRId64 ", %s has %" PRId64,
                     sum, r->model->name, r->model->layers);
}

/* "x", "x|y", "x+y|z+w": one for all, one a stage, one a stage and replica. *n_replicas: 0 where it does not say. */
static enum status spread(struct row_plan *r, const char *column, const char *text,
                          int32_t *n_replicas, const char **out, struct error *err)
{
    const char *stages[STAGES_MOST], *list[REPLICAS_MOST];
    int32_t n = pieces(r->a, text, '|', STAGES_MOST, stages), most = *n_replicas;
    if (n != 1 && n != r->n_stages)
        return error_set(err, ERR_INPUT,
                         "%s is of %" PRId32 " stages, layers_per_stage of %" PRId32, column, n,
                         r->n_stages);
    for (int32_t s = 0; s < r->n_stages; s++) {
        int32_t k = pieces(r->a, stages[n == 1 ? 0 : s], '+', REPLICAS_MOST, list);
        if (k < 0)
            return error_set(err, ERR_INPUT, "%s has more than %d replicas", column, REPLICAS_MOST);
        if (!most) most = k;
        if (k != most && k != 1)
            return error_set(err, ERR_INPUT,
                             "%s: stage %" PRId32 " has %" PRId32 " replicas, not %" PRId32
                             " like the others",
                             column, s, k, most);
        for (int32_t i = 0; i < most; i++) out[i * r->n_stages + s] = list[k == 1 ? 0 : i];
    }
    *n_replicas = most;
    return OK;
}

static enum status same(const char *column, const char *text, int64_t value, struct error *err)
{
    int64_t said;
    if (!*text) return OK;
    TRY(whole(column, text, INT32_MAX, &said, err));
    return said == value ? OK
                         : error_set(err, ERR_INPUT, "%s is %" PRId64 ", the plan's is %" PRId64,
                                     column, said, value);
}

static enum status read_spots(struct row_plan *r, const struct table *t, char *const *f,
                              struct error *err)
{
    const char *gpus = field(t, f, COLUMN_gpu_per_stage_replica);
    const char **gpu = ARENA_ARRAY(r->a, const char *, (size_t)STAGES_MOST *REPLICAS_MOST),
               **tp = ARENA_ARRAY(r->a, const char *, (size_t)STAGES_MOST *REPLICAS_MOST);
    int64_t replicas = 0;
    if (*field(t, f, COLUMN_dp))
        TRY(whole("dp", field(t, f, COLUMN_dp), REPLICAS_MOST, &replicas, err));
    r->n_replicas = (int32_t)replicas;
    TRY(spread(r, "gpu_per_stage_replica", gpus, &r->n_replicas, gpu, err));
    TRY(spread(r, "tp", field(t, f, COLUMN_tp), &r->n_replicas, tp, err));
    int32_t n = r->n_replicas * r->n_stages;
    r->spots = ARENA_ARRAY(r->a, struct spot, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        int64_t cards;
        TRY(whole("tp", tp[i], 64, &cards, err));
        r->spots[i] = (struct spot){gpu[i], (int32_t)cards, -1, -1};
    }
    return same("pp", field(t, f, COLUMN_pp), r->n_stages, err);
}

static enum status read_row(struct row_plan *r, const struct table *t, char *const *f,
                            struct error *err)
{
    const char *model = field(t, f, COLUMN_model);
    TRY(find_model(r, *model ? model : field(t, f, COLUMN_set), err));
    TRY(read_layers(r, field(t, f, COLUMN_layers_per_stage), err));
    TRY(read_spots(r, t, f, err));
    TRY(whole("mbs", field(t, f, COLUMN_mbs), MEASURED_SEQUENCES_MOST, &r->microbatch, err));
    TRY(whole("gbs", field(t, f, COLUMN_gbs), 1 << 24, &r->batch, err));
    r->nodes = 0;
    if (*field(t, f, COLUMN_nodes))
        TRY(whole("nodes", field(t, f, COLUMN_nodes), 1 << 16, &r->nodes, err));
    if (r->batch % r->microbatch)
        return error_set(err, ERR_INPUT, "mbs %" PRId64 " does not divide gbs %" PRId64,
                         r->microbatch, r->batch);
    if (r->batch / r->microbatch < r->n_replicas)
        return error_set(err, ERR_INPUT, "%" PRId64 " microbatches for %" PRId32 " replicas",
                         r->batch / r->microbatch, r->n_replicas);
    return OK;
}

/* --- its cluster and plan -------------------------------------------------------------------- */

static enum status add_type(struct row_plan *r, struct spot *s, struct error *err)
{
    struct cluster *c = &r->plan.cluster;
    const struct sailor_gpu *gpu = sailor_gpu(s->gpu);
    const struct catalogue_device *d = NULL;
    const char *id = gpu ? gpu->catalogue : s->gpu;
    if (catalogue_find(id, &d, NULL) != OK)
        return error_set(err, ERR_INPUT, "unknown GPU '%.60s'", s->gpu);
    for (s->type = 0; s->type < c->n_types; s->type++)
        if (!strcmp(c->types[s->type].catalogue, id) &&
            c->types[s->type].tensor_parallel == s->cards)
            return OK;
    c->types[c->n_types++] =
        (struct device_type){.name = arena_printf(r->a, "%s-x%" PRId32, s->gpu, s->cards),
                             .catalogue = id,
                             .tensor_parallel = s->cards,
                             .reserve_bytes = gpu ? gpu->reserve_bytes[s->cards > 1] : 0};
    return OK;
}

static void add_link(struct row_plan *r, int32_t from, int32_t to)
{
    struct cluster *c = &r->plan.cluster;
    int32_t direction, a = c->devices[from].node, b = c->devices[to].node;
    if (from == to || cluster_link(c, from, to, &direction) >= 0) return;
    c->links[c->n_links++] =
        (struct link){.name = arena_printf(r->a, "%s-%s", c->nodes[a].name, c->nodes[b].name),
                      .n_ends = a == b ? 1 : 2,
                      .end = {a, b},
                      .blocking = true};
}

/* Ranks fill nodes in the order of stages, then replicas (DeepSpeed's grid); as many nodes as stages of replicas leave
 * each its own. */
static int32_t place(struct row_plan *r)
{
    int32_t n = r->n_replicas * r->n_stages, nodes = 0, room = 0;
    const char *kind = "";
    for (int32_t k = 0; k < n; k++) {
        struct spot *s = &r->spots[k % r->n_replicas * r->n_stages + k / r->n_replicas];
        const struct sailor_gpu *gpu = sailor_gpu(s->gpu);
        if (r->nodes == n || strcmp(kind, s->gpu) != 0 || room < s->cards) {
            nodes++;
            kind = s->gpu;
            room = gpu ? gpu->node_cards : s->cards;
        }
        s->node = nodes - 1;
        room -= s->cards;
    }
    return nodes;
}

/* Devices by node, and links from stage to stage and around each stage's replicas. */
static enum status make_cluster(struct row_plan *r, struct error *err)
{
    struct cluster *c = &r->plan.cluster;
    int32_t n = r->n_replicas * r->n_stages;
    *c = (struct cluster){.name = SAILOR_CLUSTER, .n_nodes = place(r)};
    c->types = ARENA_ARRAY(r->a, struct device_type, (size_t)n);
    c->nodes = ARENA_ARRAY(r->a, struct node_spec, (size_t)c->n_nodes);
    c->devices = ARENA_ARRAY(r->a, struct device, (size_t)n);
    c->links = ARENA_ARRAY(r->a, struct link, 2 * (size_t)n);
    r->device = ARENA_ARRAY(r->a, int32_t, (size_t)n);
    for (int32_t k = 0; k < c->n_nodes; k++) {
        struct node_spec *node = &c->nodes[k];
        *node = (struct node_spec){.name = arena_printf(r->a, "n%" PRId32, k),
                                   .host = "localhost",
                                   .first_device = c->n_devices};
        for (int32_t i = 0; i < n; i++) {
            if (r->spots[i].node != k) continue;
            TRY(add_type(r, &r->spots[i], err));
            r->device[i] = c->n_devices;
            c->devices[c->n_devices++] =
                (struct device){arena_printf(r->a, "%s.%" PRId32, node->name, node->n_devices),
                                r->spots[i].type, k, node->n_devices};
            node->n_devices++;
        }
    }
    for (int32_t i = 0; i < n; i++) {
        if (i % r->n_stages + 1 < r->n_stages) add_link(r, r->device[i], r->device[i + 1]);
        add_link(r, r->device[i], r->device[(i + r->n_stages) % n]);
    }
    return team_complete(c, err);
}

static void make_plan(struct row_plan *r, const char *name)
{
    struct plan *p = &r->plan;
    int64_t m = r->batch / r->microbatch;
    p->name = name, p->microbatch = r->microbatch, p->steps = 1, p->seed = 1;
    p->job = (struct job){.model = *r->model,
                          .sequence_length = r->model->measured->sequence_length,
                          .global_batch = r->batch,
                          .n_microbatches_sizes = 1,
                          .microbatch_sizes = {r->microbatch},
                          .precision = DTYPE_fp32,
                          .optimizer = {OPTIMIZER_ADAMW, 1e-3, 0.9, 0.999, 1e-8, 0.01},
                          .seed = 1};
    p->n_replicas = r->n_replicas;
    p->replicas = ARENA_ARRAY(r->a, struct plan_replica, (size_t)r->n_replicas);
    for (int32_t i = 0; i < r->n_replicas; i++) {
        struct plan_replica *x = &p->replicas[i];
        x->microbatches = (int32_t)(m * (i + 1) / r->n_replicas - m * i / r->n_replicas);
        x->n_stages = r->n_stages;
        x->stages = ARENA_ARRAY(r->a, struct plan_stage, (size_t)r->n_stages);
        int32_t layer = 0;
        for (int32_t s = 0; s < r->n_stages; s++) {
            x->stages[s] = (struct plan_stage){.first_layer = layer,
                                               .last_layer = layer + (int32_t)r->layers[s] - 1,
                                               .device = r->device[i * r->n_stages + s],
                                               .receive_ahead = 1};
            layer += (int32_t)r->layers[s];
        }
    }
}

/* What the prediction rests on besides measured rows. */
static void note_reach(struct row_plan *r)
{
    const struct cluster *c = &r->plan.cluster;
    for (int32_t i = 0; i < c->n_types; i++) {
        const struct device_type *t = &c->types[i];
        for (int32_t k = 0; k < r->model->layers; k++) {
            int64_t row = op_measured_row(r->model->name, r->model->measured->layers[k].cost);
            enum measured_reach reach =
                measured_reach(r->profile, t->catalogue, t->tensor_parallel, row, r->microbatch);
            if (reach != MEASURED_BEYOND && reach != MEASURED_BETWEEN) continue;
            r->note = arena_printf(r->a, "microbatch %" PRId64 " was not measured on %s: %s",
                                   r->microbatch, t->name,
                                   reach == MEASURED_BEYOND ? "extrapolated" : "interpolated");
            return;
        }
    }
}

/* Times of the layers of one step of one microbatch, which a plan without messages cannot undercut or exceed by much. */
static double layers_seconds(const struct row_plan *r, const struct program *p, struct cost *k,
                             struct error *err)
{
    double sum = 0;
    for (int32_t i = 0; i < p->stages[0].n_ops; i++) {
        const struct program_op *op = &p->stages[0].ops[i];
        int64_t ns = 0;
        if (op->phase == PHASE_U || cost_op(k, p->devices[0].type_index, op, &ns, err) != OK)
            continue;
        sum += s_from_ns(ns) * (double)r->plan.replicas[0].microbatches;
    }
    return sum;
}

static enum status predict(struct row_plan *r, struct validated_row *out, struct error *err)
{
    struct lower_options o = {0};
    struct program program;
    struct sim_result result;
    TRY(make_cluster(r, err));
    make_plan(r, out->name);
    TRY(team_fused(r->a, &r->plan.cluster, &o, err));
    TRY(lower_plan(r->a, &r->plan, &o, &program, err));
    struct cost *k = cost_new(r->a, r->profile, &r->plan.cluster);
    struct sim_options options = {0};
    TRY(sim_run(r->a, &program, k, &options, &result, err));
    out->seconds = s_from_ns(result.iteration_ns);
    for (int32_t i = 0; i < program.n_devices; i++)
        if (result.devices[i].peak_bytes > out->bytes) out->bytes = result.devices[i].peak_bytes;
    if (r->n_stages == 1 && r->n_replicas == 1)
        out->profile_s = layers_seconds(r, &program, k, err);
    note_reach(r);
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

/* A plan without any message takes what its layers take; where it did not, the profile and the run disagree. */
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
    *row = (struct validated_row){.line = line};
    r.a = a;
    for (int c = 0; c < COLUMN_COUNT; c++)
        if (t->at[c] >= n) {
            row->name = arena_printf(a, "line %d", line);
            row->why =
                arena_printf(a, "has %d fields, column '%s' is not there", n, column_names[c]);
            return OK;
        }
    const char *name = field(t, f, COLUMN_file);
    row->name = *name ? arena_strdup(a, name) : arena_printf(a, "line %d", line);
    read_measured(row, t, f);
    enum status st = read_row(&r, t, f, &why);
    if (st == OK) st = predict(&r, row, &why);
    if (st == OK) note_contradiction(a, row);
    if (st == ERR_INPUT || st == ERR_INFEASIBLE) row->why = arena_strdup(a, why.text);
    return st == ERR_INPUT || st == ERR_INFEASIBLE ? OK : st;
}

/* --- what it rests on ------------------------------------------------------------------------ */

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
        return error_set(err, ERR_INPUT,
                         "no *%s in '%s': musher import makes them; --models names their folder",
                         ending, folder);
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
    if (st == OK) st = store_latest(s, hash_text(0, SAILOR_CLUSTER), &none, &id, &exact, err);
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
    TRY(file_read(a, csv, CSV_MOST, &text, NULL, err));
    TRY(read_head(&t, &text, &columns, err));
    TRY(read_profile(a, db, &profile, err));
    TRY(read_models(a, models, &shared, err));
    while (*text) {
        char *fields[FIELDS_MOST];
        line++;
        int found = split(&text, fields);
        if (found < 0)
            return error_set(err, ERR_INPUT,
                             "%s:%d: more than %d fields, or a quote that does not end", csv, line,
                             FIELDS_MOST);
        if (found == 1 && !*fields[0]) continue;
        rows = arena_grow(a, rows, n, &capacity, sizeof *rows);
        TRY(validate_row(a, &shared, &t, fields, found, line, &rows[n++]));
    }
    if (!n) return error_set(err, ERR_INPUT, "%s has no rows", csv);
    validated_sum_up(a, rows, (int32_t)n, summary);
    *out = rows;
    return OK;
}
