/* exec/plugin_file.h - a plugin's file is found and opened: beside the program, in ../lib/musher from there, or where a variable says. */
#ifndef EXEC_PLUGIN_FILE_H
#define EXEC_PLUGIN_FILE_H

#include "core/base/error.h"

#include <limits.h>
#include <stddef.h>

enum { PLUGIN_PATH_MAX = PATH_MAX + 64 };

struct plugin_file {
    const char *what;     /* "CUDA plugin" */
    const char *name;     /* "libmusher_cuda.so" */
    const char *variable; /* names another file, and then no other is looked for */
    const char *made;     /* "make builds it where …", for who has none */
    const char *needs;    /* "are … installed here?", for one that cannot be opened */
    const char *entry;    /* its one function */
};

/* Opens it: the library for dlclose, its entry, and in path (PLUGIN_PATH_MAX bytes) where it lies. ERR_NO_DEVICE where it is
 * not there (all places are named), cannot be opened or has no entry; nothing is left open then. */
MUST_CHECK enum status plugin_file_open(const struct plugin_file *f, char *path, void **library,
                                        void **entry, struct error *err);

#endif
