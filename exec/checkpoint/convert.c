#include "exec/checkpoint/convert.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "exec/checkpoint/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONFIG_MAX = 64 << 20 };

static enum status lay_out(struct arena *a, const struct weights *w, enum dtype dtype, int64_t shard_bytes, struct checkpoint_layout *out, struct error *err)
{
    struct checkpoint_tensor *all = ARENA_ARRAY(a, struct checkpoint_tensor, (size_t)w->n + 1);
    for (int32_t i = 0; i < w->n; i++) {
        const struct safetensors_tensor *t = w->tensors[i].at;
        if (t->dtype < 0 || t->dtype == DTYPE_int32)
            return error_set(err, ERR_INPUT, "'%s': tensor %s is %s; weights are F32, F64, BF16 or F16", w->files[w->tensors[i].file].path, t->name, t->stored);
        if ((size_t)snprintf(all[i].name, sizeof all[i].name, "%s", t->name) >= sizeof all[i].name || strpbrk(t->name, "#@"))
            return error_set(err, ERR_INPUT, "'%s': tensor %.60s: its name is longer than %zu bytes, or has # or @", w->files[w->tensors[i].file].path, t->name,
                             sizeof all[i].name - 1);
        all[i].shape = t->shape, all[i].dtype = dtype == DTYPE_COUNT ? t->dtype : (int32_t)dtype;
    }
    return checkpoint_layout_make(a, all, w->n, shard_bytes, out, err);
}

static enum status write_folder(struct arena *a, const struct weights *w, struct checkpoint_layout *x, const char *folder, struct error *err)
{
    struct checkpoint_target to = {folder, x};
    const char *path = arena_printf(a, "%s/config.json", w->folder);
    char *config = NULL;
    size_t n;
    if (!access(path, F_OK)) TRY(file_read(a, path, CONFIG_MAX, &config, &n, err));
    for (int32_t i = 0; i < x->n; i++) {
        struct checkpoint_tensor t = x->tensors[i];
        struct arena *one = arena_new();
        void *values = arena_alloc(one, (size_t)t.bytes + 1, 1);
        const void *data = values;
        enum status status = weights_read(w, weights_find(w, t.name), 0, shape_elements(&t.shape), (enum dtype)t.dtype, values, err);
        if (status == OK) status = checkpoint_put_file(&to, one, t.file, &t, &data, 1, err);
        arena_free(one);
        TRY(status);
    }
    return checkpoint_layout_write(a, x, folder, config, err);
}

static enum status sync_path(const char *path, struct error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool bad = fd < 0 || fsync(fd);
    int why = errno;
    if (fd >= 0) close(fd);
    return bad ? error_set(err, ERR_RESOURCE, "cannot sync folder '%s': %s", path, strerror(why)) : OK;
}

static enum status publish(const char *hidden, const char *out, const char *parent, struct error *err)
{
    TRY(sync_path(hidden, err));
    if (rename(hidden, out)) return error_set(err, ERR_RESOURCE, "cannot rename '%s' to '%s': %s", hidden, out, strerror(errno));
    return sync_path(parent, err);
}

/* By the names of its files, because a folder that cannot be read can still be removed. Without effect on a folder that has its final name. */
static void discard(struct arena *a, const struct checkpoint_layout *x, const char *hidden)
{
    for (int32_t i = 0; i < x->n_files; i++) unlink(arena_printf(a, "%s/%s", hidden, x->files[i].name));
    unlink(arena_printf(a, "%s/model.safetensors.index.json", hidden));
    unlink(arena_printf(a, "%s/config.json", hidden));
    rmdir(hidden);
}

enum status weights_convert(struct arena *a, const struct weights *w, enum dtype dtype, int64_t shard_bytes, const char *out, struct error *err)
{
    struct checkpoint_layout x;
    char *path = arena_strdup(a, out);
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--) path[n - 1] = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *parent = slash ? arena_strndup(a, path, (size_t)(slash - path) + 1) : ".";
    const char *hidden = arena_printf(a, "%s/.%s.tmp", parent, name);
    struct stat about;
    if (!lstat(path, &about)) return error_set(err, ERR_INPUT, "'%s' exists; convert writes a new folder", out);
    TRY(lay_out(a, w, dtype, shard_bytes, &x, err));
    if (mkdir(hidden, 0777)) return error_set(err, ERR_RESOURCE, "cannot create folder '%s': %s", hidden, strerror(errno));
    enum status status = write_folder(a, w, &x, hidden, err);
    if (status == OK) status = publish(hidden, path, parent, err);
    if (status != OK) discard(a, &x, hidden);
    return status;
}
