/* exec/checkpoint/convert.h - weights in another dtype, or in other files.
 *
 * The folder is written under a hidden name beside its own, synced and renamed, so it is whole or not there. */
#ifndef EXEC_CHECKPOINT_CONVERT_H
#define EXEC_CHECKPOINT_CONVERT_H

#include "exec/checkpoint/weights.h"

/* dtype DTYPE_COUNT: that of each tensor. config.json is copied if there is one. Memory: one tensor. ERR_INPUT: a tensor is of no dtype of weights, a
 * value is not finite in dtype, or out exists. ERR_RESOURCE. */
MUST_CHECK enum status weights_convert(struct arena *a, const struct weights *w, enum dtype dtype, int64_t shard_bytes, const char *out,
                                       struct error *err);

#endif
