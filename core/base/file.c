#include "core/base/file.h"

#include "core/base/arena.h"
#include "core/base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- reading ---------------------------------------------------------------------------------- */

static enum status cannot_read(const char *path, int why, struct error *err)
{
    bool ours = why == EMFILE || why == ENFILE || why == ENOMEM || why == EIO;
    return error_set(err, ours ? ERR_RESOURCE : ERR_INPUT, "cannot read '%s': %s", path,
                     strerror(why));
}

/* Up to max_bytes; expected is a guess that saves growing. */
static enum status read_all(struct arena *a, int fd, const char *path, size_t expected,
                            size_t max_bytes, char **out, size_t *n, struct error *err)
{
    size_t capacity = expected + 1, used = 0;
    char *text = arena_alloc(a, capacity, 1);
    for (;;) {
        if (used + 1 >= capacity) {
            size_t bigger = 2 * capacity > 4096 ? 2 * capacity : 4096;
            text = memcpy(arena_alloc(a, bigger, 1), text, used);
            capacity = bigger;
        }
        ssize_t got = read(fd, text + used, capacity - 1 - used);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(path, errno, err);
        if (!got) break;
        used += (size_t)got;
        if (used > max_bytes)
            return error_set(err, ERR_INPUT, "'%s' is larger than the %zu bytes that are accepted",
                             path, max_bytes);
    }
    text[used] = 0;
    *out = text;
    if (n) *n = used;
    return OK;
}

enum status file_read_fd(struct arena *a, int fd, const char *label, size_t max_bytes, char **out,
                         size_t *n, struct error *err)
{
    return read_all(a, fd, label, 0, max_bytes, out, n, err);
}

/* A descriptor of an unnamed file, in memory where no folder takes one; -1 and errno. */
static int unnamed_file(void)
{
    const char *folder = getenv("TMPDIR");
    int fd = open(folder && *folder ? folder : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : memfd_create("standard-input", MFD_CLOEXEC);
}

/* The part of standard input read so far. It is identified by its inode. */
static struct {
    int fd; /* 0: there is no copy yet */
    dev_t device;
    ino_t inode;
    int64_t bytes;
    bool ended;
} copy;

/* At least n bytes of standard input, or all, are in the copy. */
static enum status copy_input(int64_t n, struct error *err)
{
    char buffer[1 << 16];
    while (copy.bytes < n && !copy.ended) {
        ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer), put = 0;
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(FILE_STDIN, errno, err);
        copy.ended = got == 0;
        for (ssize_t done = 0; done < got; done += put, copy.bytes += put) {
            put = write(copy.fd, buffer + done, (size_t)(got - done));
            if (put < 0 && errno != EINTR)
                return error_set(err, ERR_RESOURCE, "cannot copy standard input: %s",
                                 strerror(errno));
            if (put < 0) put = 0;
        }
    }
    return OK;
}

/* The file "-", of which n bytes will be looked at. A new description each time: its position is its own. */
static enum status open_input(int64_t n, int *fd, struct error *err)
{
    char name[32];
    struct stat about;
    *fd = -1;
    if (fstat(STDIN_FILENO, &about)) return cannot_read(FILE_STDIN, errno, err);
    if (S_ISDIR(about.st_mode)) return cannot_read(FILE_STDIN, EISDIR, err);
    int from = STDIN_FILENO;
    if (!S_ISREG(about.st_mode) || lseek(STDIN_FILENO, 0, SEEK_CUR) != 0) {
        if (copy.fd && (copy.device != about.st_dev || copy.inode != about.st_ino)) {
            close(copy.fd);
            copy.fd = 0;
        }
        if (!copy.fd) {
            int made = unnamed_file();
            if (made < 0) return cannot_read(FILE_STDIN, errno, err);
            copy.fd = made, copy.device = about.st_dev, copy.inode = about.st_ino;
            copy.bytes = 0, copy.ended = false;
        }
        TRY(copy_input(n, err));
        from = copy.fd;
    }
    snprintf(name, sizeof name, "/proc/self/fd/%d", from);
    *fd = open(name, O_RDONLY | O_CLOEXEC);
    return *fd < 0 ? cannot_read(FILE_STDIN, errno, err) : OK;
}

