/* core/model/job.c - job.yaml to struct job and back.
 *
 * Relative paths start at the job file's folder. The model is embedded in full.
 */
#include "core/model/job.h"

#include "core/base/arena.h"
#include "core/base/units.h"
#include "core/document/canonical.h"
#include "core/model/keys.h"
#include "core/model/relative_path.h"

#include <inttypes.h>
#include <string.h>

enum {
    SEQUENCE_MAX = 1 << 27, /* model.c's bound of positions */
    BATCH_MAX = 1 << 24,
    SIZES_MAX = sizeof((struct job *)0)->microbatch_sizes / sizeof(int64_t),
};

static const struct node *given(const struct node *map, const char *key)
{
    const struct node *n = node_get(map, key);
    return n && n->kind != NODE_NULL ? n : NULL;
}

/* The model's name is "tiny" for "models/tiny.json" unless the file states one. */
static const char *base_name(struct arena *a, const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *dot = strrchr(name, '.');
    return dot && dot != name ? arena_strndup(a, name, (size_t)(dot - name)) : name;
}

static enum status read_model_file(struct arena *a, const struct node *n, const char *folder,
                                   struct job *out, struct error *err)
{
    const char *path;
    struct node *config;
    struct error why = {0};
    TRY(node_text(n, &path, err));
    if (!*path) return node_error(n, err, "must be the path of a config.json or the map itself");
    out->model_file = relative_path_in(a, folder, path);
    enum status st = document_read(a, out->model_file, &config, &why);
    if (st == OK) st = model_parse(a, config, base_name(a, path), &out->model, &why);
    if (st == ERR_INPUT) return node_error(n, err, "%s", why.text);
    return st == OK ? OK : error_set(err, st, "%s", why.text);
}

static enum status read_model(struct arena *a, const struct node *root, const char *folder,
                              struct job *out, struct error *err)
{
    const struct node *n;
    TRY(node_need(root, "model", &n, err));
    return n->kind == NODE_MAP ? model_parse(a, n, NULL, &out->model, err)
                               : read_model_file(a, n, folder, out, err);
}

static enum status read_sequence(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n;
    bool images = model_pixels(&j->model) > 0;
    j->sequence_length = j->model.max_positions;
    if (images && !given(root, "sequence_length")) return OK;
    TRY(node_need(root, "sequence_length", &n, err));
    TRY(node_int(n, 1, SEQUENCE_MAX, &j->sequence_length, err));
    if (images && j->sequence_length != j->model.max_positions)
        return node_error(n, err,
                          "%" PRId64 ": an image has %" PRId64
                          " positions in model %.80s; omit sequence_length or set it to that",
                          j->sequence_length, j->model.max_positions, j->model.name);
    if (j->sequence_length > j->model.max_positions)
        return node_error(n, err,
                          "%" PRId64 " is longer than the %" PRId64 " positions of model %.80s",
                          j->sequence_length, j->model.max_positions, j->model.name);
    return OK;
}

static enum status read_size(const struct node *n, struct job *j, struct error *err)
{
    int64_t size;
    TRY(node_int(n, 1, BATCH_MAX, &size, err));
    if (j->global_batch % size)
        return node_error(n, err, "%" PRId64 " does not divide global_batch %" PRId64, size,
                          j->global_batch);
    for (int32_t i = 0; i < j->n_microbatches_sizes; i++)
        if (j->microbatch_sizes[i] == size)
            return node_error(n, err, "%" PRId64 " is given twice", size);
    j->microbatch_sizes[j->n_microbatches_sizes++] = size;
    return OK;
}

static enum status read_batches(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n;
    TRY(node_need(root, "global_batch", &n, err));
    TRY(node_int(n, 1, BATCH_MAX, &j->global_batch, err));
    n = given(root, "microbatch");
    if (!n) return OK;
    if (n->kind != NODE_LIST) return read_size(n, j, err);
    if (n->count < 1 || n->count > SIZES_MAX)
        return node_error(n, err, "must be 1 to %d sizes, found %zu", SIZES_MAX, n->count);
    for (size_t i = 0; i < n->count; i++) TRY(read_size(n->members[i], j, err));
    return OK;
}

enum { LAYERS_MAX = 1000000 };

static enum status read_layers(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "layers");
    int64_t number;
    if (!n) return OK;
    j->layers_at = n;
    if (n->kind == NODE_SCALAR && !strcmp(n->text, "coarse"))
        j->layers.by = LAYERS_COARSE;
    else if (n->kind == NODE_SCALAR && !strcmp(n->text, "fine"))
        j->layers.by = LAYERS_FINE;
    else if (n->kind != NODE_SCALAR || node_int(n, 1, LAYERS_MAX, &number, NULL) != OK)
        return node_error(n, err, "must be coarse, fine or a number of layers");
    else
        j->layers = (struct layers_choice){LAYERS_NUMBER, (int32_t)number};
    return OK;
}

