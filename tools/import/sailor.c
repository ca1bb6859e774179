/* musher import sailor DIR: measured layers, links and models of Sailor's artifact.
 *
 *   profiles_tmp.json   model > GPU > microbatch > GPUs > layer > [forward s, backward s, update s]
 *   llm_info.json       model > GPUs > layer > params_floats, act_output_floats, act_mem_floats
 *   network_coeffs_all_homo.json  "inter" > GPU > GPUs > [[a, b, c], most B/s]: GB/s = a·x² + b·x + c, x = log2(MB)
 *   intra_node_bandwidths.json    GPU > GPUs > the same
 *   cluster_config.json           GPU > gpus_per_node, mem_per_gpu
 *
 * Layers with equal times in all tables share their rows. The update was timed on a short model (embedding, the
 * profiled blocks, head): its seconds become rows of flat_adamw over that model's parameters; a linear fit (a
 * constant and a rate, per GPU) gives the update of any stage. The number of profiled blocks follows from the table: two if the
 * first block has times of its own, otherwise one. An update of 0 s was not measured and is left out.
 * Everything is read before anything is written.
 */
#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/rng.h"
#include "core/base/units.h"
#include "core/document/document.h"
#include "core/model/measured.h"
#include "profiles/measured.h"
#include "profiles/op_fits.h"
#include "profiles/store.h"
#include "tools/common.h"
#include "tools/import/import.h"
#include "tools/import/sailor_tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TP_MAX = 64, LAYERS_MAX = 512 };

struct taken {
    struct arena *a;
    struct profile p;
    size_t op_capacity, fit_capacity;
    int32_t n_models, n_curves;
    struct model *models; /* (n_models) */
    struct file *files;   /* (n_files) of the first models */
    int32_t n_files;
};

static enum status member(const struct node *map, size_t i, int64_t most, int64_t *number,
                          const struct node **out, struct error *err)
{
    char *end;
    *out = map->members[i];
    *number = strtoll((*out)->key, &end, 10);
    if (*end || *number < 0 || *number > most)
        return node_error(*out, err, "'%s' is not a number from 0 to %" PRId64, (*out)->key, most);
    return OK;
}

static enum status gpu_of(const struct node *n, const struct sailor_gpu **out, struct error *err)
{
    *out = sailor_gpu(n->key);
    return *out ? OK
                : node_error(n, err, "unknown GPU '%s'; the known ones are in tools/import/sailor_tables.h", n->key);
}

static enum status number_of(const struct node *map, const char *key, int64_t *out,
                             struct error *err)
{
    const struct node *n;
    TRY(node_need(map, key, &n, err));
    return node_int(n, 0, INT64_C(1) << 40, out, err);
}

/* --- models ---------------------------------------------------------------------------------- */

struct times { /* of one layer in one table */
    double forward, backward, update;
};

static enum status times_of(const struct node *n, struct times *out, struct error *err)
{
    double *values[] = {&out->forward, &out->backward, &out->update};
    TRY(node_is(n, NODE_LIST, err));
    if (n->count != 3)
        return node_error(n, err, "must be [forward s, backward s, update s], has %zu", n->count);
    for (int i = 0; i < 3; i++) TRY(node_double(n->members[i], 0, 1e6, values[i], err));
    return OK;
}

static enum status layer_times(const struct node *table, int32_t layer, struct times *out,
                               struct error *err)
{
    char key[16];
    const struct node *n;
    snprintf(key, sizeof key, "%" PRId32, layer);
    TRY(node_need(table, key, &n, err));
    return times_of(n, out, err);
}

/* Calls visit for each table of times of a model. */
struct visit {
    struct taken *t;
    const struct model *m;
    int32_t *like; /* (layers): first layer with the same times so far */
};
typedef enum status visitor(struct visit *v, const struct sailor_gpu *gpu, int64_t sequences,
                            int32_t tp, const struct node *table, struct error *err);

static enum status each_table(const struct node *model, struct visit *v, visitor *f,
                              struct error *err)
{
    TRY(node_is(model, NODE_MAP, err));
    for (size_t g = 0; g < model->count; g++) {
        const struct sailor_gpu *gpu;
        TRY(gpu_of(model->members[g], &gpu, err));
        TRY(node_is(model->members[g], NODE_MAP, err));
        for (size_t b = 0; b < model->members[g]->count; b++) {
            const struct node *batch, *table;
            int64_t sequences, tp;
            TRY(member(model->members[g], b, MEASURED_SEQUENCES_MAX, &sequences, &batch, err));
            TRY(node_is(batch, NODE_MAP, err));
            for (size_t c = 0; c < batch->count; c++) {
                TRY(member(batch, c, TP_MAX, &tp, &table, err));
                TRY(node_is(table, NODE_MAP, err));
                if ((int64_t)table->count != v->m->layers)
                    return node_error(table, err,
                                      "has %zu layers, %s has %" PRId64 " in llm_info.json",
                                      table->count, v->m->name, v->m->layers);
                TRY(f(v, gpu, sequences, (int32_t)tp, table, err));
            }
        }
    }
    return OK;
}

