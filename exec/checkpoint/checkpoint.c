#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/files.h"
#include "exec/checkpoint/folder.h"
#include "exec/checkpoint/manifest.h"
#include "exec/checkpoint/weights.h"

#include "core/base/arena.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK_BYTES (1 << 20)

/* ---- writing ----------------------------------------------------------------------------------
 */

static enum status sync_folder(const char *folder, struct error *err)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool bad = fd < 0 || fsync(fd);
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return bad ? error_set(err, ERR_RESOURCE, "cannot sync folder '%s': %s", folder, strerror(why))
               : OK;
}

enum status checkpoint_enter(struct arena *a, const char *dir, struct checkpoint_store *s,
                             struct error *err)
{
    *s = (struct checkpoint_store){.dir = arena_strdup(a, dir), .lock = -1, .keep = CHECKPOINTS_KEPT};
    for (int i = 0; i < CHECKPOINTS_KEPT_MAX; i++) s->whole[i] = -1;
    s->made = !mkdir(dir, 0777);
    if (!s->made && errno != EEXIST)
        return error_set(err, ERR_RESOURCE, "cannot create folder '%s': %s", dir, strerror(errno));
    /* The entry of DIR belongs to its parent folder, which may be one that this run may not read, or of a file system that syncs no folders. */
    if (s->made && sync_folder(arena_printf(a, "%s/..", dir), err) != OK && errno != EACCES && errno != EINVAL) {
        rmdir(dir);
        return ERR_RESOURCE;
    }
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_INPUT, "cannot open folder '%s': %s", dir, strerror(errno));
    enum status status = OK;
    if (flock(fd, LOCK_EX | LOCK_NB))
        status =
            errno == EWOULDBLOCK
                ? error_set(err, ERR_INPUT, "checkpoint folder '%s' is in use by another run", dir)
                : error_set(err, ERR_RESOURCE, "cannot lock folder '%s': %s", dir, strerror(errno));
    else if (!faccessat(fd, CHECKPOINT_MANIFEST, F_OK, 0))
        status = error_set(err, ERR_INPUT,
                           "'%s' is itself a checkpoint: save into its parent folder or another one",
                           dir);
    if (status == OK)
        s->lock = fd;
    else
        close(fd);
    return status;
}

