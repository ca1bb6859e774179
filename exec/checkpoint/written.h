/* exec/checkpoint/written.h - in the folder of a generation that is being written: what each rank has written, so that one rank knows without a
 * message that all have, and what the manifest lists.
 *
 * rank-0003.rows is a rank's rows of the manifest as they lie in memory, because all ranks run one program. It appears complete
 * (core/base/file.h), after the rank's data files are on disk, and is removed before the generation is published. On a network file
 * system it may be seen as late as the client's cache of the folder allows. */
#ifndef EXEC_CHECKPOINT_WRITTEN_H
#define EXEC_CHECKPOINT_WRITTEN_H

#include "exec/checkpoint/checkpoint.h"

/* finite: false if the rank's values are not, and it has written nothing. ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_note_written(struct arena *a, const char *folder, int32_t rank, bool finite,
                                               const struct checkpoint_tensor *rows, int32_t n, struct error *err);
bool checkpoint_has_written(struct arena *a, const char *folder, int32_t rank);
/* Reads and removes the note of a rank that has written. Ownership: the arena's. ERR_INPUT: it is no such note. */
MUST_CHECK enum status checkpoint_take_written(struct arena *a, const char *folder, int32_t rank, bool *finite,
                                               struct checkpoint_tensor **rows, int32_t *n, struct error *err);

#endif
