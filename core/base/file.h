/* core/base/file.h - reading of whole files, and atomic writing.
 *
 * A file is written under a temporary name in the same folder, fsync'ed, renamed, and the folder
 * fsync'ed: a reader sees the old or the new content, even after a crash.
 */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;

/* For every reader the path "-" is standard input. It is spooled to an unnamed file as far as it is read (a
 * redirected file is not), so it can be reopened; messages call it FILE_STDIN. One thread only. */
#define FILE_STDIN "standard input"
const char *file_label(const char *path); /* FILE_STDIN for "-", else path */

/* Opens a regular file for reading: its descriptor and, unless bytes is NULL, its size. ERR_INPUT: missing, unreadable, or not a
 * regular file (a folder, a pipe, a device), because opening it could block and it has no size. */
MUST_CHECK enum status file_open_regular(const char *path, int *fd, int64_t *bytes,
                                         struct error *err);
/* Reads exactly n bytes at offset `at` of a file from file_open_regular. ERR_INPUT: the file is too short, for example because it
 * was truncated meanwhile. */
MUST_CHECK enum status file_read_at(int fd, const char *path, int64_t at, void *to, int64_t n,
                                    struct error *err);
/* The first bytes of a regular file, at most n; returns their number. 0: unreadable; the reader of the
 * whole file reports the reason. */
size_t file_head(const char *path, char *head, size_t n);

/* The whole file and a final 0 byte that *n does not count. ERR_INPUT: as file_open_regular; larger than
 * max_bytes. */
MUST_CHECK enum status file_read(struct arena *a, const char *path, size_t max_bytes, char **out,
                                 size_t *n, struct error *err);

/* The same for the rest of fd; label is the file name in messages. */
MUST_CHECK enum status file_read_fd(struct arena *a, int fd, const char *label, size_t max_bytes,
                                    char **out, size_t *n, struct error *err);

/* Whether both names refer to one existing regular file, through any links. */
bool file_same(const char *one, const char *other);

/* Whether a file written to path, existing or not, would be in or below the folder, through any links. false: no
 * such folder. */
bool file_within(const char *path, const char *folder);

/* file_open creates the temporary's stream; file_commit makes it the file; file_abandon removes it.
 * path "-" is stdout: written through, never renamed. ERR_RESOURCE with the path and the reason; if it is the folder that cannot be synced, the new
 * file is in its place after file_commit, complete, but a power loss may bring back the old one. */
struct file {
    FILE *stream;
    const char *path;     /* as given by the caller, for messages */
    char target[4096];    /* rename target: path with symbolic links resolved */
    char temporary[4096]; /* empty if path is stdout, a device or a pipe: written through */
    bool swapped;         /* target is new, and temporary is the previous file, if there was one */
};
MUST_CHECK enum status file_open(struct file *f, const char *path, struct error *err);
MUST_CHECK enum status file_commit(struct file *f,
                                   struct error *err); /* on failure the temporary is gone */
/* file_commit in three steps, for all-or-nothing output of several files: complete on disk under the temporary name;
 * renamed, the previous file kept; final. Until the last step file_abandon restores the previous file. */
MUST_CHECK enum status file_finish(struct file *f, struct error *err);
MUST_CHECK enum status file_swap(struct file *f, struct error *err);
void file_keep(struct file *f);
/* Safe after commit, and on a zeroed struct. */
void file_abandon(struct file *f);

#endif
