#include "exec/checkpoint/weights.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/nearest.h"
#include "core/document/document.h"
#include "core/graph/half.h"
#include "core/model/weight.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SINGLE "model.safetensors"
#define INDEX SINGLE ".index.json"
enum { NAME_BYTES = 256, BLOCK_ELEMENTS = 1 << 17 };

/* ---- the folder ------------------------------------------------------------------------------- */

static int by_name(const void *x, const void *y) { return strcmp(((const struct weight *)x)->name, ((const struct weight *)y)->name); }

const struct weight *weights_find(const struct weights *w, const char *name)
{
    const struct weight key = {.name = name};
    return w->n ? bsearch(&key, w->tensors, (size_t)w->n, sizeof key, by_name) : NULL;
}

/* All tensors of all files, each name once. */
static enum status collect(struct arena *a, struct weights *w, struct error *err)
{
    int64_t n = 0;
    for (int32_t i = 0; i < w->n_files; i++) n += w->files[i].n;
    w->tensors = ARENA_ARRAY(a, struct weight, (size_t)n + 1);
    for (int32_t i = 0; i < w->n_files; i++)
        for (int32_t k = 0; k < w->files[i].n; k++) w->tensors[w->n++] = (struct weight){w->files[i].tensors[k].name, &w->files[i].tensors[k], i};
    qsort(w->tensors, (size_t)w->n, sizeof *w->tensors, by_name);
    for (int32_t i = 1; i < w->n; i++)
        if (!by_name(&w->tensors[i - 1], &w->tensors[i]))
            return error_set(err, ERR_INPUT, "tensor %s is in '%s' and in '%s'", w->tensors[i].name, w->files[w->tensors[i - 1].file].path,
                             w->files[w->tensors[i].file].path);
    return OK;
}

/* The file's place in the list, where it is appended if it is new. */
static enum status file_of(struct arena *a, const struct node *n, const char **names, struct weights *w, int32_t *out, struct error *err)
{
    const char *name;
    TRY(node_text(n, &name, err));
    if (strchr(name, '/') || name[0] == '.' || !name[0]) return node_error(n, err, "'%s' is not a file of this folder", name);
    int32_t i = 0;
    while (i < w->n_files && strcmp(names[i], name) != 0) i++;
    *out = i;
    if (i < w->n_files) return OK;
    names[w->n_files++] = name;
    return safetensors_read(a, arena_printf(a, "%s/%s", w->folder, name), &w->files[i], err);
}

static enum status open_index(struct arena *a, const char *path, struct weights *w, struct error *err)
{
    struct node *root;
    const struct node *map;
    TRY(document_read(a, path, &root, err));
    TRY(node_need(root, "weight_map", &map, err));
    TRY(node_is(map, NODE_MAP, err));
    const char **names = ARENA_ARRAY(a, const char *, map->count + 1);
    int32_t *file = ARENA_ARRAY(a, int32_t, map->count + 1);
    w->files = ARENA_ARRAY(a, struct safetensors, map->count + 1);
    for (size_t i = 0; i < map->count; i++) TRY(file_of(a, map->members[i], names, w, &file[i], err));
    TRY(collect(a, w, err));
    for (size_t i = 0; i < map->count; i++) {
        const struct weight *x = weights_find(w, map->members[i]->key);
        if (!x || x->file != file[i]) return node_error(map->members[i], err, "'%s' has no such tensor", names[file[i]]);
    }
    if (map->count != (size_t)w->n) return node_error(map, err, "it has %zu tensors, its files have %" PRId32, map->count, w->n);
    return OK;
}