static enum status read_precision(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "precision");
    j->precision = DTYPE_fp32;
    if (!n) return OK;
    if (n->kind == NODE_SCALAR && dtype_parse(n->text, &j->precision) &&
        j->precision != DTYPE_int32)
        return OK;
    static const char *const names[] = {"fp32", "fp64", "bf16", "fp16", NULL};
    int ignored;
    return node_choice(n, names, &ignored, err);
}

enum { GROWS_MAX = 1000000 };

static enum status read_scale(const struct node *n, double *out, struct error *err)
{
    TRY(node_double(n, 0, (double)LOSS_SCALE_MAX, out, err));
    if (*out >= (double)LOSS_SCALE_MIN) return OK;
    return node_error(n, err, "must be at least %g, found '%s'", (double)LOSS_SCALE_MIN, n->text);
}

static enum status read_loss_scale(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "loss_scale");
    struct loss_scale s = {LOSS_SCALE_INITIAL, LOSS_SCALE_GROWS_AFTER};
    if (n && j->precision != DTYPE_fp16)
        return node_error(n, err,
                          "only precision fp16 has a loss scale; %s needs none",
                          dtype_name(j->precision));
    if (j->precision != DTYPE_fp16) return OK;
    if (n && n->kind == NODE_SCALAR) {
        s.grows_after = 0;
        TRY(read_scale(n, &s.initial, err));
    } else if (n) {
        TRY(node_is(n, NODE_MAP, err));
        TRY(document_keys(n, job_loss_scale_keys, err));
        if (given(n, "initial")) TRY(read_scale(node_get(n, "initial"), &s.initial, err));
        TRY(node_get_int(n, "grows_after", 1, GROWS_MAX, &s.grows_after, err));
    }
    j->loss_scale = s;
    return OK;
}

static enum status read_dropout(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "dropout");
    if (!n) return OK;
    if (j->model.measured)
        return node_error(n, err, "measured layers have the dropout that they were measured with");
    if (n->kind == NODE_SCALAR && !strcmp(n->text, "config")) {
        j->dropout = DROPOUT_CONFIG;
        j->model.hidden_dropout = j->model.config_hidden_dropout;
        j->model.embedding_dropout = j->model.config_embedding_dropout;
        return OK;
    }
    j->dropout = DROPOUT_RATE;
    if (n->kind != NODE_SCALAR || node_double(n, 0, 1, &j->dropout_rate, NULL) != OK ||
        j->dropout_rate >= 1)
        return node_error(n, err, "must be config, or a rate from 0 to below 1");
    j->model.hidden_dropout = j->model.embedding_dropout = j->dropout_rate;
    return OK;
}

static enum status read_balance(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "balance");
    if (!n) return OK;
    if (!j->model.experts)
        return node_error(n, err, "model %.80s has no experts to balance", j->model.name);
    return node_double(n, 0, 1e3, &j->model.balance, err);
}

static enum status read_imbalance(const struct node *root, struct job *j, struct error *err)
{
    const struct node *n = given(root, "expert_imbalance");
    const struct model *m = &j->model;
    if (!n) return OK;
    if (!m->experts) return node_error(n, err, "model %.80s has no experts", m->name);
    if (m->capacity_factor > 0)
        return node_error(n, err,
                          "the model's capacity_factor %g already bounds the load of an expert",
                          m->capacity_factor);
    return node_double(n, 1, (double)m->experts, &j->model.expert_imbalance, err);
}

bool job_run_tokens(const char *text, int64_t *out)
{
    double count = 0;
    if (!units_parse_count(text, &count) || !(count >= 1 && count <= 1e18)) return false;
    *out = (int64_t)count;
    return true;
}

static enum status read_run(const struct node *root, struct job *j, struct error *err)
{
    bool images = model_pixels(&j->model) > 0;
    const char *key = images ? "images" : "tokens", *other = images ? "tokens" : "images";
    const struct node *n = given(root, key), *wrong = given(root, other);
    if (wrong)
        return node_error(wrong, err, "model %.80s has %s, not %s: write `%s:`", j->model.name, key,
                          other, key);
    if (!n) return OK;
    TRY(node_is(n, NODE_SCALAR, err));
    if (job_run_tokens(n->text, &j->run_tokens)) return OK;
    return node_error(n, err, "'%.40s' " JOB_NO_COUNT, n->text);
}

static enum status read_init(struct arena *a, const struct node *root, const char *folder, struct job *j, struct error *err)
{
    const struct node *n = given(root, "init");
    const char *path;
    if (!n) return OK;
    TRY(node_text(n, &path, err));
    if (!*path) return node_error(n, err, "must be the path of a folder with weights");
    if (j->model.measured) return node_error(n, err, "measured layers have no weights to start from");
    j->init = relative_path_absolute(a, folder, path);
    return OK;
}