/* Partition of layers into classes of equal times, refined by each table. */
static enum status distinguish_layers(struct visit *v, const struct sailor_gpu *gpu, int64_t sequences,
                              int32_t tp, const struct node *table, struct error *err)
{
    (void)gpu, (void)sequences, (void)tp;
    struct times t[LAYERS_MAX];
    int32_t n = (int32_t)v->m->layers;
    for (int32_t i = 0; i < n; i++) TRY(layer_times(table, i, &t[i], err));
    for (int32_t i = 0; i < n; i++) {
        int32_t k = v->like[i];
        if (t[k].forward == t[i].forward && t[k].backward == t[i].backward) continue;
        /* Its class splits: the members equal to i move to the class of i. */
        for (int32_t j = i; j < n; j++)
            if (v->like[j] == k && t[j].forward == t[i].forward && t[j].backward == t[i].backward)
                v->like[j] = i;
    }
    return OK;
}

/* The embedding reads tokens, positions and the mask: T + T + T·T numbers. */
static enum status read_length(const struct node *layers, int64_t *out, struct error *err)
{
    const struct node *n;
    int64_t read;
    TRY(node_need(layers, "0", &n, err));
    TRY(number_of(n, "act_input_floats", &read, err));
    *out = llround(sqrt((double)read + 1)) - 1;
    if (*out >= 1 && *out * *out + 2 * *out == read) return OK;
    return node_error(node_get(n, "act_input_floats"), err,
                      "is not T·T + 2·T for any length T of a sequence");
}

static enum status read_sizes(struct taken *t, const struct node *info, struct model *m,
                              struct error *err)
{
    struct measured_model *x = ARENA_ARRAY(t->a, struct measured_model, 1);
    const struct node *counts[TP_MAX + 1] = {0};
    TRY(node_is(info, NODE_MAP, err));
    for (size_t i = 0; i < info->count; i++) {
        const struct node *n;
        int64_t tp;
        TRY(member(info, i, TP_MAX, &tp, &n, err));
        TRY(node_is(n, NODE_MAP, err));
        counts[tp] = n;
        if (!x->n_layers) x->n_layers = (int32_t)n->count;
        if (!n->count || n->count > LAYERS_MAX || (int32_t)n->count != x->n_layers)
            return node_error(n, err, "has %zu layers; each number of GPUs has the same 1 to %d",
                              n->count, LAYERS_MAX);
        x->n_tp++;
    }
    if (!x->n_tp) return node_error(info, err, "has no sizes");
    x->tp = ARENA_ARRAY(t->a, int32_t, (size_t)x->n_tp);
    x->layers = ARENA_ARRAY(t->a, struct measured_layer, (size_t)x->n_layers);
    for (int32_t c = 0, k = 0; c <= TP_MAX; c++)
        if (counts[c]) x->tp[k++] = c;
    for (int32_t i = 0; i < x->n_layers; i++) {
        struct measured_layer *l = &x->layers[i];
        int64_t *parameters = ARENA_ARRAY(t->a, int64_t, (size_t)x->n_tp),
                *kept = ARENA_ARRAY(t->a, int64_t, (size_t)x->n_tp);
        char key[16];
        snprintf(key, sizeof key, "%" PRId32, i);
        for (int32_t k = 0; k < x->n_tp; k++) {
            const struct node *n;
            int64_t memory, output;
            TRY(node_need(counts[x->tp[k]], key, &n, err));
            TRY(number_of(n, "params_floats", &parameters[k], err));
            TRY(number_of(n, "act_mem_floats", &memory, err));
            TRY(number_of(n, "act_output_floats", &output, err));
            if (k == 0) l->output = i + 1 < x->n_layers ? output : 0;
            kept[k] = memory > l->output ? memory - l->output : 0; /* the table includes the output */
        }
        l->name = i == 0                 ? "embedding"
                  : i + 1 == x->n_layers ? "head"
                                         : arena_printf(t->a, "block %" PRId32, i);
        l->parameters = (struct shares){x->n_tp, x->tp, parameters};
        l->kept = (struct shares){x->n_tp, x->tp, kept};
    }
    TRY(read_length(counts[x->tp[0]], &x->sequence_length, err));
    m->measured = x, m->layers = x->n_layers, m->family = "measured_layers";
    return OK;
}

