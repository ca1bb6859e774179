#include "exec/checkpoint/files.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/document/json.h"
#include "core/model/weight.h"
#include "exec/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Atomic int injected;

void checkpoint_fail(int why) { injected = why; }

static enum status fail_if_injected(const char *folder, const char *file, struct error *err)
{
    return injected ? error_set(err, ERR_RESOURCE, "cannot write '%s/%s': %s", folder, file, strerror(injected)) : OK;
}

/* ---- headers ---------------------------------------------------------------------------------- */

/* Appends the rows of part 1, 2 … of a joined tensor to those of the parts before it, if they are there. within: their bytes. */
static bool join_rows(const struct checkpoint_tensor *t, const struct weight_join *join, struct safetensors_tensor *x, int64_t *within)
{
    if (!weight_is_part_of(t->name, join, x->name) || x->dtype != t->dtype || x->shape.rank != 2 || t->shape.rank != 2 || x->shape.dim[1] != t->shape.dim[1])
        return false;
    *within = shape_elements(&x->shape) * dtype_bytes((enum dtype)t->dtype);
    x->shape.dim[0] += t->shape.dim[0];
    return true;
}

/* The header of tensors that follow each other, under their names on disk; sets their offsets. */
static enum status make_head(struct arena *a, struct checkpoint_tensor *const *tensors, int32_t n, struct checkpoint_layout_file *out, struct error *err)
{
    int64_t most = 0;
    for (int32_t i = 0; i < n; i++) most += weight_parts(tensors[i]->name, &tensors[i]->shape);
    int32_t *first = ARENA_ARRAY(a, int32_t, (size_t)n + 1);
    int64_t *within = ARENA_ARRAY(a, int64_t, (size_t)n + 1); /* bytes of earlier parts of a joined tensor */
    out->stored = ARENA_ARRAY(a, struct safetensors_tensor, (size_t)most + 1);
    for (int32_t i = 0; i < n; i++) {
        const struct checkpoint_tensor *t = tensors[i];
        int64_t parts = weight_parts(t->name, &t->shape);
        struct weight_join join;
        bool joined = weight_joined(t->name, &join), follows = false;
        if (joined && join.part && out->n_stored) follows = join_rows(t, &join, &out->stored[out->n_stored - 1], &within[i]);
        first[i] = out->n_stored - follows;
        for (int64_t k = 0; k < parts && !follows; k++) {
            struct safetensors_tensor *x = &out->stored[out->n_stored++];
            char name[sizeof t->name];
            if (!weight_part(t->name, &t->shape, k, name, sizeof name, &x->shape))
                return error_set(err, ERR_INPUT, "parameter %s: its name is too long for a checkpoint", t->name);
            if (joined && !join.part) name[join.name_bytes] = '\0';
            x->name = arena_strdup(a, name), x->dtype = t->dtype;
        }
    }
    out->head = safetensors_head(a, out->stored, out->n_stored, &out->head_bytes);
    for (int32_t i = 0; i < n; i++) tensors[i]->offset = first[i] < out->n_stored ? out->stored[first[i]].offset + within[i] : out->head_bytes;
    return OK;
}

/* ---- a file of its own ------------------------------------------------------------------------ */

enum status checkpoint_write(struct arena *a, const char *folder, const char *file, struct checkpoint_tensor *tensors, const void *const *data,
                             int32_t n, struct error *err)
{
    struct file f;
    struct checkpoint_layout_file head = {0};
    struct checkpoint_tensor **all = ARENA_ARRAY(a, struct checkpoint_tensor *, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) all[i] = &tensors[i];
    TRY(make_head(a, all, n, &head, err));
    TRY(file_open(&f, arena_printf(a, "%s/%s", folder, file), err));
    enum status status = fail_if_injected(folder, file, err);
    if (status != OK) {
        file_abandon(&f);
        return status;
    }
    bool written = fwrite(head.head, 1, (size_t)head.head_bytes, f.stream) == (size_t)head.head_bytes;
    for (int32_t i = 0; i < n && written; i++) {
        struct checkpoint_tensor *t = &tensors[i];
        snprintf(t->file, sizeof t->file, "%s", file);
        t->crc = checkpoint_crc(data[i], t->bytes);
        written = fwrite(data[i], 1, (size_t)t->bytes, f.stream) == (size_t)t->bytes;
    }
    return file_commit(&f, err); /* reports the reason of a short write */
}