enum status job_parse(struct arena *a, const struct node *root, const char *folder, struct job *out,
                      struct error *err)
{
    struct job j = {0};
    int64_t seed = 1;
    TRY(canonical_kind(root, "job", err));
    TRY(document_keys(root, job_keys, err));
    TRY(canonical_version(root, err));
    TRY(read_model(a, root, folder, &j, err));
    TRY(read_imbalance(root, &j, err)); /* sizes the graph */
    TRY(read_sequence(root, &j, err));
    TRY(read_batches(root, &j, err));
    TRY(read_layers(root, &j, err));
    TRY(read_precision(root, &j, err));
    TRY(read_loss_scale(root, &j, err));
    TRY(optimizer_read(root, &j.optimizer, err));
    TRY(read_dropout(root, &j, err));
    TRY(read_balance(root, &j, err));
    TRY(read_run(root, &j, err));
    TRY(data_source_read(a, root, folder, &j.data, err));
    TRY(read_init(a, root, folder, &j, err));
    TRY(node_get_int(root, "seed", 0, INT64_MAX, &seed, err));
    j.seed = (uint64_t)seed;
    *out = j;
    return OK;
}

enum status job_read(struct arena *a, const char *path, struct job *out, struct error *err)
{
    struct node *root;
    const char *slash = strrchr(path, '/');
    TRY(document_read(a, path, &root, err));
    return job_parse(a, root, slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".", out,
                     err);
}

/* --- writing --- */

static void line(FILE *out, int indent, const char *key, int64_t value)
{
    canonical_indent(out, indent);
    fprintf(out, "%s: %" PRId64 "\n", key, value);
}

static void line_double(FILE *out, int indent, const char *key, double value)
{
    canonical_indent(out, indent);
    fprintf(out, "%s: ", key);
    canonical_double(out, value);
    fputc('\n', out);
}

static void write_microbatch(FILE *out, const struct job *j, int indent)
{
    if (j->n_microbatches_sizes == 1) line(out, indent, "microbatch", j->microbatch_sizes[0]);
    if (j->n_microbatches_sizes < 2) return;
    canonical_indent(out, indent);
    for (int32_t i = 0; i < j->n_microbatches_sizes; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "microbatch: [", j->microbatch_sizes[i]);
    fputs("]\n", out);
}

static void write_layers(FILE *out, const struct job *j, int indent)
{
    if (j->layers.by == LAYERS_NUMBER) line(out, indent, "layers", j->layers.n);
    if (j->layers.by != LAYERS_COARSE && j->layers.by != LAYERS_FINE) return;
    canonical_indent(out, indent);
    fprintf(out, "layers: %s\n", j->layers.by == LAYERS_FINE ? "fine" : "coarse");
}

/* The default is omitted. */
static void write_loss_scale(FILE *out, const struct job *j, int indent)
{
    const struct loss_scale *s = &j->loss_scale;
    if (!(s->initial > 0) ||
        (s->initial >= LOSS_SCALE_INITIAL && s->initial <= LOSS_SCALE_INITIAL &&
         s->grows_after == LOSS_SCALE_GROWS_AFTER))
        return;
    canonical_indent(out, indent);
    fputs(s->grows_after ? "loss_scale: {initial: " : "loss_scale: ", out);
    canonical_double(out, s->initial);
    if (s->grows_after) fprintf(out, ", grows_after: %" PRId64 "}", s->grows_after);
    fputc('\n', out);
}

void job_write(FILE *out, struct arena *a, const struct job *j, int indent)
{
    line(out, indent, "version", 1);
    canonical_indent(out, indent);
    fprintf(out, "model: %s\n", model_write(a, &j->model));
    line(out, indent, "sequence_length", j->sequence_length);
    line(out, indent, "global_batch", j->global_batch);
    write_microbatch(out, j, indent);
    write_layers(out, j, indent);
    canonical_indent(out, indent);
    fprintf(out, "precision: %s\n", dtype_name(j->precision));
    write_loss_scale(out, j, indent);
    optimizer_write(out, &j->optimizer, indent);
    if (j->dropout != DROPOUT_NONE) {
        canonical_indent(out, indent);
        fputs("dropout: ", out);
        if (j->dropout == DROPOUT_CONFIG)
            fputs("config", out);
        else
            canonical_double(out, j->dropout_rate);
        fputc('\n', out);
    }
    if (j->model.balance > 0) line_double(out, indent, "balance", j->model.balance);
    if (j->model.expert_imbalance > 0)
        line_double(out, indent, "expert_imbalance", j->model.expert_imbalance);
    if (j->run_tokens)
        line(out, indent, model_pixels(&j->model) ? "images" : "tokens", j->run_tokens);
    data_source_write(out, &j->data, indent);
    if (j->init) {
        canonical_indent(out, indent);
        fputs("init: ", out);
        canonical_text(out, j->init);
        fputc('\n', out);
    }
    canonical_indent(out, indent);
    fprintf(out, "seed: %" PRIu64 "\n", j->seed);
}
