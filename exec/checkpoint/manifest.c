#include "exec/checkpoint/manifest.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/document.h"
#include "core/document/json.h"
#include "core/graph/loss_scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MAGIC "musher checkpoint"
#define GENERATOR "philox4x32-10"

/* ---- out --------------------------------------------------------------------------------------
 */

static const char *const scale_key[] = {"now", "good", "skipped"};

/* A training continued in another precision keeps the number of skipped steps. */
static bool has_scale(const struct checkpoint *c) { return c->scale[0] > 0 || c->scale[2] > 0; }

/* CRC of all values in a canonical form, independent of layout. */
static uint32_t manifest_crc(const struct checkpoint *c)
{
    char line[512];
    uLong crc = crc32_z(0, NULL, 0);
    int n =
        snprintf(line, sizeof line,
                 "%" PRId64 " %" PRIu64 " %s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRIu32 "\n",
                 c->step, c->seed, dtype_name(c->dtype), optimizer_name(c->optimizer),
                 c->global_batch, c->sequences, c->data_bytes, c->data_crc);
    crc = crc32_z(crc, (const Bytef *)line, (size_t)n);
    for (int i = 0; has_scale(c) && i < 3; i++) {
        n = snprintf(line, sizeof line, "%s %a\n", scale_key[i], (double)c->scale[i]);
        crc = crc32_z(crc, (const Bytef *)line, (size_t)n);
    }
    for (int32_t i = 0; i < c->n_islands; i++) {
        n = snprintf(line, sizeof line, "island %" PRId64 "\n", c->island_sequences[i]);
        crc = crc32_z(crc, (const Bytef *)line, (size_t)n);
    }
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        n = snprintf(line, sizeof line, "%s|%s|%d|%" PRId64 "|%" PRId64 "|%" PRIu32, t->name,
                     t->file, (int)t->dtype, t->offset, t->bytes, t->crc);
        crc = crc32_z(crc, (const Bytef *)line, (size_t)n);
        for (int32_t k = 0; k < t->shape.rank; k++) {
            n = snprintf(line, sizeof line, "|%" PRId64, t->shape.dim[k]);
            crc = crc32_z(crc, (const Bytef *)line, (size_t)n);
        }
    }
    return (uint32_t)crc;
}

static void write_tensor(struct json *j, const struct checkpoint_tensor *t)
{
    json_put_object_line(j, NULL);
    json_put_text(j, "name", t->name);
    json_put_list_line(j, "shape");
    for (int32_t k = 0; k < t->shape.rank; k++) json_put_int(j, NULL, t->shape.dim[k]);
    json_close(j);
    json_put_text(j, "dtype", dtype_name((enum dtype)t->dtype));
    json_put_text(j, "file", t->file);
    json_put_int(j, "offset", t->offset);
    json_put_int(j, "bytes", t->bytes);
    json_put_int(j, "crc32", t->crc);
    json_close(j);
}