/* --- rows ------------------------------------------------------------------------------------ */

static void add_row(struct taken *t, struct op_row row)
{
    t->p.ops = arena_grow(t->a, t->p.ops, t->p.n_ops, &t->op_capacity, sizeof *t->p.ops);
    t->p.ops[t->p.n_ops++] = row;
}

static void add_layer_row(struct taken *t, const struct visit *v, const char *base,
                          enum op_kind kind, int32_t layer, int64_t sequences, double seconds)
{
    const struct measured_layer *l = &v->m->measured->layers[layer];
    struct op_attrs attrs = {.row = op_measured_row(v->m->name, l->cost), .sequences = sequences};
    struct op_shapes none = {0};
    char text[256];
    op_key_text(text, sizeof text, kind, &attrs, &none, DTYPE_fp32);
    add_row(t, (struct op_row){.base = base,
                               .key = op_key(kind, &attrs, &none, DTYPE_fp32),
                               .kind = kind,
                               .dtype = DTYPE_fp32,
                               .text = arena_strdup(t->a, text),
                               .seconds = seconds,
                               .samples = 1,
                               .provenance =
                                   arena_printf(t->a, "sailor: %s layer %s", v->m->name, l->cost)});
}

/* One row a size, because the short model has the same parameters for every microbatch size. */
static void add_update_row(struct taken *t, const struct visit *v, const struct sailor_gpu *gpu,
                           int32_t tp, double seconds)
{
    const struct measured_model *x = v->m->measured;
    int32_t last = x->n_layers - 1, blocks = last > 1 && v->like[2] != v->like[1] ? 2 : 1;
    int64_t n =
        shares_at(&x->layers[0].parameters, tp) + shares_at(&x->layers[last].parameters, tp);
    for (int32_t i = 1; i <= blocks && i < last; i++)
        n += shares_at(&x->layers[i].parameters, tp);
    struct op_attrs attrs = {.decay = true};
    struct op_shapes shapes = {.n_inputs = 4};
    struct error ignored;
    for (int i = 0; i < 4; i++) shapes.input[i] = (struct shape){.rank = 1, .dim = {n}};
    if (seconds <= 0 || n < 1 || op_infer(OP_flat_adamw, &attrs, &shapes, &ignored) != OK) return;
    uint64_t key = op_key(OP_flat_adamw, &attrs, &shapes, DTYPE_fp32);
    for (size_t i = 0; i < t->p.n_ops; i++)
        if (t->p.ops[i].key == key && !strcmp(t->p.ops[i].base, gpu->catalogue)) return;
    char text[256];
    op_key_text(text, sizeof text, OP_flat_adamw, &attrs, &shapes, DTYPE_fp32);
    add_row(t, (struct op_row){
                   .base = gpu->catalogue,
                   .key = key,
                   .kind = OP_flat_adamw,
                   .dtype = DTYPE_fp32,
                   .flops = op_flops(OP_flat_adamw, &attrs, &shapes),
                   .bytes = (double)op_bytes_read(OP_flat_adamw, &attrs, &shapes, DTYPE_fp32) +
                            (double)op_bytes_written(OP_flat_adamw, &attrs, &shapes, DTYPE_fp32),
                   .text = arena_strdup(t->a, text),
                   .seconds = seconds,
                   .samples = 1,
                   .provenance = arena_printf(t->a, "sailor: %s update", v->m->name)});
}

static enum status take_table(struct visit *v, const struct sailor_gpu *gpu, int64_t sequences,
                              int32_t tp, const struct node *table, struct error *err)
{
    char base[MEASURED_BASE_MAX];
    struct times t;
    measured_base(base, gpu->catalogue, tp);
    const char *name = arena_strdup(v->t->a, base);
    for (int32_t i = 0; i < v->m->layers; i++) {
        if (v->like[i] != i) continue;
        TRY(layer_times(table, i, &t, err));
        add_layer_row(v->t, v, name, OP_measured_forward, i, sequences, t.forward);
        add_layer_row(v->t, v, name, OP_measured_backward, i, sequences, t.backward);
    }
    TRY(layer_times(table, 0, &t, err));
    add_update_row(v->t, v, gpu, tp, t.update);
    return OK;
}

