/* tests/preload/disk_record.h - the log of file operations that disk.c writes with DISK_LOG and tests/programs/power_loss.c replays: one struct
 * disk_record after the other, each followed by the texts and bytes that it counts. All processes of a run append to one log, in the order of
 * their operations.
 */
#ifndef TESTS_PRELOAD_DISK_RECORD_H
#define TESTS_PRELOAD_DISK_RECORD_H

#include <stdint.h>

enum disk_operation {
    DISK_CREATE,   /* first: path of an empty new file */
    DISK_WRITE,    /* data, at byte `at` of the file */
    DISK_TRUNCATE, /* the file has `at` bytes now */
    DISK_SYNC,     /* the file, or the entries of the folder, are on the disk */
    DISK_RENAME,   /* first to second */
    DISK_EXCHANGE, /* first and second change places */
    DISK_LINK,     /* first is called second too */
    DISK_UNLINK,   /* first */
    DISK_MKDIR,    /* first */
    DISK_RMDIR,    /* first */
    DISK_TOLD,     /* data: text that the program has printed */
};

/* Paths are absolute, and their folders are free of symbolic links. first is also the path of what a descriptor names, as /proc shows it. */
struct disk_record {
    uint32_t operation; /* enum disk_operation */
    uint32_t first, second, data; /* bytes behind the record */
    uint64_t inode;               /* of the file or folder, where there is one */
    int64_t at;
};

#endif
