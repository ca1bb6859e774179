/* exec/plugin_file.h - a plugin's file is found and opened: beside the program, in ../lib/musher from there, or where a variable says. */
#ifndef EXEC_PLUGIN_FILE_H
#define EXEC_PLUGIN_FILE_H

#include "core/base/error.h"

#include <limits.h>
#include <stddef.h>

enum { PLUGIN_PATH_MAX = PATH_MAX + 64 };

/* Opens the plugin NAME ("cuda"): the file libmusher_NAME.so, or the one that MUSHER_NAME_PLUGIN names, and then no other. out: the
 * library for dlclose, its one function `entry`, and in path (PLUGIN_PATH_MAX bytes) where it lies. ERR_INPUT: the name is none
 * (lower-case letters, digits and _). ERR_NO_DEVICE where the file is not there (all places are named), cannot be opened or has no entry;
 * nothing is left open then. */
MUST_CHECK enum status plugin_file_open(const char *name, const char *entry, char *path,
                                        void **library, void **symbol, struct error *err);

enum { PLUGIN_TITLE_MAX = 32 };
/* "CUDA plugin", for messages. */
const char *plugin_file_title(char out[PLUGIN_TITLE_MAX], const char *name);

#endif