static enum status take_model(struct taken *t, const struct node *times, const struct node *infos,
                              struct error *err)
{
    const struct node *info;
    struct model *m = &t->models[t->n_models++];
    *m = (struct model){.name = times->key};
    if (!*m->name || *m->name == '.' || strpbrk(m->name, "/\\"))
        return node_error(times, err, "'%.60s' is not a model name: it becomes part of a file name",
                          m->name);
    TRY(node_need(infos, times->key, &info, err));
    TRY(read_sizes(t, info, m, err));
    struct visit v = {t, m, ARENA_ARRAY(t->a, int32_t, (size_t)m->layers)};
    TRY(each_table(times, &v, distinguish_layers, err));
    for (int32_t i = 0; i < m->layers; i++)
        m->measured->layers[i].cost = arena_printf(t->a, "%" PRId32, v.like[i]);
    return each_table(times, &v, take_table, err);
}

/* --- links and the rest ---------------------------------------------------------------------- */

/* Points of the curve at powers of two of a MB, from the first one above 0. */
static enum status take_curve(struct taken *t, bool same_node, const struct sailor_gpu *gpu,
                              int64_t tp, const struct node *n, struct error *err)
{
    double c[3], most;
    TRY(node_is(n, NODE_LIST, err));
    if (n->count != 2) return node_error(n, err, "must be [[a, b, c], most], has %zu", n->count);
    TRY(node_is(n->members[0], NODE_LIST, err));
    if (n->members[0]->count != 3)
        return node_error(n->members[0], err, "must be three numbers, has %zu",
                          n->members[0]->count);
    for (int i = 0; i < 3; i++) TRY(node_double(n->members[0]->members[i], -1e6, 1e6, &c[i], err));
    TRY(node_double(n->members[1], 1, 1e15, &most, err));
    int points = 0;
    for (int x = -6; x <= 12 && points < LINK_POINTS_MAX / 2; x++) {
        double Bps = fmin((c[0] * x * x + c[1] * x + c[2]) * 1e9, most), bytes = ldexp(1e6, x);
        if (!(Bps > 0)) continue;
        /* A quadratic fitted to saturating data falls behind its maximum; there the maximum is used. */
        if (c[0] < 0 && x > -c[1] / (2 * c[0])) break;
        struct link_model m = {.bandwidth_Bps = Bps,
                               .min_bytes = (int64_t)bytes,
                               .max_bytes = (int64_t)bytes,
                               .source = SOURCE_MEASURED};
        profile_set_link(
            t->a, &t->p,
            measured_curve_row(t->a, same_node, gpu->catalogue, (int32_t)tp, (int64_t)bytes),
            &m);
        points++;
    }
    t->n_curves++;
    return points ? OK : node_error(n, err, "is nowhere above 0");
}

static enum status take_curves(struct taken *t, bool same_node, const struct node *map,
                               struct error *err)
{
    TRY(node_is(map, NODE_MAP, err));
    for (size_t g = 0; g < map->count; g++) {
        const struct sailor_gpu *gpu;
        TRY(gpu_of(map->members[g], &gpu, err));
        TRY(node_is(map->members[g], NODE_MAP, err));
        for (size_t i = 0; i < map->members[g]->count; i++) {
            const struct node *n;
            int64_t tp;
            TRY(member(map->members[g], i, TP_MAX, &tp, &n, err));
            TRY(take_curve(t, same_node, gpu, tp, n, err));
        }
    }
    return OK;
}

static void add_host_fits(struct taken *t, const struct node *config)
{
    struct op_fit *fits = ARENA_ARRAY(t->a, struct op_fit, t->p.n_fits + config->count);
    if (t->p.n_fits) memcpy(fits, t->p.fits, t->p.n_fits * sizeof *fits);
    t->p.fits = fits;
    for (size_t i = 0; i < config->count; i++) {
        const struct sailor_gpu *gpu = sailor_gpu(config->members[i]->key);
        if (gpu)
            fits[t->p.n_fits++] = (struct op_fit){.base = gpu->catalogue,
                                                  .kind = OP_assemble,
                                                  .dtype = DTYPE_fp32,
                                                  .s_per_byte = 1 / gpu->host_Bps};
    }
}

static enum status open_file(struct arena *a, const char *folder, const char *name,
                             const struct node **out, struct error *err)
{
    struct node *n;
    TRY(document_read(a, arena_printf(a, "%s/%s", folder, name), &n, err));
    TRY(node_is(n, NODE_MAP, err));
    *out = n;
    return OK;
}

