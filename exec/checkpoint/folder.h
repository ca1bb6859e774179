/* exec/checkpoint/folder.h - names in a checkpoint folder: generations (step-00000050), and hidden folders of what is being
 * written or removed (.step-00000050.tmp). For checkpoint.c alone.
 *
 * dir is a descriptor of the folder. Removal goes through descriptors and follows no symbolic link: of a link, the link goes and its
 * target stays.
 */
#ifndef EXEC_CHECKPOINT_FOLDER_H
#define EXEC_CHECKPOINT_FOLDER_H

#include "core/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct arena;

/* Steps of the generations, newest first: folders, or symbolic links to folders. path is for messages. */
MUST_CHECK enum status checkpoint_folder_list(struct arena *a, int dir, const char *path,
                                              int64_t **steps, size_t *n, struct error *err);
const char *checkpoint_folder_name(struct arena *a, int64_t step);
/* A new hidden folder for generation `step`; *name: in dir. ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_folder_make(struct arena *a, int dir, const char *path,
                                              int64_t step, const char **name, struct error *err);
/* The hidden folder becomes generation `step`, and dir is synced. What had that name (damaged, or made again) is exchanged in one
 * act and then removed. ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_folder_publish(struct arena *a, int dir, const char *path,
                                                 const char *hidden, int64_t step,
                                                 struct error *err);
/* A folder of plain files, or a symbolic link. What cannot be removed stays: no later save needs its name. */
void checkpoint_folder_remove(int dir, const char *name);
/* Removes a generation; a kill in between leaves no part of it under its name. */
void checkpoint_folder_drop(struct arena *a, int dir, int64_t step);
/* Removes what killed runs left. */
void checkpoint_folder_clear(int dir);

#endif
