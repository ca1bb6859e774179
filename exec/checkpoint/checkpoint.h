/* exec/checkpoint/checkpoint.h - checkpoints: unsharded tensors by name, so that any plan of the same model can
 * resume from them.
 *
 * DIR/step-00000050/ is one generation, which transformers loads as it is: config.json, the parameters in model.safetensors or in several files
 * and model.safetensors.index.json, everything else in optimizer.safetensors and files of single ranks (exec/checkpoint/files.h), and,
 * written last, manifest.json: {magic, version, byte_order, step, dtype, optimizer, global_batch, data {sequences, bytes, crc32},
 * loss_scale {now, good, skipped} if there is one, generator {algorithm, seed, counter}, tensors[{name, shape, dtype,
 * file, offset, bytes, crc32}], crc32 (of all that)}. Its tensors have the graph's names and shapes: several tensors of a file that follow each
 * other, such as experts, may be one of them (core/model/weight.h). The generator's only state is the number of the next sequence.
 *
 * Saves are atomic: a generation is written under a temporary name, every file is synced, the folder is renamed and
 * DIR synced, so a reader sees all of a generation or none. The last `keep` generations known to be complete are kept:
 * those that this run wrote, and the one that it resumed from. Older ones are removed; damaged or unverified ones do
 * not count. A lock on DIR admits one run at a time. Ownership: the arena's.
 */
#ifndef EXEC_CHECKPOINT_CHECKPOINT_H
#define EXEC_CHECKPOINT_CHECKPOINT_H

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/model/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct arena;
struct weights;

enum { CHECKPOINT_VERSION = 3, CHECKPOINT_FILE_BYTES = 48 };
/* Largest step, sequence, byte and element count in a manifest: a double represents it exactly, and a run's additions
 * cannot overflow int64. */
#define CHECKPOINT_COUNT_MAX (INT64_C(1) << 53)

struct checkpoint_tensor {
    char name[200];
    char file[CHECKPOINT_FILE_BYTES];
    struct shape shape;
    int32_t dtype; /* enum dtype */
    int64_t offset, bytes;
    uint32_t crc;
};
struct checkpoint {
    const char *folder; /* of the generation */
    int64_t step;       /* updates done */
    int64_t sequences;  /* consumed: position in the data and of the generator */
    int64_t global_batch, data_bytes;
    uint32_t data_crc;
    uint64_t seed;
    enum optimizer_kind optimizer;
    enum dtype dtype;
    /* loss scale (core/graph/loss_scale.h): value, finite steps since its last change, skipped steps; 0: none */
    float scale[3];
    /* local SGD: sequences a step of each island, whose tensors have its number in their names; 0 islands: one of all */
    int32_t n_islands;
    int64_t *island_sequences;
    int32_t n_tensors;
    struct checkpoint_tensor *tensors; /* (n_tensors) */
    /* NULL, or weights without a manifest that it stands for (exec/checkpoint/weights.h): parameters alone, of any dtype */
    const struct weights *weights;
};

/* ---- writing: one rank calls enter, follow, begin and commit; any rank writes files ---------- */

/* The generation with the lowest validation loss, kept beside the newest ones. DIR/best.json states it: {step, validation_loss}. */
struct checkpoint_best {
    int64_t step; /* 0: none */
    double loss;
};
/* That of DIR; none if the file is missing or damaged (a warning), or its generation is not there or later than last_step. */
struct checkpoint_best checkpoint_best_read(struct arena *a, const char *dir, int64_t last_step);
MUST_CHECK enum status checkpoint_best_write(struct arena *a, const char *dir, const struct checkpoint_best *b, struct error *err);

enum { CHECKPOINTS_KEPT = 2, CHECKPOINTS_KEPT_MAX = 1000 };
struct checkpoint_store {
    const char *dir;
    int lock;  /* descriptor of DIR; -1: not entered */
    bool made; /* DIR was created by this run */
    /* steps of the newest complete generations, newest first; -1: none */
    int64_t whole[CHECKPOINTS_KEPT_MAX];
    int32_t keep; /* checkpoint_enter: CHECKPOINTS_KEPT */
    struct checkpoint_best best, next; /* next: becomes the best when its generation is committed */
};

