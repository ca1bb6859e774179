/* core/base/file.h - whole files in, whole files out, nothing half-written.
 *
 * A file is written under a temporary name in the same folder, fsync'ed, renamed, and the folder
 * fsync'ed: a reader sees the old content or the new one, whatever happens in between.
 */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

/* Wherever a file is read, the path "-" is standard input. It is copied to an unnamed file as far as it is looked at (a
 * redirected file is not), so that it can be opened again and again; messages call it FILE_STDIN. Of one thread only. */
#define FILE_STDIN "standard input"
const char *file_label(const char *path); /* FILE_STDIN for "-", else path */

/* Opens a regular file for reading: its descriptor and, unless bytes is NULL, its size. ERR_INPUT: missing, unreadable, or no regular
 * file (a folder, a pipe, a device), whose opening would block or which has no size. */
MUST_CHECK enum status file_open_regular(const char *path, int *fd, int64_t *bytes,
                                         struct error *err);
/* Exactly the n bytes at offset `at` of a file that file_open_regular opened. ERR_INPUT: the file ends before, for example because it
 * was truncated meanwhile. */
MUST_CHECK enum status file_read_at(int fd, const char *path, int64_t at, void *to, int64_t n,
                                    struct error *err);
/* The first bytes of a regular file, at most n; returns their number. 0 where the file cannot be read: the reader of the
 * whole file reports the reason. */
size_t file_head(const char *path, char *head, size_t n);

/* The whole file, with a 0 byte behind it that *n does not count. ERR_INPUT: as file_open_regular; larger than
 * max_bytes. */
MUST_CHECK enum status file_read(struct arena *a, const char *path, size_t max_bytes, char **out,
                                 size_t *n, struct error *err);

/* The same of what fd still gives; label stands for the file in messages. */
MUST_CHECK enum status file_read_fd(struct arena *a, int fd, const char *label, size_t max_bytes,
                                    char **out, size_t *n, struct error *err);

/* Are both names those of one regular file that exists, through whatever links? */
bool file_same(const char *one, const char *other);

/* Would a file written to path, there already or not, lie in the folder or below it, through whatever links? false where there
 * is no such folder. */
bool file_within(const char *path, const char *folder);

/* file_open gives a stream on the temporary; file_commit makes it the file; file_abandon removes it.
 * path "-" is stdout: written through, never renamed. ERR_RESOURCE with the path and the reason. */
struct file {
    FILE *stream;
    const char *path;     /* as the caller named it, for messages */
    char target[4096];    /* what is renamed over: path with symbolic links followed */
    char temporary[4096]; /* empty where path is stdout, a device or a pipe: written through */
    bool swapped;         /* target is new, and temporary is what lay there, if anything did */
};
MUST_CHECK enum status file_open(struct file *f, const char *path, struct error *err);
MUST_CHECK enum status file_commit(struct file *f,
                                   struct error *err); /* on failure the temporary is gone */
/* file_commit in three steps, for several outputs of which all are made or none: whole on disk under the temporary name;
 * renamed, with what lay there kept beside it; final. Until the last one file_abandon puts back what lay there. */
MUST_CHECK enum status file_finish(struct file *f, struct error *err);
MUST_CHECK enum status file_swap(struct file *f, struct error *err);
void file_keep(struct file *f);
/* Safe after commit, and on a zeroed struct. */
void file_abandon(struct file *f);

/* Removes every temporary that this process has open, and puts back what is swapped: for a signal handler or the last moment
 * before _exit. Async-signal-safe. At most 32 files are remembered. */
void file_remove_temporaries(void);

#endif