enum status checkpoint_write_manifest(struct arena *a, const char *folder,
                                      const struct checkpoint *c, struct error *err)
{
    struct file f;
    struct json j;
    TRY(file_open(&f, arena_printf(a, "%s/" CHECKPOINT_MANIFEST, folder), err));
    json_begin(&j, f.stream, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_text(&j, "magic", MAGIC);
    json_put_int(&j, "version", CHECKPOINT_VERSION);
    json_put_text(&j, "byte_order", "little");
    json_put_int(&j, "step", c->step);
    json_put_text(&j, "dtype", dtype_name(c->dtype));
    json_put_text(&j, "optimizer", optimizer_name(c->optimizer));
    json_put_int(&j, "global_batch", c->global_batch);
    json_put_object_line(&j, "data");
    json_put_int(&j, "sequences", c->sequences);
    json_put_int(&j, "bytes", c->data_bytes);
    json_put_int(&j, "crc32", c->data_crc);
    json_close(&j);
    json_put_object_line(&j, "generator");
    json_put_text(&j, "algorithm", GENERATOR);
    json_put_int(&j, "seed", (int64_t)c->seed);
    json_put_int(&j, "counter", c->sequences);
    json_close(&j);
    if (has_scale(c)) {
        json_put_object_line(&j, "loss_scale");
        for (int i = 0; i < 3; i++) json_put_double(&j, scale_key[i], (double)c->scale[i]);
        json_close(&j);
    }
    if (c->n_islands) {
        json_put_list_line(&j, "islands");
        for (int32_t i = 0; i < c->n_islands; i++) json_put_int(&j, NULL, c->island_sequences[i]);
        json_close(&j);
    }
    json_put_list(&j, "tensors");
    for (int32_t i = 0; i < c->n_tensors; i++) write_tensor(&j, &c->tensors[i]);
    json_close(&j);
    json_put_int(&j, "crc32", manifest_crc(c));
    json_close(&j);
    json_end(&j);
    return file_commit(&f, err);
}

/* ---- in ---------------------------------------------------------------------------------------
 */

static enum status read_text(const struct node *map, const char *key, char *out, size_t n,
                             struct error *err)
{
    const struct node *node;
    const char *text;
    TRY(node_need(map, key, &node, err));
    TRY(node_text(node, &text, err));
    if (strlen(text) >= n) return node_error(node, err, "longer than %zu characters", n - 1);
    memcpy(out, text, strlen(text) + 1);
    return OK;
}

static enum status read_int(const struct node *map, const char *key, int64_t min, int64_t max,
                            int64_t *out, struct error *err)
{
    const struct node *node;
    TRY(node_need(map, key, &node, err));
    return node_int(node, min, max, out, err);
}

static enum status read_dtype(const struct node *map, enum dtype *out, struct error *err)
{
    char text[16];
    TRY(read_text(map, "dtype", text, sizeof text, err));
    return dtype_parse(text, out) ? OK : node_error(map, err, "dtype: '%s' is not known", text);
}

static enum status read_file(const struct node *map, struct checkpoint_tensor *t, struct error *err)
{
    TRY(read_text(map, "file", t->file, sizeof t->file, err));
    if (strchr(t->file, '/') || t->file[0] == '.' || !t->file[0])
        return node_error(map, err, "file: '%s' is not in this folder", t->file);
    return OK;
}

/* Checks every dimension and every product of them. */
static enum status read_shape(const struct node *map, struct shape *out, struct error *err)
{
    const struct node *shape;
    int64_t elements = 1;
    TRY(node_need(map, "shape", &shape, err));
    TRY(node_is(shape, NODE_LIST, err));
    if (shape->count > SHAPE_RANK_MAX)
        return node_error(shape, err, "more than %d dimensions", SHAPE_RANK_MAX);
    out->rank = (int32_t)shape->count;
    for (size_t k = 0; k < shape->count; k++) {
        TRY(node_int(shape->members[k], 0, CHECKPOINT_COUNT_MAX, &out->dim[k], err));
        if (out->dim[k] > 0 && elements > CHECKPOINT_COUNT_MAX / out->dim[k])
            return node_error(shape, err, "more than %" PRId64 " elements", CHECKPOINT_COUNT_MAX);
        elements *= out->dim[k];
    }
    return OK;
}

static enum status read_tensor(const struct node *n, struct checkpoint_tensor *t, struct error *err)
{
    enum dtype dtype;
    int64_t crc;
    TRY(read_text(n, "name", t->name, sizeof t->name, err));
    if (!t->name[0]) return node_error(n, err, "name: it is empty");
    TRY(read_file(n, t, err));
    TRY(read_dtype(n, &dtype, err));
    t->dtype = (int32_t)dtype;
    TRY(read_shape(n, &t->shape, err));
    TRY(read_int(n, "offset", 0, CHECKPOINT_COUNT_MAX, &t->offset, err));
    TRY(read_int(n, "bytes", 0, INT64_MAX, &t->bytes, err));
    int64_t wanted = shape_elements(&t->shape) * dtype_bytes(dtype);
    if (t->bytes != wanted)
        return node_error(n, err, "bytes: %" PRId64 " is not what its shape takes in %s, %" PRId64,
                          t->bytes, dtype_name(dtype), wanted);
    TRY(read_int(n, "crc32", 0, UINT32_MAX, &crc, err));
    t->crc = (uint32_t)crc;
    return OK;
}

static int by_name(const void *x, const void *y)
{
    return strcmp((*(struct checkpoint_tensor *const *)x)->name,
                  (*(struct checkpoint_tensor *const *)y)->name);
}

static enum status read_tensors(struct arena *a, const struct node *list, struct checkpoint *c,
                                struct error *err)
{
    TRY(node_is(list, NODE_LIST, err));
    c->n_tensors = (int32_t)list->count;
    c->tensors = ARENA_ARRAY(a, struct checkpoint_tensor, list->count + 1);
    struct checkpoint_tensor **sorted = ARENA_ARRAY(a, struct checkpoint_tensor *, list->count + 1);
    for (size_t i = 0; i < list->count; i++) {
        TRY(read_tensor(list->members[i], &c->tensors[i], err));
        sorted[i] = &c->tensors[i];
    }
    qsort(sorted, list->count, sizeof *sorted, by_name);
    for (size_t i = 1; i < list->count; i++)
        if (!strcmp(sorted[i - 1]->name, sorted[i]->name))
            return node_error(list, err, "tensor %s is listed twice", sorted[i]->name);
    return OK;
}

static enum status read_optimizer(const struct node *map, enum optimizer_kind *out,
                                  struct error *err)
{
    char text[16];
    TRY(read_text(map, "optimizer", text, sizeof text, err));
    int kind = 0;
    while (kind < OPTIMIZER_COUNT && strcmp(text, optimizer_name((enum optimizer_kind)kind)) != 0) kind++;
    if (kind == OPTIMIZER_COUNT) return node_error(map, err, "optimizer: '%s' is not known", text);
    *out = (enum optimizer_kind)kind;
    return OK;
}

static enum status read_position(const struct node *root, struct checkpoint *c, struct error *err)
{
    const struct node *data;
    int64_t crc;
    TRY(node_need(root, "data", &data, err));
    TRY(read_int(data, "sequences", 0, CHECKPOINT_COUNT_MAX, &c->sequences, err));
    TRY(read_int(data, "bytes", 0, CHECKPOINT_COUNT_MAX, &c->data_bytes, err));
    TRY(read_int(data, "crc32", 0, UINT32_MAX, &crc, err));
    c->data_crc = (uint32_t)crc;
    return OK;
}

static enum status read_generator(const struct node *root, struct checkpoint *c, struct error *err)
{
    const struct node *generator;
    char algorithm[32];
    int64_t seed, counter;
    TRY(node_need(root, "generator", &generator, err));
    TRY(read_text(generator, "algorithm", algorithm, sizeof algorithm, err));
    if (strcmp(algorithm, GENERATOR) != 0)
        return node_error(generator, err, "algorithm: '%s' is not '" GENERATOR "'", algorithm);
    TRY(read_int(generator, "seed", INT64_MIN, INT64_MAX, &seed, err));
    TRY(read_int(generator, "counter", 0, INT64_MAX, &counter, err));
    if (counter != c->sequences)
        return node_error(generator, err,
                          "counter: %" PRId64 " is not the number of sequences, %" PRId64, counter,
                          c->sequences);
    c->seed = (uint64_t)seed;
    return OK;
}

/* Steps since the last change, and skipped steps, are at most the steps done. */
static enum status read_scale(const struct node *root, struct checkpoint *c, struct error *err)
{
    const struct node *map = node_get(root, "loss_scale"), *n;
    for (int i = 0; map && i < 3; i++) {
        double x, most = i == LOSS_SCALE_NOW ? (double)LOSS_SCALE_MAX : (double)c->step;
        TRY(node_need(map, scale_key[i], &n, err));
        TRY(node_double(n, 0, most, &x, err));
        c->scale[i] = (float)x;
        if (i != LOSS_SCALE_NOW && (x != floor(x) || x != (double)c->scale[i]))
            return node_error(n, err, "%.17g is not a number of steps", x);
    }
    return OK;
}

static enum status read_islands(struct arena *a, const struct node *root, struct checkpoint *c, struct error *err)
{
    const struct node *list = node_get(root, "islands");
    if (!list) return OK;
    TRY(node_is(list, NODE_LIST, err));
    c->n_islands = (int32_t)list->count;
    c->island_sequences = ARENA_ARRAY(a, int64_t, list->count);
    for (size_t i = 0; i < list->count; i++)
        TRY(node_int(list->members[i], 1, CHECKPOINT_COUNT_MAX, &c->island_sequences[i], err));
    return OK;
}

static enum status read_head(const struct node *root, struct checkpoint *c, struct error *err)
{
    char magic[32], order[16];
    int64_t version;
    TRY(node_is(root, NODE_MAP, err));
    TRY(read_text(root, "magic", magic, sizeof magic, err));
    if (strcmp(magic, MAGIC) != 0)
        return node_error(root, err, "magic: '%s' is not '" MAGIC "'", magic);
    TRY(read_int(root, "version", 0, INT64_MAX, &version, err));
    if (version != CHECKPOINT_VERSION)
        return node_error(
            root, err, "checkpoint version %" PRId64 "%s; this musher reads version %d", version,
            version == 1 ? ", which has no data position" : version == 2 ? ", whose files are not in the safetensors format" : "", CHECKPOINT_VERSION);
    TRY(read_text(root, "byte_order", order, sizeof order, err));
    if (strcmp(order, "little") != 0)
        return node_error(root, err, "byte_order: '%s' is not 'little'", order);
    TRY(read_int(root, "step", 0, CHECKPOINT_COUNT_MAX, &c->step, err));
    TRY(read_dtype(root, &c->dtype, err));
    TRY(read_optimizer(root, &c->optimizer, err));
    TRY(read_int(root, "global_batch", 0, CHECKPOINT_COUNT_MAX, &c->global_batch, err));
    TRY(read_position(root, c, err));
    TRY(read_scale(root, c, err));
    return read_generator(root, c, err);
}

enum status checkpoint_read_manifest(struct arena *a, const char *folder, struct checkpoint *c,
                                     struct error *err)
{
    struct node *root;
    const struct node *tensors;
    int64_t crc;
    *c = (struct checkpoint){.folder = arena_strdup(a, folder)};
    TRY(document_read(a, arena_printf(a, "%s/" CHECKPOINT_MANIFEST, folder), &root, err));
    TRY(read_head(root, c, err));
    TRY(read_islands(a, root, c, err));
    TRY(node_need(root, "tensors", &tensors, err));
    TRY(read_tensors(a, tensors, c, err));
    TRY(read_int(root, "crc32", 0, UINT32_MAX, &crc, err));
    if (crc != manifest_crc(c)) return node_error(root, err, "crc32: the manifest is damaged");
    return OK;
}