enum status weights_open(struct arena *a, const char *folder, struct weights *out, struct error *err)
{
    const char *single = arena_printf(a, "%s/" SINGLE, folder), *index = arena_printf(a, "%s/" INDEX, folder);
    *out = (struct weights){.folder = arena_strdup(a, folder)};
    if (!access(single, F_OK)) {
        out->files = ARENA_ARRAY(a, struct safetensors, 1);
        out->n_files = 1;
        TRY(safetensors_read(a, single, out->files, err));
        return collect(a, out, err);
    }
    if (access(folder, F_OK)) return error_set(err, ERR_INPUT, "cannot read folder '%s': %s", folder, strerror(errno));
    if (access(index, F_OK))
        return error_set(err, ERR_INPUT, "'%s' has neither " SINGLE " nor " INDEX "; expected a folder as transformers writes it, or one checkpoint, DIR/step-...",
                         folder);
    return open_index(a, index, out, err);
}

/* ---- values ----------------------------------------------------------------------------------- */

static double value_of(enum dtype t, const void *from, int64_t i)
{
    if (t == DTYPE_fp64) return ((const double *)from)[i];
    return t == DTYPE_fp32 ? (double)((const float *)from)[i] : (double)half_value(t, ((const uint16_t *)from)[i]);
}

static void convert(enum dtype from, const void *x, enum dtype to, void *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double value = value_of(from, x, i);
        if (to == DTYPE_fp64)
            ((double *)y)[i] = value;
        else if (to == DTYPE_fp32)
            ((float *)y)[i] = (float)value;
        else
            ((uint16_t *)y)[i] = half_of(to, (float)value);
    }
}

enum status weights_read(const struct weights *w, const struct weight *x, int64_t first, int64_t n, enum dtype dtype, void *out, struct error *err)
{
    static _Thread_local char block[BLOCK_ELEMENTS * sizeof(double)];
    const char *path = w->files[x->file].path;
    enum dtype stored = (enum dtype)x->at->dtype;
    enum status status = OK;
    int fd;
    TRY(file_open_regular(path, &fd, NULL, err));
    for (int64_t at = 0, m; at < n && status == OK; at += m) {
        char *to = (char *)out + at * dtype_bytes(dtype);
        m = n - at < BLOCK_ELEMENTS ? n - at : BLOCK_ELEMENTS;
        status = file_read_at(fd, path, x->at->offset + (first + at) * dtype_bytes(stored), block, m * dtype_bytes(stored), err);
        if (status == OK) convert(stored, block, dtype, to, m);
        for (int64_t i = 0; i < m && status == OK; i++)
            if (!isfinite(value_of(dtype, to, i)))
                status = error_set(err, ERR_INPUT, "'%s': tensor %s: element %" PRId64 " is %g, which %s does not have as a finite number", path, x->at->name,
                                   first + at + i, value_of(stored, block, i), dtype_name(dtype));
    }
    close(fd);
    return status;
}

/* Rows of a tensor. Parts but the first have equal numbers of rows. */
static enum status load_joined(const struct weights *w, const char *parameter, const struct weight_join *join, const struct shape *shape, enum dtype dtype,
                               void *out, struct error *err)
{
    char name[NAME_BYTES];
    int64_t n = shape_elements(shape);
    snprintf(name, sizeof name, "%.*s", (int)join->name_bytes, parameter);
    const struct weight *x = weights_find(w, name);
    if (!x) return error_set(err, ERR_INPUT, "'%s' has no tensor %s", w->folder, name);
    int64_t all = shape_elements(&x->at->shape), first = join->part ? all - (join->parts - join->part) * n : 0;
    if (x->at->shape.rank != 2 || shape->rank != 2 || x->at->shape.dim[1] != shape->dim[1] || first < 0 || first + n > all)
        return error_set(err, ERR_INPUT, "'%s': tensor %s has another shape than the program's", w->folder, name);
    return weights_read(w, x, first, n, dtype, out, err);
}

