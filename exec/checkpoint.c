#include "exec/checkpoint.h"
#include "exec/checkpoint_manifest.h"

#include "core/arena.h"
#include "core/file.h"
#include "core/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define PREFIX "step-"
#define STEP_DIGITS 8
#define KEPT 2 /* generations */
#define BLOCK_BYTES (1 << 20)

/* ---- folders ----------------------------------------------------------------------------------
 */

/* The step of "step-00000050", -1 for other names. */
static int64_t step_of(const char *name)
{
    size_t prefix = strlen(PREFIX), n = strlen(name);
    if (strncmp(name, PREFIX, prefix) != 0 || n < prefix + STEP_DIGITS || n > prefix + 18)
        return -1;
    for (const char *c = name + prefix; *c; c++)
        if (*c < '0' || *c > '9') return -1;
    return strtoll(name + prefix, NULL, 10);
}

static bool is_leftover(const char *name)
{
    size_t n = strlen(name);
    return name[0] == '.' && !strncmp(name + 1, PREFIX, strlen(PREFIX)) && n > 4 &&
           !strcmp(name + n - 4, ".tmp");
}

static int descending(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

/* Steps of the generations in dir, newest first; where leftovers: those are removed on the way. */
static enum status list(struct arena *a, const char *dir, int64_t **steps, size_t *n,
                        struct error *err)
{
    size_t capacity = 0;
    *n = 0;
    *steps = NULL;
    DIR *d = opendir(dir);
    if (!d) return error_set(err, ERR_INPUT, "cannot read folder '%s': %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        if (step < 0) continue;
        *steps = arena_grow(a, *steps, *n, &capacity, sizeof **steps);
        (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (*n) qsort(*steps, *n, sizeof **steps, descending);
    return OK;
}

static const char *generation(struct arena *a, const char *dir, int64_t step)
{
    return arena_printf(a, "%s/" PREFIX "%0*" PRId64, dir, STEP_DIGITS, step);
}

/* A folder of plain files. What cannot be removed stays; it is in nobody's way. */
static void remove_folder(struct arena *a, const char *folder)
{
    DIR *d = opendir(folder);
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlink(arena_printf(a, "%s/%s", folder, e->d_name));
    closedir(d);
    rmdir(folder);
}

static enum status sync_folder(const char *folder, struct error *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool bad = fd < 0 || fsync(fd);
    int why = errno;
    if (fd >= 0) close(fd);
    return bad ? error_set(err, ERR_RESOURCE, "cannot sync folder '%s': %s", folder, strerror(why))
               : OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

enum status checkpoint_lock(struct arena *a, const char *dir, int64_t first_step, bool resumed_here,
                            int *lock, struct error *err)
{
    *lock = -1;
    if (mkdir(dir, 0777) && errno != EEXIST)
        return error_set(err, ERR_RESOURCE, "cannot make folder '%s': %s", dir, strerror(errno));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_INPUT, "cannot open folder '%s': %s", dir, strerror(errno));
    int64_t *steps;
    size_t n;
    enum status status = OK;
    if (flock(fd, LOCK_EX | LOCK_NB))
        status = error_set(err, ERR_INPUT, "checkpoint folder '%s' is in use by another run", dir);
    else
        status = list(a, dir, &steps, &n, err);
    if (status == OK && n && steps[0] > first_step && !resumed_here)
        status = error_set(err, ERR_INPUT,
                           "'%s' holds step %" PRId64
                           " of an earlier run; resume from it or save somewhere else",
                           dir, steps[0]);
    if (status != OK) {
        close(fd);
        return status;
    }
    *lock = fd;
    return OK;
}

void checkpoint_unlock(int lock)
{
    if (lock >= 0) close(lock);
}

enum status checkpoint_begin(struct arena *a, const char *dir, int64_t step, const char **temporary,
                             struct error *err)
{
    DIR *d = opendir(dir);
    if (!d)
        return error_set(err, ERR_RESOURCE, "cannot read folder '%s': %s", dir, strerror(errno));
    for (struct dirent *e; (e = readdir(d));)
        if (is_leftover(e->d_name)) remove_folder(a, arena_printf(a, "%s/%s", dir, e->d_name));
    closedir(d);
    *temporary = arena_printf(a, "%s/." PREFIX "%0*" PRId64 ".tmp", dir, STEP_DIGITS, step);
    if (mkdir(*temporary, 0777))
        return error_set(err, ERR_RESOURCE, "cannot make folder '%s': %s", *temporary,
                         strerror(errno));
    return OK;
}

static uint32_t crc_of(const void *p, int64_t bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), p, (size_t)bytes);
}

enum status checkpoint_write(struct arena *a, const char *temporary, const char *file,
                             struct checkpoint_tensor *tensors, const void *const *data, int32_t n,
                             struct error *err)
{
    struct file f;
    TRY(file_open(&f, arena_printf(a, "%s/%s", temporary, file), err));
    int64_t at = 0;
    for (int32_t i = 0; i < n; i++) {
        struct checkpoint_tensor *t = &tensors[i];
        snprintf(t->file, sizeof t->file, "%s", file);
        t->offset = at;
        t->crc = crc_of(data[i], t->bytes);
        at += t->bytes;
        if (fwrite(data[i], 1, (size_t)t->bytes, f.stream) != (size_t)t->bytes)
            break; /* file_commit says why */
    }
    return file_commit(&f, err);
}

/* A generation of the same step (known to be damaged, or made again) is exchanged in one act and
 * then removed. */
static enum status publish(struct arena *a, const char *temporary, const char *target,
                           struct error *err)
{
    if (!rename(temporary, target)) return OK;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return error_set(err, ERR_RESOURCE, "cannot rename '%s' to '%s': %s", temporary, target,
                         strerror(errno));
    if (!renameat2(AT_FDCWD, temporary, AT_FDCWD, target, RENAME_EXCHANGE)) {
        remove_folder(a, temporary);
        return OK;
    }
    remove_folder(a, target); /* a file system that cannot exchange */
    if (!rename(temporary, target)) return OK;
    return error_set(err, ERR_RESOURCE, "cannot rename '%s' to '%s': %s", temporary, target,
                     strerror(errno));
}

enum status checkpoint_commit(struct arena *a, const char *dir, const char *temporary,
                              const struct checkpoint *c, struct error *err)
{
    int64_t *steps;
    size_t n;
    TRY(checkpoint_write_manifest(a, temporary, c, err));
    TRY(sync_folder(temporary, err));
    TRY(publish(a, temporary, generation(a, dir, c->step), err));
    TRY(sync_folder(dir, err));
    TRY(list(a, dir, &steps, &n, err));
    int kept = 0;
    for (size_t i = 0; i < n; i++)
        if (steps[i] <= c->step && kept++ >= KEPT) remove_folder(a, generation(a, dir, steps[i]));
    return OK;
}

/* ---- reading ----------------------------------------------------------------------------------
 */

static enum status open_data(const char *path, const struct checkpoint_tensor *t, int *fd,
                             struct error *err)
{
    int64_t bytes;
    TRY(file_open_regular(path, fd, &bytes, err));
    if (bytes >= t->offset + t->bytes) return OK;
    close(*fd);
    return error_set(err, ERR_INPUT, "'%s' is cut off: tensor %s is not whole", path, t->name);
}

/* The tensor's bytes into out, or nowhere (NULL); its CRC. */
static enum status read_data(const struct checkpoint *c, const struct checkpoint_tensor *t,
                             char *out, struct error *err)
{
    static _Thread_local char block[BLOCK_BYTES];
    char path[4096];
    int fd;
    enum status status = OK;
    uLong crc = crc32_z(0, NULL, 0);
    snprintf(path, sizeof path, "%s/%s", c->folder, t->file);
    TRY(open_data(path, t, &fd, err));
    for (int64_t at = 0, n; at < t->bytes && status == OK; at += n) {
        n = t->bytes - at < BLOCK_BYTES ? t->bytes - at : BLOCK_BYTES;
        char *to = out ? out + at : block;
        status = file_read_at(fd, path, t->offset + at, to, n, err);
        if (status == OK) crc = crc32_z(crc, (const Bytef *)to, (size_t)n);
    }
    close(fd);
    if (status == OK && (uint32_t)crc != t->crc)
        return error_set(err, ERR_INPUT, "'%s': tensor %s is damaged (its CRC differs)", path,
                         t->name);
    return status;
}

enum status checkpoint_open(struct arena *a, const char *folder, bool verify,
                            struct checkpoint *out, struct error *err)
{
    TRY(checkpoint_read_manifest(a, folder, out, err));
    for (int32_t i = 0; verify && i < out->n_tensors; i++)
        TRY(read_data(out, &out->tensors[i], NULL, err));
    return OK;
}

enum status checkpoint_find(struct arena *a, const char *dir, struct checkpoint *out,
                            struct error *err)
{
    int64_t *steps;
    size_t n;
    if (!access(arena_printf(a, "%s/" CHECKPOINT_MANIFEST, dir), F_OK))
        return checkpoint_open(a, dir, true, out, err);
    TRY(list(a, dir, &steps, &n, err));
    if (!n) return error_set(err, ERR_INPUT, "no checkpoint in '%s'", dir);
    struct error why = {.code = OK};
    for (size_t i = 0; i < n; i++) {
        struct error e;
        if (checkpoint_open(a, generation(a, dir, steps[i]), true, out, &e) == OK) return OK;
        if (i == 0) why = e;
        log_warn("checkpoint of step %" PRId64 " cannot be used: %s", steps[i], e.text);
    }
    return error_set(err, ERR_INPUT, "no usable checkpoint in '%s': %s", dir, why.text);
}

enum status checkpoint_load(const struct checkpoint *c, const char *name, const struct shape *shape,
                            enum dtype dtype, void *out, struct error *err)
{
    const struct checkpoint_tensor *t = NULL;
    for (int32_t i = 0; i < c->n_tensors && !t; i++)
        if (!strcmp(c->tensors[i].name, name)) t = &c->tensors[i];
    if (!t) return error_set(err, ERR_INPUT, "checkpoint '%s' has no tensor %s", c->folder, name);
    if ((enum dtype)t->dtype != dtype)
        return error_set(err, ERR_INPUT, "checkpoint '%s': tensor %s is %s, the program wants %s",
                         c->folder, name, dtype_name((enum dtype)t->dtype), dtype_name(dtype));
    if (!shape_equal(&t->shape, shape) || t->bytes != shape_elements(shape) * dtype_bytes(dtype))
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s': tensor %s has %" PRId64
                         " elements in another shape than the program's %" PRId64,
                         c->folder, name, shape_elements(&t->shape), shape_elements(shape));
    return read_data(c, t, out, err);
}
