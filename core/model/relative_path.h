/* core/model/relative_path.h - paths that a job states relative to its folder. */
#ifndef CORE_MODEL_RELATIVE_PATH_H
#define CORE_MODEL_RELATIVE_PATH_H

#include "core/base/arena.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

/* folder/path; an absolute path, and a path without a folder (NULL or ""), as it is. */
static inline const char *relative_path_in(struct arena *a, const char *folder, const char *path)
{
    if (*path == '/' || !folder || !*folder) return path;
    return arena_printf(a, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", path);
}

/* The same, absolute, so that it may be written into a file of another folder. */
static inline const char *relative_path_absolute(struct arena *a, const char *folder, const char *path)
{
    char here[PATH_MAX];
    path = relative_path_in(a, folder, path);
    while (!strncmp(path, "./", 2)) path += 2;
    if (*path == '/' || !getcwd(here, sizeof here)) return path;
    return relative_path_in(a, here, path);
}

#endif