enum status weights_load(const struct weights *w, const char *parameter, const struct shape *shape, enum dtype dtype, void *out, struct error *err)
{
    int64_t parts = weight_parts(parameter, shape), each = shape_elements(shape) / (parts ? parts : 1);
    char name[NAME_BYTES];
    struct shape part;
    struct weight_join join;
    if (weight_joined(parameter, &join)) return load_joined(w, parameter, &join, shape, dtype, out, err);
    for (int64_t i = 0; i < parts; i++) {
        const struct weight *x = weight_part(parameter, shape, i, name, sizeof name, &part) ? weights_find(w, name) : NULL;
        if (!x) return error_set(err, ERR_INPUT, "'%s' has no tensor %s", w->folder, name);
        if (!shape_equal(&part, &x->at->shape)) return error_set(err, ERR_INPUT, "'%s': tensor %s has another shape than the program's", w->folder, name);
        TRY(weights_read(w, x, 0, each, dtype, (char *)out + i * each * dtype_bytes(dtype), err));
    }
    return OK;
}

/* ---- whether they are those of a model -------------------------------------------------------- */

struct wanted { /* a tensor on disk */
    const char *name;
    struct shape shape;
    bool found;
};

static int by_wanted(const void *x, const void *y) { return strcmp(((const struct wanted *)x)->name, ((const struct wanted *)y)->name); }

static struct wanted *find_wanted(struct wanted *all, int64_t n, const char *name)
{
    const struct wanted key = {.name = name};
    return n ? bsearch(&key, all, (size_t)n, sizeof key, by_wanted) : NULL;
}

/* Parts of one tensor, which are neighbours, become that tensor. */
static int64_t join_wanted(struct arena *a, struct wanted *all, int64_t n)
{
    struct weight_join join;
    int64_t m = 0;
    for (int64_t i = 0; i < n; i++) {
        bool joined = weight_joined(all[i].name, &join);
        if (joined && join.part && m && weight_is_part_of(all[i].name, &join, all[m - 1].name)) {
            all[m - 1].shape.dim[0] += all[i].shape.dim[0];
            continue;
        }
        all[m++] = all[i];
        if (joined && !join.part) all[m - 1].name = arena_printf(a, "%.*s", (int)join.name_bytes, all[i].name);
    }
    return m;
}

static enum status list_wanted(struct arena *a, const struct weight_wanted *parameters, int32_t n, struct wanted **out, int64_t *n_out, struct error *err)
{
    int64_t most = 0, m = 0;
    char name[NAME_BYTES];
    for (int32_t i = 0; i < n; i++) most += weight_parts(parameters[i].name, &parameters[i].shape);
    *out = ARENA_ARRAY(a, struct wanted, (size_t)most + 1);
    for (int32_t i = 0; i < n; i++)
        for (int64_t k = 0; k < weight_parts(parameters[i].name, &parameters[i].shape); k++) {
            struct wanted *x = &(*out)[m++];
            if (!weight_part(parameters[i].name, &parameters[i].shape, k, name, sizeof name, &x->shape))
                return error_set(err, ERR_INPUT, "parameter %s: its name is too long for a file of weights", parameters[i].name);
            x->name = arena_strdup(a, name);
        }
    qsort(*out, (size_t)m, sizeof **out, by_wanted);
    *n_out = join_wanted(a, *out, m);
    return OK;
}

static const char *shape_text(struct arena *a, const struct shape *s)
{
    char *text = arena_strdup(a, "(");
    for (int32_t i = 0; i < s->rank; i++) text = arena_printf(a, "%s%s%" PRId64, text, i ? ", " : "", s->dim[i]);
    return arena_join(a, text, ")");
}

static enum status unknown(const struct weights *w, const struct weight *x, const struct wanted *all, int64_t n, struct error *err)
{
    char hint[NEAREST_HINT];
    struct nearest q = nearest_to(x->name);
    for (int64_t i = 0; i < n; i++) nearest_try(&q, all[i].name);
    return error_set(err, ERR_INPUT, "'%s': tensor %s is not one of the model%s", w->files[x->file].path, x->name, nearest_hint(&q, hint));
}

