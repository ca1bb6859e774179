/* exec/plugin_file.h - finds and opens a plugin's file: beside the program, in ../lib/musher from there, or at a path
 * from the environment. */
#ifndef EXEC_PLUGIN_FILE_H
#define EXEC_PLUGIN_FILE_H

#include "core/base/error.h"

#include <limits.h>
#include <stddef.h>

enum { PLUGIN_PATH_MAX = PATH_MAX + 64 };

/* Opens plugin NAME ("cuda"): the file libmusher_NAME.so, or only the file that MUSHER_NAME_PLUGIN names. Output: the
 * handle for dlclose, the symbol `entry`, and the path (PLUGIN_PATH_MAX bytes). ERR_INPUT: not a valid name
 * (lower-case letters, digits and _). ERR_NO_DEVICE: the file is not found (the error lists all places), cannot be
 * opened or has no entry; nothing stays open then. */
MUST_CHECK enum status plugin_file_open(const char *name, const char *entry, char *path,
                                        void **library, void **symbol, struct error *err);

enum { PLUGIN_TITLE_MAX = 32 };
/* "CUDA plugin", for messages. */
const char *plugin_file_title(char out[PLUGIN_TITLE_MAX], const char *name);

#endif
