/* exec/checkpoint/manifest.h - reads and writes a generation's manifest.json (contents: checkpoint.h). For
 * checkpoint.c only.
 */
#ifndef EXEC_CHECKPOINT_MANIFEST_H
#define EXEC_CHECKPOINT_MANIFEST_H

#include "exec/checkpoint/checkpoint.h"

#define CHECKPOINT_MANIFEST "manifest.json"

MUST_CHECK enum status checkpoint_write_manifest(struct arena *a, const char *folder,
                                                 const struct checkpoint *c, struct error *err);
/* ERR_INPUT: not readable, of another version, or wrong crc32. Values are validated against overflow: no shape has
 * more than 2^53 elements, bytes match the shape, every name is unique, every file is in the folder. */
MUST_CHECK enum status checkpoint_read_manifest(struct arena *a, const char *folder,
                                                struct checkpoint *c, struct error *err);

#endif