const char *file_label(const char *path) { return strcmp(path, "-") ? path : FILE_STDIN; }

/* At most n bytes are looked at. Without O_NONBLOCK, the opening of a pipe that has no writer would block. */
static enum status open_regular(const char *path, int64_t n, int *fd, int64_t *bytes,
                                struct error *err)
{
    struct stat about;
    enum status status = OK;
    if (!strcmp(path, "-")) {
        TRY(open_input(n, fd, err));
        path = FILE_STDIN;
    } else {
        *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    }
    if (*fd < 0) return cannot_read(path, errno, err);
    if (fstat(*fd, &about))
        status = cannot_read(path, errno, err);
    else if (!S_ISREG(about.st_mode))
        status = error_set(err, ERR_INPUT, "cannot read '%s': it is %s, not a regular file", path,
                           S_ISDIR(about.st_mode)    ? "a folder"
                           : S_ISFIFO(about.st_mode) ? "a pipe"
                           : S_ISCHR(about.st_mode)  ? "a device"
                                                     : "something special");
    else if (bytes)
        *bytes = about.st_size;
    if (status == OK) return OK;
    close(*fd);
    *fd = -1;
    return status;
}

enum status file_open_regular(const char *path, int *fd, int64_t *bytes, struct error *err)
{
    return open_regular(path, INT64_MAX, fd, bytes, err);
}

