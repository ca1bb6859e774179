/* exec/checkpoint/weights.h - a folder of weights in the safetensors format, without or besides a manifest: what transformers writes and the
 * hub has, and a checkpoint of musher (exec/checkpoint/checkpoint.h).
 *
 * The tensors are those of model.safetensors, or of the files that model.safetensors.index.json names. Values are converted between F32, F64,
 * BF16 and F16, rounded to nearest. Names: core/model/weight.h. */
#ifndef EXEC_CHECKPOINT_WEIGHTS_H
#define EXEC_CHECKPOINT_WEIGHTS_H

#include "exec/checkpoint/safetensors.h"

#include <stdbool.h>

struct arena;

struct weights {
    const char *folder;
    int32_t n_files, n;
    struct safetensors *files; /* (n_files) */
    struct weight {
        const char *name; /* on disk; after weights_match of the model, where it differs */
        struct safetensors_tensor *at;
        int32_t file;
    } *tensors; /* (n) by name */
};
struct weight_wanted {
    const char *name; /* of the graph's parameter */
    struct shape shape;
};

/* Reads all headers. Ownership: the arena's. ERR_INPUT: no such files, or the index and they differ. */
MUST_CHECK enum status weights_open(struct arena *a, const char *folder, struct weights *out, struct error *err);
const struct weight *weights_find(const struct weights *w, const char *name); /* NULL: none */
/* Whether the weights are those of a model with these n parameters: each is there once in its shape, and nothing else is but what a model of
 * its family ignores. A head of a model with tied embeddings has to repeat them. ERR_INPUT with file, tensor and the nearest name. O(n log n), and the
 * bytes of what is repeated. */
MUST_CHECK enum status weights_match(struct arena *a, struct weights *w, const struct weight_wanted *wanted, int32_t n, struct error *err);
/* After weights_match: a parameter, converted. ERR_INPUT: the file cannot be read, or a value is not finite in dtype. out: the elements of shape. */
MUST_CHECK enum status weights_load(const struct weights *w, const char *parameter, const struct shape *shape, enum dtype dtype, void *out,
                                    struct error *err);
/* n values of a tensor from element `first` on. */
MUST_CHECK enum status weights_read(const struct weights *w, const struct weight *x, int64_t first, int64_t n, enum dtype dtype, void *out,
                                    struct error *err);

#endif