/* ---- layouts ---------------------------------------------------------------------------------- */

static bool is_parameter(const struct checkpoint_tensor *t) { return !strpbrk(t->name, "#@"); }

static int in_files(const void *x, const void *y)
{
    const struct checkpoint_tensor *a = *(struct checkpoint_tensor *const *)x, *b = *(struct checkpoint_tensor *const *)y;
    int64_t width = dtype_bytes((enum dtype)b->dtype) - dtype_bytes((enum dtype)a->dtype);
    if (is_parameter(a) != is_parameter(b)) return is_parameter(a) ? -1 : 1;
    return width ? (width > 0 ? 1 : -1) : strcmp(a->name, b->name);
}

static int by_name(const void *x, const void *y) { return strcmp(((const struct checkpoint_tensor *)x)->name, ((const struct checkpoint_tensor *)y)->name); }

/* Tensors of one file, from the first of n that are parameters, or not. */
static int32_t file_end(struct checkpoint_tensor *const *t, int32_t n, int64_t shard_bytes)
{
    int64_t bytes = 0;
    int32_t i = 0;
    struct weight_join join;
    while (i < n && is_parameter(t[i]) == is_parameter(t[0]) &&
           (!i || bytes + t[i]->bytes <= shard_bytes || (weight_joined(t[i]->name, &join) && join.part)))
        bytes += t[i++]->bytes;
    return i;
}

static void name_files(struct checkpoint_layout *x)
{
    for (int32_t i = 0; i < x->n_files; i++) {
        bool model = i < x->n_model_files;
        int32_t number = model ? i + 1 : i - x->n_model_files + 1, all = model ? x->n_model_files : x->n_files - x->n_model_files;
        const char *what = model ? "model" : "optimizer";
        struct checkpoint_layout_file *f = &x->files[i];
        if (all == 1)
            snprintf(f->name, sizeof f->name, "%s.safetensors", what);
        else
            snprintf(f->name, sizeof f->name, "%s-%05" PRId32 "-of-%05" PRId32 ".safetensors", what, number, all);
    }
}

enum status checkpoint_layout_make(struct arena *a, const struct checkpoint_tensor *tensors, int32_t n, int64_t shard_bytes, struct checkpoint_layout *out,
                                   struct error *err)
{
    struct checkpoint_tensor **order = ARENA_ARRAY(a, struct checkpoint_tensor *, (size_t)n + 1);
    size_t capacity = 0;
    *out = (struct checkpoint_layout){.n = n, .tensors = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)n + 1), .file = ARENA_ARRAY(a, int32_t, (size_t)n + 1)};
    if (n) memcpy(out->tensors, tensors, (size_t)n * sizeof *tensors);
    qsort(out->tensors, (size_t)n, sizeof *out->tensors, by_name);
    for (int32_t i = 0; i < n; i++) {
        struct checkpoint_tensor *t = order[i] = &out->tensors[i];
        t->bytes = shape_elements(&t->shape) * dtype_bytes((enum dtype)t->dtype);
    }
    qsort(order, (size_t)n, sizeof *order, in_files);
    for (int32_t at = 0, end; at < n; at += end) {
        end = file_end(order + at, n - at, shard_bytes);
        out->files = arena_grow(a, out->files, (size_t)out->n_files, &capacity, sizeof *out->files);
        struct checkpoint_layout_file *f = &out->files[out->n_files];
        *f = (struct checkpoint_layout_file){0};
        TRY(make_head(a, order + at, end, f, err));
        for (int32_t i = at; i < at + end; i++) out->file[order[i] - out->tensors] = out->n_files;
        out->n_model_files += is_parameter(order[at]);
        out->n_files++;
    }
    name_files(out);
    for (int32_t i = 0; i < n; i++) memcpy(out->tensors[i].file, out->files[out->file[i]].name, sizeof out->tensors[i].file);
    return OK;
}

/* ---- in places -------------------------------------------------------------------------------- */

static enum status cannot_write(const char *path, struct error *err)
{
    return error_set(err, ERR_RESOURCE, "cannot write '%s': %s", path, strerror(errno));
}