static enum status check_one(struct arena *a, const struct weights *w, const struct weight *x, struct wanted *to, struct error *err)
{
    const char *path = w->files[x->file].path;
    if (to->found) return error_set(err, ERR_INPUT, "'%s' has tensor %s in two spellings", w->folder, to->name);
    if (x->at->dtype < 0 || x->at->dtype == DTYPE_int32)
        return error_set(err, ERR_INPUT, "'%s': tensor %s is %s; weights are F32, F64, BF16 or F16", path, x->name, x->at->stored);
    if (!shape_equal(&x->at->shape, &to->shape))
        return error_set(err, ERR_INPUT, "'%s': tensor %s has shape %s, the model's %s", path, x->name, shape_text(a, &x->at->shape), shape_text(a, &to->shape));
    to->found = true;
    return OK;
}

/* A tied head: equal bytes, block by block. */
static enum status check_repeated(const struct weights *w, const struct weight *x, const struct weight *other, struct error *err)
{
    static double block[2][BLOCK_ELEMENTS];
    int64_t n = shape_elements(&x->at->shape);
    if (x->at->dtype < 0 || x->at->dtype == DTYPE_int32 || other->at->dtype < 0 || !shape_equal(&x->at->shape, &other->at->shape))
        return error_set(err, ERR_INPUT, "'%s': tensor %s does not repeat %s: its dtype or shape differs", w->files[x->file].path, x->name, other->name);
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < BLOCK_ELEMENTS ? n - at : BLOCK_ELEMENTS;
        TRY(weights_read(w, x, at, m, DTYPE_fp64, block[0], err));
        TRY(weights_read(w, other, at, m, DTYPE_fp64, block[1], err));
        for (int64_t i = 0; i < m; i++)
            if (block[0][i] < block[1][i] || block[0][i] > block[1][i])
                return error_set(err, ERR_INPUT, "'%s': tensor %s differs from %s, and the model's embeddings are tied: set tie_word_embeddings: false",
                                 w->files[x->file].path, x->name, other->name);
    }
    return OK;
}

static const struct weight *repeated(const struct weights *w, const char *name)
{
    const char *other;
    for (int i = 0; (other = weight_repeats(name, i)); i++)
        if (weights_find(w, other)) return weights_find(w, other);
    return NULL;
}

enum status weights_match(struct arena *a, struct weights *w, const struct weight_wanted *parameters, int32_t n, struct error *err)
{
    struct wanted *all;
    int64_t n_all;
    bool *spare = ARENA_ARRAY(a, bool, (size_t)w->n + 1);
    TRY(list_wanted(a, parameters, n, &all, &n_all, err));
    for (int32_t i = 0; i < w->n; i++) {
        struct weight *x = &w->tensors[i];
        struct wanted *to = find_wanted(all, n_all, x->name);
        const char *other;
        for (int k = 0; !to && (other = weight_other_name(a, x->name, k)); k++) to = find_wanted(all, n_all, other);
        if (to) TRY(check_one(a, w, x, to, err));
        if (to) x->name = to->name;
        spare[i] = !to;
    }
    struct weight *kept = ARENA_ARRAY(a, struct weight, (size_t)w->n + 1), *others = ARENA_ARRAY(a, struct weight, (size_t)w->n + 1);
    int32_t n_kept = 0, n_others = 0;
    for (int32_t i = 0; i < w->n; i++)
        if (!spare[i])
            kept[n_kept++] = w->tensors[i];
        else
            others[n_others++] = w->tensors[i];
    qsort(kept, (size_t)n_kept, sizeof *kept, by_name);
    w->tensors = kept, w->n = n_kept;
    for (int32_t i = 0; i < n_others; i++) {
        const struct weight *same = repeated(w, others[i].name);
        if (!same && !weight_ignored(others[i].name)) return unknown(w, &others[i], all, n_all, err);
        if (same) TRY(check_repeated(w, &others[i], same, err));
    }
    for (int64_t i = 0; i < n_all; i++)
        if (!all[i].found) return error_set(err, ERR_INPUT, "'%s' has no tensor %s, which the model needs", w->folder, all[i].name);
    return OK;
}
