/* exec/checkpoint/folder.h - folder names of a checkpoint: generations (step-00000050), and hidden folders being
 * written or removed (.step-00000050.tmp). For checkpoint.c only.
 *
 * dir is a descriptor of the folder. Removal uses descriptors and follows no symbolic link: the link is removed, its
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
/* Creates a hidden folder for generation `step`; *name: relative to dir. ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_folder_make(struct arena *a, int dir, const char *path,
                                              int64_t step, const char **name, struct error *err);
/* Renames the hidden folder to generation `step` and syncs dir. An existing generation of that name (damaged, or
 * written again) is exchanged atomically and then removed. ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_folder_publish(struct arena *a, int dir, const char *path,
                                                 const char *hidden, int64_t step,
                                                 struct error *err);
/* Removes a folder of plain files, or a symbolic link. What cannot be removed stays: no later save needs its name. */
void checkpoint_folder_remove(int dir, const char *name);
/* Removes a generation; if killed in between, no incomplete generation keeps its name. */
void checkpoint_folder_drop(struct arena *a, int dir, int64_t step);
/* Removes leftovers of killed runs. */
void checkpoint_folder_clear(int dir);

#endif
