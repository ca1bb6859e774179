/* core/model/relative_path.h - paths that a job states relative to its folder. */
#ifndef CORE_MODEL_RELATIVE_PATH_H
#define CORE_MODEL_RELATIVE_PATH_H

#include "core/base/arena.h"

#include <string.h>

/* folder/path; an absolute path, and a path without a folder (NULL or ""), as it is. */
static inline const char *relative_path_in(struct arena *a, const char *folder, const char *path)
{
    if (*path == '/' || !folder || !*folder) return path;
    return arena_printf(a, "%s%s%s", folder, folder[strlen(folder) - 1] == '/' ? "" : "/", path);
}

#endif