static bool same_folder(const char *path, int dir, const char *name)
{
    struct stat x, y;
    return !stat(path, &x) && !fstatat(dir, name, &y, 0) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

enum status checkpoint_follow(struct arena *a, struct checkpoint_store *s, const char *resume,
                              int64_t first_step, struct error *err)
{
    int64_t *steps;
    size_t n;
    bool here = resume && same_folder(resume, s->lock, ".");
    TRY(checkpoint_folder_list(a, s->lock, s->dir, &steps, &n, err));
    if (n && steps[0] > first_step && !here)
        return error_set(err, ERR_INPUT,
                         "'%s' holds step %" PRId64
                         " of an earlier run; resume from it or save into another folder",
                         s->dir, steps[0]);
    if (here || (resume && same_folder(resume, s->lock, checkpoint_folder_name(a, first_step))))
        s->whole[0] = first_step;
    s->best = checkpoint_best_read(a, s->dir, first_step);
    return OK;
}

void checkpoint_leave(struct checkpoint_store *s)
{
    if (s->lock >= 0) close(s->lock);
    if (s->made) rmdir(s->dir); /* fails if it is not empty */
    s->lock = -1;
    s->made = false;
}

bool checkpoint_fits(const struct checkpoint_store *s, int64_t bytes)
{
    struct statvfs about;
    char wanted[32], room[32];
    if (fstatvfs(s->lock, &about) || !about.f_blocks) return true;
    double free_bytes = (double)about.f_bavail * (double)about.f_frsize;
    if ((double)bytes <= free_bytes) return true;
    log_warn("a checkpoint needs %s, but '%s' has only %s free",
             units_print_bytes(wanted, (double)bytes), s->dir, units_print_bytes(room, free_bytes));
    return false;
}

void checkpoint_clear(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return;
    if (!flock(fd, LOCK_EX | LOCK_NB)) checkpoint_folder_clear(fd);
    close(fd);
}

enum status checkpoint_begin(struct arena *a, const struct checkpoint_store *s, int64_t step,
                             const char **temporary, struct error *err)
{
    const char *name;
    checkpoint_folder_clear(s->lock);
    TRY(checkpoint_folder_make(a, s->lock, s->dir, step, &name, err));
    *temporary = arena_printf(a, "%s/%s", s->dir, name);
    return OK;
}

static const char *name_in(const char *temporary) { return strrchr(temporary, '/') + 1; }

void checkpoint_discard(const struct checkpoint_store *s, const char *temporary)
{
    checkpoint_folder_remove(s->lock, name_in(temporary));
}

uint32_t checkpoint_crc(const void *p, int64_t bytes)
{
    return (uint32_t)crc32_z(crc32_z(0, NULL, 0), p, (size_t)bytes);
}

/* Steps of a run ascend. */
static void note_whole(struct checkpoint_store *s, int64_t step)
{
    if (s->whole[0] == step) return;
    memmove(s->whole + 1, s->whole, sizeof s->whole - sizeof *s->whole);
    s->whole[0] = step;
}

enum status checkpoint_commit(struct arena *a, struct checkpoint_store *s, const char *temporary,
                              const struct checkpoint *c, struct error *err)
{
    int64_t *steps;
    size_t n;
    TRY(checkpoint_write_manifest(a, temporary, c, err));
    TRY(sync_folder(temporary, err));
    TRY(checkpoint_folder_publish(a, s->lock, s->dir, name_in(temporary), c->step, err));
    note_whole(s, c->step);
    if (s->next.step && s->next.step == c->step) {
        TRY(checkpoint_best_write(a, s->dir, &s->next, err));
        s->best = s->next;
    }
    TRY(checkpoint_folder_list(a, s->lock, s->dir, &steps, &n, err));
    for (size_t i = 0; i < n; i++)
        if (steps[i] < s->whole[s->keep - 1] && !(s->best.step && steps[i] == s->best.step)) checkpoint_folder_drop(a, s->lock, steps[i]);
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
    return error_set(err, ERR_INPUT, "'%s' is truncated: tensor %s is incomplete", path, t->name);
}

/* Reads the tensor's bytes into out, or only their CRC (out NULL). */
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
    return verify ? checkpoint_files_agree(a, out, err) : OK;
}

enum status checkpoint_verify_parameters(struct arena *a, const char *folder, struct error *err)
{
    struct checkpoint c;
    int32_t n = 0;
    if (access(arena_printf(a, "%s/" CHECKPOINT_MANIFEST, folder), F_OK)) return OK;
    TRY(checkpoint_read_manifest(a, folder, &c, err));
    for (int32_t i = 0; i < c.n_tensors; i++)
        if (!strpbrk(c.tensors[i].name, "#@")) c.tensors[n++] = c.tensors[i];
    c.n_tensors = n;
    for (int32_t i = 0; i < n; i++) TRY(read_data(&c, &c.tensors[i], NULL, err));
    return checkpoint_files_agree(a, &c, err);
}

static enum status list(struct arena *a, const char *dir, int64_t **steps, size_t *n,
                        struct error *err)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, ERR_INPUT, "cannot read folder '%s': %s", dir, strerror(errno));
    enum status status = checkpoint_folder_list(a, fd, dir, steps, n, err);
    close(fd);
    return status;
}

int64_t checkpoint_newest(struct arena *a, const char *dir)
{
    int64_t *steps;
    size_t n;
    return list(a, dir, &steps, &n, NULL) == OK && n ? steps[0] : 0;
}

/* The generation's step must match its name, because names determine the order. */
static enum status open_named(struct arena *a, const char *dir, int64_t step,
                              struct checkpoint *out, struct error *err)
{
    const char *name = checkpoint_folder_name(a, step);
    TRY(checkpoint_open(a, arena_printf(a, "%s/%s", dir, name), true, out, err));
    if (out->step == step) return OK;
    return error_set(err, ERR_INPUT,
                     "'%s/" CHECKPOINT_MANIFEST "': step: %" PRId64
                     " is not the step of the folder's name",
                     out->folder, out->step);
}

