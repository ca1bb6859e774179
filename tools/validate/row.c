/* tools/validate/row.c - conversion of a row to a cluster of its own and a plan on it. */
#include "tools/validate/row.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/model/measured.h"
#include "core/sharding/sharding.h"
#include "profiles/catalogue.h"
#include "profiles/measured.h"
#include "profiles/team.h"
#include "tools/import/sailor_tables.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

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
    const char *list[ROW_STAGES_MAX];
    int64_t sum = 0;
    r->n_stages = pieces(r->a, text, '|', ROW_STAGES_MAX, list);
    if (r->n_stages < 0) return error_set(err, ERR_INPUT, "more than %d stages", ROW_STAGES_MAX);
    for (int32_t s = 0; s < r->n_stages; s++) {
        TRY(whole("layers_per_stage", list[s], r->model->layers, &r->layers[s], err));
        sum += r->layers[s];
    }
    if (sum == r->model->layers) return OK;
    return error_set(err, ERR_INPUT, "layers_per_stage adds up to %" PRId64 ", %s has %" PRId64,
                     sum, r->model->name, r->model->layers);
}

/* "x", "x|y", "x+y|z+w": one for all, one per stage, one per stage and replica. *n_replicas 0: not stated. */
static enum status spread(struct row_plan *r, const char *column, const char *text,
                          int32_t *n_replicas, const char **out, struct error *err)
{
    const char *stages[ROW_STAGES_MAX], *list[ROW_REPLICAS_MAX];
    int32_t n = pieces(r->a, text, '|', ROW_STAGES_MAX, stages), most = *n_replicas;
    if (n != 1 && n != r->n_stages)
        return error_set(err, ERR_INPUT, "%s has %" PRId32 " stages, layers_per_stage has %" PRId32,
                         column, n, r->n_stages);
    for (int32_t s = 0; s < r->n_stages; s++) {
        int32_t k = pieces(r->a, stages[n == 1 ? 0 : s], '+', ROW_REPLICAS_MAX, list);
        if (k < 0)
            return error_set(err, ERR_INPUT, "%s has more than %d replicas", column,
                             ROW_REPLICAS_MAX);
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

static enum status read_spots(struct row_plan *r, const struct row_text *t, struct error *err)
{
    const char *gpus = t->gpu_per_stage_replica;
    const char **gpu = ARENA_ARRAY(r->a, const char *, (size_t)ROW_STAGES_MAX *ROW_REPLICAS_MAX),
               **tp = ARENA_ARRAY(r->a, const char *, (size_t)ROW_STAGES_MAX *ROW_REPLICAS_MAX);
    int64_t replicas = 0;
    if (*t->dp) TRY(whole("dp", t->dp, ROW_REPLICAS_MAX, &replicas, err));
    r->n_replicas = (int32_t)replicas;
    TRY(spread(r, "gpu_per_stage_replica", gpus, &r->n_replicas, gpu, err));
    TRY(spread(r, "tp", t->tp, &r->n_replicas, tp, err));
    int32_t n = r->n_replicas * r->n_stages;
    r->spots = ARENA_ARRAY(r->a, struct spot, (size_t)n);
    for (int32_t i = 0; i < n; i++) {
        int64_t degree;
        TRY(whole("tp", tp[i], 64, &degree, err));
        r->spots[i] = (struct spot){gpu[i], (int32_t)degree, -1, -1, NULL};
    }
    return same("pp", t->pp, r->n_stages, err);
}

static enum status read_row(struct row_plan *r, const struct row_text *t, struct error *err)
{
    const char *model = t->model;
    TRY(find_model(r, *model ? model : t->set, err));
    TRY(read_layers(r, t->layers_per_stage, err));
    TRY(read_spots(r, t, err));
    TRY(whole("mbs", t->mbs, MEASURED_SEQUENCES_MAX, &r->microbatch, err));
    TRY(whole("gbs", t->gbs, 1 << 24, &r->batch, err));
    r->nodes = 0;
    if (*t->nodes) TRY(whole("nodes", t->nodes, 1 << 16, &r->nodes, err));
    if (r->batch % r->microbatch)
        return error_set(err, ERR_INPUT, "mbs %" PRId64 " does not divide gbs %" PRId64,
                         r->microbatch, r->batch);
    if (r->batch / r->microbatch < r->n_replicas)
        return error_set(err, ERR_INPUT, "%" PRId64 " microbatches for %" PRId32 " replicas",
                         r->batch / r->microbatch, r->n_replicas);
    return OK;
}

/* --- its cluster and plan -------------------------------------------------------------------- */

/* Device types are single GPUs, one for each amount of memory that the framework reserves. */
static enum status add_type(struct row_plan *r, struct spot *s, struct error *err)
{
    struct cluster *c = &r->plan.cluster;
    const struct sailor_gpu *gpu = sailor_gpu(s->gpu);
    const struct catalogue_device *d = NULL;
    const char *id = gpu ? gpu->catalogue : s->gpu;
    int64_t reserve = gpu ? gpu->reserve_bytes[s->tp > 1] : 0;
    if (catalogue_find(id, &d, NULL) != OK)
        return error_set(err, ERR_INPUT, "unknown GPU '%.60s'", s->gpu);
    bool again = false; /* the same GPU with another reserve */
    for (s->type = 0; s->type < c->n_types; s->type++) {
        if (strcmp(c->types[s->type].catalogue, id) != 0) continue;
        if (c->types[s->type].reserve_bytes == reserve) return OK;
        again = true;
    }
    c->types[c->n_types++] =
        (struct device_type){.name = again ? arena_printf(r->a, "%s-2", s->gpu) : s->gpu,
                             .catalogue = id,
                             .reserve_bytes = reserve};
    return OK;
}

/* In the order of ranks: stages, then replicas (DeepSpeed's grid). */
static struct spot *spot_at(const struct row_plan *r, int32_t k)
{
    return &r->spots[k % r->n_replicas * r->n_stages + k / r->n_replicas];
}

/* Ranks fill nodes in their order; with one node a stage and replica each has its own. */
static int32_t place(struct row_plan *r)
{
    int32_t n = r->n_replicas * r->n_stages, nodes = 0, room = 0;
    const char *kind = "";
    for (int32_t k = 0; k < n; k++) {
        struct spot *s = spot_at(r, k);
        const struct sailor_gpu *gpu = sailor_gpu(s->gpu);
        if (r->nodes == n || strcmp(kind, s->gpu) != 0 || room < s->tp) {
            nodes++;
            kind = s->gpu;
            room = gpu ? gpu->node_gpus : s->tp;
        }
        s->node = nodes - 1;
        room -= s->tp;
    }
    return nodes;
}

/* The GPUs of a spot, adjacent on its node. */
static void add_devices(struct row_plan *r, struct node_spec *node, struct spot *s)
{
    struct cluster *c = &r->plan.cluster;
    s->devices = ARENA_ARRAY(r->a, int32_t, (size_t)s->tp);
    for (int32_t i = 0; i < s->tp; i++) {
        s->devices[i] = c->n_devices;
        c->devices[c->n_devices++] =
            (struct device){arena_printf(r->a, "%s.%" PRId32, node->name, node->n_devices), s->type,
                            s->node, node->n_devices};
        node->n_devices++;
    }
}

/* Devices by node. Links have the measured curves of their ends' types, whatever else is sent. */
static enum status make_cluster(struct row_plan *r, struct error *err)
{
    struct cluster *c = &r->plan.cluster;
    int32_t n = r->n_replicas * r->n_stages;
    size_t devices = 0;
    *c = (struct cluster){.name = SAILOR_CLUSTER, .n_nodes = place(r), .n_links = 2};
    for (int32_t i = 0; i < n; i++) devices += (size_t)r->spots[i].tp;
    c->types = ARENA_ARRAY(r->a, struct device_type, (size_t)n);
    c->nodes = ARENA_ARRAY(r->a, struct node_spec, (size_t)c->n_nodes);
    c->devices = ARENA_ARRAY(r->a, struct device, devices);
    c->links = ARENA_ARRAY(r->a, struct link, 2);
    c->links[0] = (struct link){.name = "bus", .kind = {END_INSIDE}, .blocking = true};
    c->links[1] = (struct link){.name = "net", .kind = {END_ACROSS}, .blocking = true};
    for (int32_t k = 0; k < c->n_nodes; k++) {
        struct node_spec *node = &c->nodes[k];
        *node = (struct node_spec){.name = arena_printf(r->a, "n%" PRId32, k),
                                   .host = "localhost",
                                   .first_device = c->n_devices};
        for (int32_t i = 0; i < n; i++) {
            struct spot *s = spot_at(r, i);
            if (s->node != k) continue;
            TRY(add_type(r, s, err));
            add_devices(r, node, s);
        }
    }
    return team_complete(c, err);
}

/* Several GPUs share every layer. */
static struct plan_stage stage_on(struct row_plan *r, const struct spot *s)
{
    struct plan_stage x = {.device = s->devices[0], .receive_ahead = 1};
    if (s->tp == 1) return x;
    x.n_shards = s->tp, x.devices = s->devices;
    x.sharding = sharding_of_index(r->a, INDEX_tensor, NULL, s->tp);
    return x;
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
                          .optimizer = {.kind = OPTIMIZER_ADAMW, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
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
            x->stages[s] = stage_on(r, &r->spots[i * r->n_stages + s]);
            x->stages[s].first_layer = layer;
            layer += (int32_t)r->layers[s];
            x->stages[s].last_layer = layer - 1;
        }
    }
}

enum status row_plan_make(struct row_plan *r, const struct row_text *t, const char *name,
                          struct error *err)
{
    TRY(read_row(r, t, err));
    TRY(make_cluster(r, err));
    make_plan(r, name);
    return OK;
}