/* Creates DIR if it is missing, and locks it until checkpoint_leave. ERR_INPUT: another run holds the lock, or DIR is
 * itself a generation. */
MUST_CHECK enum status checkpoint_enter(struct arena *a, const char *dir,
                                        struct checkpoint_store *s, struct error *err);
/* The run continues from first_step, which checkpoint_find found in resume (NULL: a new training). ERR_INPUT: DIR has
 * a later generation, which this run would invalidate; if resume is DIR, later generations are known to be damaged
 * and allowed. */
MUST_CHECK enum status checkpoint_follow(struct arena *a, struct checkpoint_store *s,
                                         const char *resume, int64_t first_step, struct error *err);
/* Allowed without enter. Removes DIR if this run created it and it is empty. */
void checkpoint_leave(struct checkpoint_store *s);
/* Whether the file system has `bytes` free, as far as it reports; prints a warning if not. */
bool checkpoint_fits(const struct checkpoint_store *s, int64_t bytes);
/* Creates the folder for generation `step`; removes leftovers of killed runs. */
MUST_CHECK enum status checkpoint_begin(struct arena *a, const struct checkpoint_store *s,
                                        int64_t step, const char **temporary, struct error *err);
uint32_t checkpoint_crc(const void *p, int64_t bytes); /* of a tensor's bytes */
/* Writes n tensors, data[i] of tensors[i].bytes, into `file` or where the owner has a place for them; sets file, offset and crc. */
typedef enum status checkpoint_put(void *owner, struct arena *a, const char *file, struct checkpoint_tensor *tensors, const void *const *data,
                                   int32_t n, struct error *err);
/* Writes the manifest, renames, syncs; then removes generations that are no longer kept. */
MUST_CHECK enum status checkpoint_commit(struct arena *a, struct checkpoint_store *s,
                                         const char *temporary, const struct checkpoint *c,
                                         struct error *err);
/* Removes what killed runs have left of generations that they were writing (.step-*.tmp), unless another run has locked DIR. No effect if
 * DIR cannot be opened. */
void checkpoint_clear(const char *dir);
/* Instead of commit: removes the folder and its files. */
void checkpoint_discard(const struct checkpoint_store *s, const char *temporary);

/* ---- reading ----------------------------------------------------------------------------------
 */

/* The newest generation of dir (or dir itself, if it is one) whose every byte verifies; a damaged one gives a warning
 * and the one before is tried. ERR_INPUT if none is left. */
MUST_CHECK enum status checkpoint_find(struct arena *a, const char *dir, struct checkpoint *out,
                                       struct error *err);
/* The same for a folder that may be missing or without generations: *found is false. ERR_INPUT: it has some, and all are damaged. */
MUST_CHECK enum status checkpoint_find_any(struct arena *a, const char *dir, bool *found, struct checkpoint *out, struct error *err);
/* Step of the newest generation of dir by its name, nothing of which is read; 0: none. */
int64_t checkpoint_newest(struct arena *a, const char *dir);
/* Reads one generation: the manifest and, with verify, all data and headers (checkpoint_files_agree). */
MUST_CHECK enum status checkpoint_open(struct arena *a, const char *folder, bool verify,
                                       struct checkpoint *out, struct error *err);
/* The parameters of a folder that has a manifest: their bytes have its CRCs, and their headers agree with it. OK for a folder without one. ERR_INPUT. */
MUST_CHECK enum status checkpoint_verify_parameters(struct arena *a, const char *folder, struct error *err);
/* ERR_INPUT if `steps` more steps of `global_batch` sequences exceed CHECKPOINT_COUNT_MAX. */
MUST_CHECK enum status checkpoint_continues(const struct checkpoint *c, int64_t steps,
                                            int64_t global_batch, struct error *err);
bool checkpoint_has(const struct checkpoint *c, const char *name);
/* ERR_INPUT with the tensor's name: missing, other shape or dtype (of weights: converted), wrong CRC. out: (bytes). */
MUST_CHECK enum status checkpoint_load(const struct checkpoint *c, const char *name,
                                       const struct shape *shape, enum dtype dtype, void *out,
                                       struct error *err);

#endif