enum status file_read_at(int fd, const char *path, int64_t at, void *to, int64_t n,
                         struct error *err)
{
    for (int64_t done = 0; done < n;) {
        ssize_t got = pread(fd, (char *)to + done, (size_t)(n - done), at + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return cannot_read(path, errno, err);
        if (!got)
            return error_set(
                err, ERR_INPUT,
                "cannot read '%s': it ends at byte %lld, before byte %lld: the file was "
                "truncated while it was in use",
                path, (long long)(at + done), (long long)(at + n));
        done += got;
    }
    return OK;
}

size_t file_head(const char *path, char *head, size_t n)
{
    int fd;
    ssize_t got = -1;
    if (open_regular(path, (int64_t)n, &fd, NULL, NULL) != OK) return 0;
    do got = read(fd, head, n);
    while (got < 0 && errno == EINTR);
    close(fd);
    return got > 0 ? (size_t)got : 0;
}

enum status file_read(struct arena *a, const char *path, size_t max_bytes, char **out, size_t *n,
                      struct error *err)
{
    int fd;
    int64_t bytes;
    TRY(open_regular(path, (int64_t)max_bytes + 1, &fd, &bytes, err));
    enum status status;
    path = file_label(path);
    if ((uintmax_t)bytes > max_bytes)
        status = error_set(err, ERR_INPUT, "'%s' has %lld bytes; at most %zu are accepted", path,
                           (long long)bytes, max_bytes);
    else
        /* One byte more than the size, so that the end is met without growing. */
        status = read_all(a, fd, path, (size_t)bytes + 1, max_bytes, out, n, err);
    close(fd);
    return status;
}

bool file_same(const char *one, const char *other)
{
    struct stat x, y;
    return !stat(one, &x) && !stat(other, &y) && S_ISREG(x.st_mode) && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

bool file_within(const char *path, const char *folder)
{
    char top[PATH_MAX], real[PATH_MAX], beside[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 0;
    if (!realpath(folder, top)) return false;
    if (!realpath(path, real)) { /* not there yet: where it is to be */
        int n = snprintf(beside, sizeof beside, "%.*s.", length, path);
        if (n >= (int)sizeof beside || !realpath(beside, real)) return false;
    }
    size_t n = strcmp(top, "/") ? strlen(top) : 0;
    return !strncmp(real, top, n) && (real[n] == '/' || !real[n]);
}

/* ---- writing ---------------------------------------------------------------------------------- */

static enum status cannot_write(const char *path, int why, struct error *err)
{
    return error_set(err, ERR_RESOURCE, "cannot write '%s': %s", path, strerror(why));
}

/* The name beside target; hidden, so that a wildcard does not pick up half a file. */
static bool name_temporary(struct file *f, unsigned attempt)
{
    static atomic_uint counter;
    const char *slash = strrchr(f->target, '/');
    int folder = slash ? (int)(slash - f->target) + 1 : 0;
    int n = snprintf(f->temporary, sizeof f->temporary, "%.*s.%s.%ld.%u.tmp", folder, f->target,
                     f->target + folder, (long)getpid(), atomic_fetch_add(&counter, 1) + attempt);
    return n > 0 && (size_t)n < sizeof f->temporary;
}

/* Where path leads: itself, or the file at the end of its symbolic links. */
static bool resolve(struct file *f, const char *path)
{
    struct stat link;
    char real[PATH_MAX];
    if (!lstat(path, &link) && S_ISLNK(link.st_mode) && realpath(path, real)) path = real;
    int n = snprintf(f->target, sizeof f->target, "%s", path);
    return n > 0 && (size_t)n < sizeof f->target;
}

static enum status open_stream(struct file *f, int fd, struct error *err)
{
    if (fd >= 0) f->stream = fdopen(fd, "w");
    if (f->stream) return OK;
    int why = errno;
    if (fd >= 0) close(fd);
    return cannot_write(f->path, why, err);
}

enum status file_open(struct file *f, const char *path, struct error *err)
{
    memset(f, 0, sizeof *f);
    f->path = path;
    if (!strcmp(path, "-")) {
        f->stream = stdout;
        return OK;
    }
    if (!*path) return cannot_write(path, ENOENT, err);
    if (!resolve(f, path)) return cannot_write(path, ENAMETOOLONG, err);
    struct stat about;
    bool exists = !stat(f->target, &about);
    if (exists && S_ISDIR(about.st_mode)) return cannot_write(path, EISDIR, err);
    if (exists && !S_ISREG(about.st_mode)) /* a device or a pipe: nothing to rename over */
        return open_stream(f, open(f->target, O_WRONLY | O_CLOEXEC), err);
    if (exists && access(f->target, W_OK)) return cannot_write(path, errno, err);
    int fd = -1, why = EEXIST;
    for (unsigned attempt = 0; fd < 0 && attempt < 100; attempt++) {
        if (!name_temporary(f, attempt)) {
            f->temporary[0] = 0;
            return cannot_write(path, ENAMETOOLONG, err);
        }
        sigset_t before;
        temporary_begin_change(&before);
        fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        why = errno;
        if (fd >= 0) temporary_remember(f->temporary, "");
        temporary_end_change(&before);
        if (fd < 0 && why != EEXIST) break;
    }
    if (fd < 0) {
        f->temporary[0] = 0;
        return cannot_write(path, why, err);
    }
    if (exists && fchmod(fd, about.st_mode & 07777)) { /* a foreign file system may say no */
    }
    enum status status = open_stream(f, fd, err);
    if (status != OK) file_abandon(f);
    return status;
}

/* Makes the name of the target durable. A folder that may not be read, or a file system that syncs no folders, is no error: the content is safe,
 * and the name's durability is not ours to force. */
static enum status sync_folder(const struct file *f, struct error *err)
{
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", f->target);
    char *slash = strrchr(folder, '/');
    if (slash) slash[slash == folder] = 0;
    int fd = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool bad = fd < 0 ? errno != EACCES : fsync(fd) && errno != EINVAL;
    int why = errno;
    if (fd >= 0) close(fd);
    if (!bad) return OK;
    return error_set(err, ERR_RESOURCE, "cannot write '%s': its folder '%s' cannot be synced: %s", f->path, slash ? folder : ".", strerror(why));
}

/* The errno of an earlier failed write was not kept; another write fails for the same reason. Its data are discarded. */
static int why_of(FILE *stream)
{
    static const char zeros[65536];
    clearerr(stream);
    errno = 0;
    bool bad = fwrite(zeros, 1, sizeof zeros, stream) != sizeof zeros || fflush(stream);
    return bad && errno ? errno : EIO;
}

enum status file_finish(struct file *f, struct error *err)
{
    if (!f->stream) BUG("file_finish: not open");
    errno = 0;
    bool bad = ferror(f->stream) | fflush(f->stream);
    int why = errno ? errno : bad && f->temporary[0] ? why_of(f->stream) : EIO;
    if (f->temporary[0] && !bad && fsync(fileno(f->stream))) {
        bad = true;
        why = errno;
    }
    if (f->stream != stdout && fclose(f->stream) && !bad) {
        bad = true;
        why = errno;
    }
    f->stream = NULL;
    if (!bad) return OK;
    file_abandon(f);
    return cannot_write(f->path, why, err);
}

/* Under temporary_begin_change. */
static enum status take_place(struct file *f, struct error *err)
{
    if (rename(f->temporary, f->target)) {
        int why = errno;
        temporary_undo(f->temporary, "");
        temporary_forget(f->temporary);
        return cannot_write(f->path, why, err);
    }
    temporary_forget(f->temporary);
    return OK;
}

enum status file_commit(struct file *f, struct error *err)
{
    TRY(file_finish(f, err));
    if (!f->temporary[0]) return OK;
    sigset_t before;
    temporary_begin_change(&before);
    enum status status = take_place(f, err);
    if (status == OK) f->temporary[0] = 0;
    temporary_end_change(&before);
    if (status == OK) return sync_folder(f, err);
    file_abandon(f);
    return status;
}

/* Where a swapped file's temporary belongs; empty where nothing lay at the target. */
static const char *back_of(const struct file *f)
{
    return f->swapped && strcmp(f->temporary, f->target) != 0 ? f->target : "";
}

/* file_swap, under temporary_begin_change. */
static enum status swap(struct file *f, struct error *err)
{
    char old[sizeof f->temporary + 4];
    struct stat about;
    snprintf(old, sizeof old, "%s.old", f->temporary);
    bool exists = !lstat(f->target, &about);
    /* Where a file system has no links, there is nothing at the target for a moment. */
    if (exists && !S_ISDIR(about.st_mode) && link(f->target, old) && rename(f->target, old))
        return cannot_write(f->path, errno, err);
    if (exists) temporary_remember(old, f->target);
    enum status status = take_place(f, err);
    f->swapped = status == OK || exists;
    if (!f->swapped) return status;
    if (!exists) temporary_remember(f->target, "");
    snprintf(f->temporary, sizeof f->temporary, "%s", exists ? old : f->target);
    return status;
}

enum status file_swap(struct file *f, struct error *err)
{
    sigset_t before;
    if (!f->temporary[0]) return OK;
    temporary_begin_change(&before);
    enum status status = swap(f, err);
    temporary_end_change(&before);
    if (status == OK) status = sync_folder(f, err);
    if (status != OK) file_abandon(f);
    return status;
}

void file_keep(struct file *f)
{
    sigset_t before;
    if (!f->swapped) return;
    temporary_begin_change(&before);
    temporary_forget(f->temporary);
    if (*back_of(f)) unlink(f->temporary);
    temporary_end_change(&before);
    f->temporary[0] = 0;
    f->swapped = false;
}

void file_abandon(struct file *f)
{
    if (f->stream && f->stream != stdout) fclose(f->stream);
    f->stream = NULL;
    sigset_t before;
    if (!f->temporary[0]) return;
    temporary_begin_change(&before);
    temporary_undo(f->temporary, back_of(f));
    temporary_forget(f->temporary);
    temporary_end_change(&before);
    f->temporary[0] = 0;
    f->swapped = false;
}
