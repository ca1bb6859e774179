/* exec/checkpoint/manifest.h - manifest.json of a generation (checkpoint.h says what is in it), out and
 * in. For checkpoint.c alone.
 */
#ifndef EXEC_CHECKPOINT_MANIFEST_H
#define EXEC_CHECKPOINT_MANIFEST_H

#include "exec/checkpoint/checkpoint.h"

#define CHECKPOINT_MANIFEST "manifest.json"

MUST_CHECK enum status checkpoint_write_manifest(struct arena *a, const char *folder,
                                                 const struct checkpoint *c, struct error *err);
/* ERR_INPUT: not readable, of another version, or its crc32 does not fit. Sizes and counts that are read can be multiplied and added
 * to: no shape has more than 2^53 elements, bytes are what the shape takes, every name is there once, every file in the folder. */
MUST_CHECK enum status checkpoint_read_manifest(struct arena *a, const char *folder,
                                                struct checkpoint *c, struct error *err);

#endif