static bool write_all(int fd, const char *from, int64_t n, int64_t at)
{
    for (int64_t done = 0; done < n;) {
        ssize_t put = pwrite(fd, from + done, (size_t)(n - done), at + done);
        if (put < 0 && errno == EINTR) continue;
        if (!put) errno = ENOSPC;
        if (put <= 0) return false;
        done += put;
    }
    return true;
}

/* Any rank may be the first to open it. */
static enum status open_place(const char *path, int *fd, struct error *err)
{
    *fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    return *fd < 0 ? cannot_write(path, err) : OK;
}

static enum status close_place(const char *path, int fd, bool written, struct error *err)
{
    written = written && !fsync(fd);
    enum status status = written ? OK : cannot_write(path, err);
    if (close(fd) && status == OK) status = cannot_write(path, err);
    return status;
}

static enum status write_text(struct arena *a, const char *folder, const char *name, const char *text, struct error *err)
{
    struct file f;
    TRY(file_open(&f, arena_printf(a, "%s/%s", folder, name), err));
    fputs(text, f.stream);
    return file_commit(&f, err);
}

static enum status write_index(struct arena *a, const struct checkpoint_layout *x, const char *folder, struct error *err)
{
    struct file f;
    struct json j;
    int64_t bytes = 0, elements = 0;
    if (x->n_model_files < 2) return OK;
    for (int32_t i = 0; i < x->n; i++)
        if (x->file[i] < x->n_model_files) bytes += x->tensors[i].bytes, elements += shape_elements(&x->tensors[i].shape);
    TRY(file_open(&f, arena_printf(a, "%s/model.safetensors.index.json", folder), err));
    json_begin(&j, f.stream, JSON_INDENTED);
    json_put_object(&j, NULL);
    json_put_object(&j, "metadata");
    json_put_int(&j, "total_parameters", elements);
    json_put_int(&j, "total_size", bytes);
    json_close(&j);
    json_put_object(&j, "weight_map");
    for (int32_t i = 0; i < x->n_model_files; i++)
        for (int32_t k = 0; k < x->files[i].n_stored; k++) json_put_text(&j, x->files[i].stored[k].name, x->files[i].name);
    json_close(&j);
    json_close(&j);
    json_end(&j);
    return file_commit(&f, err);
}

enum status checkpoint_layout_write(struct arena *a, const struct checkpoint_layout *x, const char *folder, const char *config, struct error *err)
{
    for (int32_t i = 0; i < x->n_files; i++) {
        const char *path = arena_printf(a, "%s/%s", folder, x->files[i].name);
        int fd;
        TRY(fail_if_injected(folder, x->files[i].name, err));
        TRY(open_place(path, &fd, err));
        TRY(close_place(path, fd, write_all(fd, x->files[i].head, x->files[i].head_bytes, 0), err));
    }
    TRY(write_index(a, x, folder, err));
    return config ? write_text(a, folder, "config.json", config, err) : OK;
}

/* Those of the tensors whose place is in one file. */
static enum status put_into(struct arena *a, const struct checkpoint_target *to, int32_t file, const int32_t *place, struct checkpoint_tensor *tensors,
                            const void *const *data, int32_t n, struct error *err)
{
    const struct checkpoint_layout *x = to->layout;
    const char *path = arena_printf(a, "%s/%s", to->folder, x->files[file].name);
    int fd = -1;
    bool written = true;
    for (int32_t i = 0; i < n && written; i++) {
        const struct checkpoint_tensor *p = place[i] < 0 ? NULL : &x->tensors[place[i]];
        struct checkpoint_tensor *t = &tensors[i];
        if (!p || x->file[place[i]] != file) continue;
        if (p->bytes != t->bytes || p->dtype != t->dtype || !shape_equal(&p->shape, &t->shape)) BUG("tensor %s differs from its place in %s", t->name, p->file);
        if (fd < 0) TRY(fail_if_injected(to->folder, p->file, err));
        if (fd < 0) TRY(open_place(path, &fd, err));
        memcpy(t->file, p->file, sizeof t->file);
        t->offset = p->offset, t->crc = checkpoint_crc(data[i], t->bytes);
        written = write_all(fd, data[i], t->bytes, t->offset);
    }
    return fd < 0 ? OK : close_place(path, fd, written, err);
}

