/* exec/checkpoint/safetensors.h - files of tensors in the safetensors format (github.com/huggingface/safetensors, README, "Format").
 *
 * A file is 8 bytes N, little-endian; N bytes of JSON, name → {"dtype", "shape", "data_offsets": [begin, end)} and "__metadata__", texts by
 * name, padded with spaces; data, little-endian and row-major. Offsets count from the byte behind the header.
 * The reader accepts no hole, no overlap, no byte that belongs to no tensor, no name twice, and no size that differs from shape and dtype. It
 * reads the header alone: O(header).
 * The writer pads N to a multiple of 8, as the reference does, and states {"format": "pt"}, without which transformers loads nothing. */
#ifndef EXEC_CHECKPOINT_SAFETENSORS_H
#define EXEC_CHECKPOINT_SAFETENSORS_H

#include "core/base/error.h"
#include "core/graph/op.h"

#include <stddef.h>
#include <stdint.h>

struct arena;

enum { SAFETENSORS_HEADER_MAX = 64 << 20 }; /* bytes; the documents' limit, below the reference's 100 MB */

struct safetensors_tensor {
    const char *name;
    const char *stored; /* dtype in the file, "BF16" */
    int32_t dtype;      /* enum dtype; -1: none that weights have */
    struct shape shape;
    int64_t offset, bytes; /* in the file */
};
struct safetensors {
    const char *path;
    int64_t bytes; /* of the file */
    int32_t n;
    struct safetensors_tensor *tensors; /* (n) by offset */
};

/* Ownership: the arena's. ERR_INPUT with the file and the tensor. */
MUST_CHECK enum status safetensors_read(struct arena *a, const char *path, struct safetensors *out, struct error *err);
/* Everything in front of the data of n tensors that follow each other (name, dtype, shape); sets their offsets and bytes. */
char *safetensors_head(struct arena *a, struct safetensors_tensor *tensors, int32_t n, int64_t *bytes);
const char *safetensors_dtype(enum dtype t); /* "BF16" */

#endif
