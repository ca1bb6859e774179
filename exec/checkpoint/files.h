/* exec/checkpoint/files.h - the data files of a generation: where each tensor lies, and how ranks write into one file.
 *
 * A layout has the tensors that every plan of a model saves: parameters in model.safetensors, or, above a size, in files
 * model-00001-of-00003.safetensors and so on; their optimizer state and the like ("name#m") in optimizer.safetensors, likewise. Tensors are
 * ordered by width of the dtype, widest first, then by name, so a layout depends on the model alone. Each rank computes it, and writes its tensors to their
 * places without a message; one rank writes the headers. What single devices have of their own has files of its own.
 * A file that is written in places is synced by every rank that has written into it. */
#ifndef EXEC_CHECKPOINT_FILES_H
#define EXEC_CHECKPOINT_FILES_H

#include "exec/checkpoint/checkpoint.h"

/* Bytes of a file of parameters: the default of transformers' save_pretrained (max_shard_size, "5GB"). */
#define CHECKPOINT_SHARD_BYTES INT64_C(5000000000)

struct checkpoint_layout {
    int32_t n, n_files, n_model_files;
    struct checkpoint_tensor *tensors; /* (n) by name; file and offset are set */
    int32_t *file;                     /* (n) index into files */
    struct checkpoint_layout_file {
        char name[CHECKPOINT_FILE_BYTES];
        const char *head;
        int64_t head_bytes;
        int32_t n_stored;                   /* tensors of the file under their names on disk */
        struct safetensors_tensor *stored;
    } *files; /* (n_files) those of parameters first */
};

/* Of n tensors: name, shape, dtype. A larger tensor than shard_bytes has a file alone. Ownership: the arena's. ERR_INPUT: a name on disk is too long. O(n log n). */
MUST_CHECK enum status checkpoint_layout_make(struct arena *a, const struct checkpoint_tensor *tensors, int32_t n, int64_t shard_bytes,
                                              struct checkpoint_layout *out, struct error *err);
/* By one rank: the headers of all files, the index of several, and config.json (NULL: none). ERR_RESOURCE. */
MUST_CHECK enum status checkpoint_layout_write(struct arena *a, const struct checkpoint_layout *x, const char *folder, const char *config,
                                               struct error *err);

/* Writes one file of n tensors. Fills file, offset and crc. */
MUST_CHECK enum status checkpoint_write(struct arena *a, const char *folder, const char *file, struct checkpoint_tensor *tensors,
                                        const void *const *data, int32_t n, struct error *err);
struct checkpoint_target {
    const char *folder;
    const struct checkpoint_layout *layout;
};
/* Tensors of the target's layout go to their places, the others into `file`. */
MUST_CHECK enum status checkpoint_put_file(void *target, struct arena *a, const char *file, struct checkpoint_tensor *tensors, const void *const *data,
                                           int32_t n, struct error *err);

/* Whether the headers of the files have each tensor of the manifest at its place, under its names on disk. O(headers). ERR_INPUT with file and tensor. */
MUST_CHECK enum status checkpoint_files_agree(struct arena *a, const struct checkpoint *c, struct error *err);

/* Injects a fault: from now on data files of this process fail with this errno; 0: no longer. */
void checkpoint_fail(int why);

#endif