static enum status find_newest(struct arena *a, const char *dir, const int64_t *steps, size_t n, struct checkpoint *out, struct error *err)
{
    struct error why = {.code = OK};
    for (size_t i = 0; i < n; i++) {
        struct error e;
        if (open_named(a, dir, steps[i], out, &e) == OK) return OK;
        if (i == 0) why = e;
        log_warn("checkpoint of step %" PRId64 " cannot be used: %s", steps[i], e.text);
    }
    return error_set(err, ERR_INPUT, "no usable checkpoint in '%s': %s", dir, why.text);
}

enum status checkpoint_find(struct arena *a, const char *dir, struct checkpoint *out, struct error *err)
{
    int64_t *steps;
    size_t n;
    if (!access(arena_printf(a, "%s/" CHECKPOINT_MANIFEST, dir), F_OK))
        return checkpoint_open(a, dir, true, out, err);
    TRY(list(a, dir, &steps, &n, err));
    if (!n) return error_set(err, ERR_INPUT, "no checkpoint in '%s'", dir);
    return find_newest(a, dir, steps, n, out, err);
}

enum status checkpoint_find_any(struct arena *a, const char *dir, bool *found, struct checkpoint *out, struct error *err)
{
    int64_t *steps;
    size_t n;
    struct error why;
    *found = false;
    if (access(dir, F_OK) && errno == ENOENT) return OK;
    TRY(list(a, dir, &steps, &n, err));
    if (!n) return OK;
    if (find_newest(a, dir, steps, n, out, &why) != OK)
        return error_set(err, ERR_INPUT, "%s; to train from the beginning, remove its %zu checkpoint%s", why.text, n, n > 1 ? "s" : "");
    *found = true;
    return OK;
}

enum status checkpoint_continues(const struct checkpoint *c, int64_t steps, int64_t global_batch,
                                 struct error *err)
{
    if (steps <= CHECKPOINT_COUNT_MAX - c->step &&
        steps <= (CHECKPOINT_COUNT_MAX - c->sequences) / global_batch)
        return OK;
    return error_set(err, ERR_INPUT,
                     "checkpoint '%s': %" PRId64 " more steps of %" PRId64
                     " sequences lead beyond step or sequence %" PRId64
                     ", the last that a checkpoint can state",
                     c->folder, steps, global_batch, CHECKPOINT_COUNT_MAX);
}

static const struct checkpoint_tensor *find(const struct checkpoint *c, const char *name)
{
    for (int32_t i = 0; i < c->n_tensors; i++)
        if (!strcmp(c->tensors[i].name, name)) return &c->tensors[i];
    return NULL;
}

bool checkpoint_has(const struct checkpoint *c, const char *name) { return !c->weights && find(c, name); }

enum status checkpoint_load(const struct checkpoint *c, const char *name, const struct shape *shape,
                            enum dtype dtype, void *out, struct error *err)
{
    if (c->weights) return weights_load(c->weights, name, shape, dtype, out, err);
    const struct checkpoint_tensor *t = find(c, name);
    if (!t) return error_set(err, ERR_INPUT, "checkpoint '%s' has no tensor %s", c->folder, name);
    if ((enum dtype)t->dtype != dtype)
        return error_set(err, ERR_INPUT, "checkpoint '%s': tensor %s is %s, the program needs %s",
                         c->folder, name, dtype_name((enum dtype)t->dtype), dtype_name(dtype));
    if (!shape_equal(&t->shape, shape))
        return error_set(err, ERR_INPUT,
                         "checkpoint '%s': tensor %s has %" PRId64
                         " elements in another shape than the program's %" PRId64,
                         c->folder, name, shape_elements(&t->shape), shape_elements(shape));
    return read_data(c, t, out, err);
}
