#include "exec/checkpoint/folder.h"

#include "core/base/arena.h"
#include "core/base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "step-"
#define STEP_FORMAT PREFIX "%08" PRId64
#define STEP_DIGITS_MAX 18
#define TEMPORARY ".tmp"
#define ATTEMPTS 100

const char *checkpoint_folder_name(struct arena *a, int64_t step)
{
    return arena_printf(a, STEP_FORMAT, step);
}

/* The step of "step-00000050", -1 for other names; every step has exactly one name. */
static int64_t step_of(const char *name)
{
    char again[32];
    size_t prefix = strlen(PREFIX), n = strlen(name);
    if (strncmp(name, PREFIX, prefix) != 0 || n > prefix + STEP_DIGITS_MAX) return -1;
    int64_t step = strtoll(name + prefix, NULL, 10);
    snprintf(again, sizeof again, STEP_FORMAT, step);
    return step < 0 || strcmp(name, again) != 0 ? -1 : step;
}

static bool is_hidden(const char *name)
{
    size_t n = strlen(name), end = strlen(TEMPORARY);
    return !strncmp(name, "." PREFIX, 1 + strlen(PREFIX)) && n > end &&
           !strcmp(name + n - end, TEMPORARY);
}

static int open_folder(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* For readdir; NULL with errno. Opens a new descriptor, because the read position belongs to the open file. */
static DIR *names_of(int dir, const char *name)
{
    int fd = open_folder(dir, name);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !d) close(fd);
    return d;
}

static int descending(const void *x, const void *y)
{
    int64_t a = *(const int64_t *)x, b = *(const int64_t *)y;
    return (a < b) - (a > b);
}

enum status checkpoint_folder_list(struct arena *a, int dir, const char *path, int64_t **steps,
                                   size_t *n, struct error *err)
{
    size_t capacity = 0;
    struct stat about;
    *n = 0;
    *steps = NULL;
    DIR *d = names_of(dir, ".");
    if (!d) return error_set(err, ERR_INPUT, "cannot read folder '%s': %s", path, strerror(errno));
    for (struct dirent *e; (e = readdir(d));) {
        int64_t step = step_of(e->d_name);
        if (step < 0 || fstatat(dir, e->d_name, &about, 0) || !S_ISDIR(about.st_mode)) continue;
        *steps = arena_grow(a, *steps, *n, &capacity, sizeof **steps);
        (*steps)[(*n)++] = step;
    }
    closedir(d);
    if (*n) qsort(*steps, *n, sizeof **steps, descending);
    return OK;
}

enum status checkpoint_folder_make(struct arena *a, int dir, const char *path, int64_t step,
                                   const char **name, struct error *err)
{
    int made = -1;
    *name = arena_printf(a, "." STEP_FORMAT TEMPORARY, step);
    for (int i = 1; (made = mkdirat(dir, *name, 0777)) && errno == EEXIST && i < ATTEMPTS; i++)
        *name = arena_printf(a, "." STEP_FORMAT ".%d" TEMPORARY, step, i);
    return made ? error_set(err, ERR_RESOURCE, "cannot create folder '%s/%s': %s", path, *name,
                            strerror(errno))
                : OK;
}

void checkpoint_folder_remove(int dir, const char *name)
{
    struct stat about;
    DIR *d = names_of(dir, name);
    if (!d) {
        if (!fstatat(dir, name, &about, AT_SYMLINK_NOFOLLOW) && S_ISLNK(about.st_mode))
            unlinkat(dir, name, 0);
        return;
    }
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    unlinkat(dir, name, AT_REMOVEDIR);
}

void checkpoint_folder_drop(struct arena *a, int dir, int64_t step)
{
    const char *name = checkpoint_folder_name(a, step), *hidden;
    if (checkpoint_folder_make(a, dir, "", step, &hidden, NULL) == OK) {
        if (!renameat(dir, name, dir, hidden))
            name = hidden;
        else
            unlinkat(dir, hidden, AT_REMOVEDIR); /* a symbolic link, removed at once; or it cannot be moved */
    }
    checkpoint_folder_remove(dir, name);
}

void checkpoint_folder_clear(int dir)
{
    DIR *d = names_of(dir, ".");
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));)
        if (is_hidden(e->d_name)) checkpoint_folder_remove(dir, e->d_name);
    closedir(d);
}

/* Gives `hidden` the generation's name; *old: `hidden` is now the previous generation of that name. */
static bool exchange(struct arena *a, int dir, const char *hidden, int64_t step, bool *old)
{
    const char *name = checkpoint_folder_name(a, step);
    *old = false;
    if (!renameat(dir, hidden, dir, name)) return true;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != ENOTDIR) return false;
    *old = !renameat2(dir, hidden, dir, name, RENAME_EXCHANGE);
    if (*old) return true;
    checkpoint_folder_drop(a, dir, step); /* a file system without exchange */
    return !renameat(dir, hidden, dir, name);
}

enum status checkpoint_folder_publish(struct arena *a, int dir, const char *path,
                                      const char *hidden, int64_t step, struct error *err)
{
    bool old;
    if (!exchange(a, dir, hidden, step, &old))
        return error_set(err, ERR_RESOURCE, "cannot rename '%s/%s' to '%s/%s': %s", path, hidden,
                         path, checkpoint_folder_name(a, step), strerror(errno));
    if (fsync(dir))
        return error_set(err, ERR_RESOURCE, "cannot sync folder '%s': %s", path, strerror(errno));
    if (old) checkpoint_folder_remove(dir, hidden);
    if (old && !faccessat(dir, hidden, F_OK, AT_SYMLINK_NOFOLLOW))
        log_warn("the previous '%s/%s' cannot be removed; it is now '%s/%s'", path,
                 checkpoint_folder_name(a, step), path, hidden);
    return OK;
}