static enum status take(struct taken *t, const char *folder, struct error *err)
{
    const struct node *times, *info, *network, *inner, *config, *inter;
    TRY(open_file(t->a, folder, "profiles_tmp.json", &times, err));
    TRY(open_file(t->a, folder, "llm_info.json", &info, err));
    TRY(open_file(t->a, folder, "network_coeffs_all_homo.json", &network, err));
    TRY(open_file(t->a, folder, "intra_node_bandwidths.json", &inner, err));
    TRY(open_file(t->a, folder, "cluster_config.json", &config, err));
    t->models = ARENA_ARRAY(t->a, struct model, times->count);
    for (size_t i = 0; i < times->count; i++) TRY(take_model(t, times->members[i], info, err));
    TRY(node_need(network, "inter", &inter, err));
    TRY(take_curves(t, false, inter, err));
    TRY(take_curves(t, true, inner, err));
    TRY(op_fits_fit(t->a, &t->p, err));
    add_host_fits(t, config);
    return OK;
}

/* --- output ---------------------------------------------------------------------------------- */

/* Writes the complete file under its temporary name. */
static enum status write_model(struct arena *a, const char *folder, const struct model *m,
                               struct file *f, struct error *err)
{
    struct json j;
    TRY(file_open(f, arena_printf(a, "%s/%s.layers.json", folder, m->name), err));
    json_begin(&j, f->stream, JSON_INDENTED);
    json_put_object(&j, NULL);
    measured_model_write(&j, m);
    json_close(&j);
    json_end(&j);
    return file_finish(f, err);
}

static enum status swap_all(void *user, struct error *err)
{
    struct taken *t = user;
    common_hold_end_signals(true); /* the handler would restore the old models although the profile is committed */
    for (int32_t i = 0; i < t->n_files; i++) TRY(file_swap(&t->files[i], err));
    return OK;
}

/* Writes the profile and all models, or nothing: the models are renamed between the profile's rows and its commit. */
static enum status put_out(struct taken *t, const char *folder, const char *db, struct error *err)
{
    struct store *s = NULL;
    enum status st = db ? store_open(t->a, db, true, &s, err) : OK;
    t->files = ARENA_ARRAY(t->a, struct file, (size_t)t->n_models);
    while (st == OK && t->n_files < t->n_models) {
        st = write_model(t->a, folder, &t->models[t->n_files], &t->files[t->n_files], err);
        t->n_files++;
    }
    if (st == OK) st = db ? store_append_with(s, &t->p, swap_all, t, err) : swap_all(t, err);
    store_close(s);
    for (int32_t i = 0; i < t->n_files; i++) {
        if (st == OK) file_keep(&t->files[i]);
        file_abandon(&t->files[i]);
    }
    common_hold_end_signals(false);
    return st;
}

static void print_summary(const struct taken *t, const struct import_request *q, const char *folder)
{
    if (!q->json) {
        printf("sailor: %zu operator rows, %d link curves, %d models in %s", t->p.n_ops,
               (int)t->n_curves, (int)t->n_models, folder);
        if (q->db) printf(", profile %lld in %s", (long long)t->p.id, q->db);
        puts("");
        for (int32_t i = 0; i < t->n_models; i++)
            printf("  %s.layers.json: %lld layers\n", t->models[i].name,
                   (long long)t->models[i].layers);
        return;
    }
    struct json j;
    common_json_begin(&j);
    json_put_int(&j, "profile_id", t->p.id);
    json_put_int(&j, "rows", (int64_t)t->p.n_ops);
    json_put_int(&j, "curves", t->n_curves);
    json_put_list(&j, "models");
    for (int32_t i = 0; i < t->n_models; i++) json_put_text(&j, NULL, t->models[i].name);
    json_close(&j);
    common_json_end(&j);
}

/* Models are searched in the folder of the database. */
static const char *folder_of(struct arena *a, const struct import_request *q)
{
    const char *slash = q->db ? strrchr(q->db, '/') : NULL;
    return q->out ? q->out : slash ? arena_strndup(a, q->db, (size_t)(slash - q->db)) : ".";
}

enum status import_sailor(struct arena *a, const struct import_request *q, struct error *err)
{
    struct taken t = {.a = a,
                      .p = {.cluster = SAILOR_CLUSTER,
                            .cluster_hash = rng_hash_text(0, SAILOR_CLUSTER),
                            .machine = "",
                            .note = "imported from Sailor's artifact",
                            .calibrated_on = "",
                            .pace = 1}};
    const char *folder = folder_of(a, q);
    TRY(take(&t, q->path, err));
    TRY(put_out(&t, folder, q->db, err));
    print_summary(&t, q, folder);
    return OK;
}
