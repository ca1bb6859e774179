/* tests/support/disk_model.h - a model of a disk: files and folders as a log of operations changes them (tests/preload/disk_record.h), and the states
 * in which a power loss may leave them.
 *
 * What was synced is on the disk. Of other writes to a file each part of 512 bytes (a sector) may be there or not, in any order, and the file's
 * size may be an old or a new one; of changes of a folder's names each may be there or not, whatever the files contain. That is less than ext4, XFS
 * or Btrfs promise, which write names in order. One model a process.
 */
#ifndef TESTS_SUPPORT_DISK_MODEL_H
#define TESTS_SUPPORT_DISK_MODEL_H

#include "tests/preload/disk_record.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

struct disk_bytes {
    char *data;
    size_t n, capacity;
};
struct disk_name {
    const char *name;
    int32_t object; /* index; -1: there is none of this name any more */
};
struct disk_names {
    struct disk_name *at;
    size_t n, capacity;
};
struct disk_object {
    uint64_t inode; /* 0: it existed before the log and was not written */
    bool folder;
    struct disk_bytes now, safe;       /* of a file: as a reader sees it, and on the disk for sure */
    struct disk_names named, safely;   /* of a folder */
    struct disk_change *pending;       /* since the last sync */
    size_t n_pending, capacity;
};

/* The folder `root` of the log, as the copy `before` has it; object 0. */
void disk_model_open(struct arena *a, const char *root, const char *before, uint64_t seed);
/* without: "data" or "folders", whose syncs are left out; "". */
void disk_model_apply(const struct disk_record *r, const char *first, const char *second, const char *data, const char *without);
/* The object of a path in root, or -1. */
int32_t disk_model_at(const char *path);
/* The folder that the path's last name is in, or -1. */
int32_t disk_model_folder(const char *path, const char **last);
const struct disk_object *disk_model_object(int32_t object);
struct disk_names disk_model_names(struct arena *a, const struct disk_names *s); /* a copy */

enum disk_state {
    DISK_OLD,      /* nothing that was not synced */
    DISK_NEW,      /* all */
    DISK_ZEROS,    /* names and sizes, without data */
    DISK_EMPTY,    /* names, without data and sizes */
    DISK_NAMELESS, /* data without names */
    DISK_TORN,     /* all but a half of each file's last write */
    DISK_DRAWN,    /* what a generator draws */
};
struct disk_made {
    const char *path;
    bool folder;
    struct disk_bytes data;
};
/* A state, as the list of its files and folders in `top`, folders first. */
struct disk_made *disk_model_state(struct arena *a, const char *top, enum disk_state state, size_t *n);

#endif