/* Those without a place. */
static enum status put_rest(struct arena *a, const char *folder, const char *file, const int32_t *place, struct checkpoint_tensor *tensors,
                            const void *const *data, int32_t n, struct error *err)
{
    struct checkpoint_tensor *rest = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)n + 1);
    const void **values = ARENA_ARRAY(a, const void *, (size_t)n + 1);
    int32_t m = 0;
    for (int32_t i = 0; i < n; i++)
        if (place[i] < 0) rest[m] = tensors[i], values[m++] = data[i];
    if (m) TRY(checkpoint_write(a, folder, file, rest, values, m, err));
    for (int32_t i = n; i-- > 0;)
        if (place[i] < 0) tensors[i] = rest[--m];
    return OK;
}

enum status checkpoint_put_file(void *target, struct arena *a, const char *file, struct checkpoint_tensor *tensors, const void *const *data, int32_t n,
                                struct error *err)
{
    const struct checkpoint_target *to = target;
    const struct checkpoint_layout *x = to->layout;
    int32_t *place = ARENA_ARRAY(a, int32_t, (size_t)n + 1);
    for (int32_t i = 0; i < n; i++) {
        const struct checkpoint_tensor *p = bsearch(&tensors[i], x->tensors, (size_t)x->n, sizeof *x->tensors, by_name);
        place[i] = p ? (int32_t)(p - x->tensors) : -1;
    }
    for (int32_t f = 0; f < x->n_files; f++) TRY(put_into(a, to, f, place, tensors, data, n, err));
    return put_rest(a, to->folder, file, place, tensors, data, n, err);
}

/* ---- headers and manifest --------------------------------------------------------------------- */

static enum status agree_on(const struct safetensors *f, const struct checkpoint_tensor *t, struct error *err)
{
    int32_t low = 0, high = f->n;
    char name[sizeof t->name];
    struct shape part;
    while (low < high) { /* the first tensor that does not begin before it */
        int32_t middle = low + (high - low) / 2;
        if (f->tensors[middle].offset < t->offset)
            low = middle + 1;
        else
            high = middle;
    }
    struct weight_join join;
    bool joined = weight_joined(t->name, &join);
    const struct safetensors_tensor *before = joined && join.part && low ? &f->tensors[low - 1] : joined && low < f->n ? &f->tensors[low] : NULL;
    if (before && weight_is_part_of(t->name, &join, before->name)) {
        int64_t end = before->offset + shape_elements(&before->shape) * dtype_bytes((enum dtype)t->dtype);
        bool same = before->dtype == t->dtype && before->shape.rank == 2 && t->shape.rank == 2 && before->shape.dim[1] == t->shape.dim[1];
        if (same && t->offset + shape_elements(&t->shape) * dtype_bytes((enum dtype)t->dtype) <= end) return OK;
    }
    for (int64_t i = 0; i < weight_parts(t->name, &t->shape); i++, low++) {
        const struct safetensors_tensor *x = low < f->n ? &f->tensors[low] : NULL;
        if (!weight_part(t->name, &t->shape, i, name, sizeof name, &part) || !x || strcmp(x->name, name) != 0 || !shape_equal(&x->shape, &part) ||
            x->dtype != t->dtype || (!i && x->offset != t->offset))
            return error_set(err, ERR_INPUT, "'%s': its header does not have tensor %s where the manifest has it", f->path, name);
    }
    return OK;
}

enum status checkpoint_files_agree(struct arena *a, const struct checkpoint *c, struct error *err)
{
    struct safetensors *open = NULL;
    size_t n = 0, capacity = 0;
    for (int32_t i = 0; i < c->n_tensors; i++) {
        const struct checkpoint_tensor *t = &c->tensors[i];
        const char *path = arena_printf(a, "%s/%s", c->folder, t->file);
        size_t k = 0;
        while (k < n && strcmp(open[k].path, path) != 0) k++;
        if (k == n) {
            open = arena_grow(a, open, n, &capacity, sizeof *open);
            TRY(safetensors_read(a, path, &open[n++], err));
        }
        TRY(agree_on(&open[k], t, err));
    }
    return OK;
}
