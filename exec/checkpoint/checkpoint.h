/* exec/checkpoint/checkpoint.h - whole tensors by name, so that any plan of the same model can go on from
 * them.
 *
 * DIR/step-00000050/ is one generation: data files (tensors one behind the other, little-endian)
 * and, written last, manifest.json: {magic, version, byte_order, step, dtype, optimizer,
 * global_batch, data {sequences, bytes, crc32}, loss_scale {now, good, skipped} where there is one, generator {algorithm, seed, counter}, tensors[{name,
 * shape, dtype, file, offset, bytes, crc32}], crc32 (of all that)}. The generator has no state but
 * the number of the next sequence. It is made under a temporary
 * name; every file is synced, then the folder is renamed and DIR synced: a reader sees all of a
 * generation or nothing of it. The last two that are known to be whole stay: those that this run wrote, and the one that it
 * went on from. What is older than both goes; what is damaged, or was never verified, counts for nothing. One run at a time writes
 * into DIR (a lock on the folder). Ownership: the arena's.
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

enum { CHECKPOINT_VERSION = 2 };
/* Of steps, sequences, bytes and elements in a manifest: a double has each exactly, and what a run adds to one stays far from int64's end. */
#define CHECKPOINT_COUNT_MAX (INT64_C(1) << 53)

struct checkpoint_tensor {
    char name[200];
    char file[32];
    struct shape shape;
    int32_t dtype; /* enum dtype */
    int64_t offset, bytes;
    uint32_t crc;
};
struct checkpoint {
    const char *folder; /* of the generation */
    int64_t step;       /* updates done */
    int64_t sequences;  /* consumed: the position in the data and of the generator */
    int64_t global_batch, data_bytes;
    uint32_t data_crc;
    uint64_t seed;
    enum optimizer_kind optimizer;
    enum dtype dtype;
    /* of the loss (core/graph/loss_scale.h): now, finite steps since it changed, steps skipped; 0: none */
    float scale[3];
    int32_t n_tensors;
    struct checkpoint_tensor *tensors; /* (n_tensors) */
};

/* ---- writing: one rank enters, follows and begins; files on any; commit on that one ----------- */

enum { CHECKPOINTS_KEPT = 2 };
struct checkpoint_store {
    const char *dir;
    int lock;  /* descriptor of DIR; -1: not entered */
    bool made; /* DIR by this run */
    /* steps of the newest generations known to be whole, newest first; -1: none */
    int64_t whole[CHECKPOINTS_KEPT];
};

/* Makes DIR where it is missing, and locks it until checkpoint_leave. ERR_INPUT: another run has the lock, or DIR is itself a
 * generation. */
MUST_CHECK enum status checkpoint_enter(struct arena *a, const char *dir,
                                        struct checkpoint_store *s, struct error *err);
/* The run goes on behind first_step, which checkpoint_find found at resume (NULL: it begins anew). ERR_INPUT: DIR has a later
 * generation, which this run would make old; where resume is DIR, those are known to be damaged. */
MUST_CHECK enum status checkpoint_follow(struct arena *a, struct checkpoint_store *s,
                                         const char *resume, int64_t first_step, struct error *err);
/* Safe on what was not entered. A DIR that this run made goes where nothing is in it. */
void checkpoint_leave(struct checkpoint_store *s);
/* Whether so many bytes have room beside what is there, as far as the file system says; warns where not. */
bool checkpoint_fits(const struct checkpoint_store *s, int64_t bytes);
/* Folder for the files of generation `step`; leftovers of killed runs are removed. */
MUST_CHECK enum status checkpoint_begin(struct arena *a, const struct checkpoint_store *s,
                                        int64_t step, const char **temporary, struct error *err);
/* One data file with n tensors; data[i] of tensors[i].bytes. Fills file, offset and crc. */
MUST_CHECK enum status checkpoint_write(struct arena *a, const char *temporary, const char *file,
                                        struct checkpoint_tensor *tensors, const void *const *data,
                                        int32_t n, struct error *err);
/* Manifest, rename, sync; then generations older than those to be kept go. */
MUST_CHECK enum status checkpoint_commit(struct arena *a, struct checkpoint_store *s,
                                         const char *temporary, const struct checkpoint *c,
                                         struct error *err);
/* In place of commit: the folder and its files go. */
void checkpoint_discard(const struct checkpoint_store *s, const char *temporary);

/* ---- reading ----------------------------------------------------------------------------------
 */

/* The newest generation of dir (or dir itself, where it is one) whose every byte verifies; a
 * damaged one is warned about and the one before is tried. ERR_INPUT where none is left. */
MUST_CHECK enum status checkpoint_find(struct arena *a, const char *dir, struct checkpoint *out,
                                       struct error *err);
/* One generation: manifest and, where verify, all data. */
MUST_CHECK enum status checkpoint_open(struct arena *a, const char *folder, bool verify,
                                       struct checkpoint *out, struct error *err);
/* ERR_INPUT where `steps` more steps of `global_batch` sequences lead to a step or a sequence that no manifest may hold. */
MUST_CHECK enum status checkpoint_continues(const struct checkpoint *c, int64_t steps,
                                            int64_t global_batch, struct error *err);
/* ERR_INPUT naming the tensor: missing, other shape or dtype, wrong CRC. out: (bytes). */
MUST_CHECK enum status checkpoint_load(const struct checkpoint *c, const char *name,
                                       const struct shape *shape, enum dtype dtype, void *out,
                                       struct error *err);

#endif
