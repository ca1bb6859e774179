/* exec/checkpoint/memory.h - checkpoints in host memory that outlives the ranks, with a copy in the memory of another node (Gemini, Wang et al.,
 * SOSP 2023), so that a restart reads no disk and loses few steps.
 *
 * The process that starts the ranks creates unnamed files in memory (memfd), which the ranks inherit: of each rank two generations, of which the
 * older is overwritten, each on the rank's own node and, as a copy, on a peer node. A generation is usable if of each rank either is complete. A file
 * holds the rank's tensors and then its rows of the manifest, as they lie in memory. The tensors are whole and have names, as in a
 * folder (checkpoint.h), so that another plan can resume from them, and checkpoint_load verifies their CRC. A lost node loses its files.
 *
 * Placement is Gemini's for two copies: nodes 2k and 2k + 1 are peers of each other; of an odd number the last three form a ring. So a generation
 * survives any one lost node, and two unless they are peers. One node alone has no peer.
 *
 * Memory: four times a rank's tensors, beside the snapshot. All ranks are on this host, because a message library ends all ranks when one dies: the
 * nodes are those of an emulated cluster. */
#ifndef EXEC_CHECKPOINT_MEMORY_H
#define EXEC_CHECKPOINT_MEMORY_H

#include "exec/checkpoint/checkpoint.h"

#include <stdatomic.h>

enum { CHECKPOINT_MEMORY_GENERATIONS = 2, CHECKPOINT_MEMORY_RANKS_MAX = 64 };

struct checkpoint_memory_part { /* of one rank in one generation */
    int own, copy;              /* descriptors */
    uint64_t home, peer;        /* hashes of the names of their nodes; peer 0: no copy */
    int64_t data_bytes;
    int32_t n_rows;
    _Atomic int64_t own_step, copy_step; /* complete after this step; 0: not */
};
/* Shared by all processes of a run; zeroed before checkpoint_memory_open. */
struct checkpoint_memory {
    int32_t n;     /* ranks that have files */
    int32_t first; /* generation that the first checkpoint of this start overwrites */
    struct checkpoint_memory_generation {
        struct checkpoint about; /* by rank 0: without folder and tensors */
        int64_t island_sequences[CHECKPOINT_MEMORY_RANKS_MAX];
        int32_t n_ranks;
        _Atomic int64_t step; /* 0: none */
        struct checkpoint_memory_part part[CHECKPOINT_MEMORY_RANKS_MAX];
    } generation[CHECKPOINT_MEMORY_GENERATIONS];
};

/* Node of a pair, or of the ring of the last three; -1: n_nodes is 1. */
int32_t checkpoint_memory_peer(int32_t node, int32_t n_nodes);
/* Of the node's name in a device's ("a" of "a.1"). */
uint64_t checkpoint_memory_node(const char *device);

/* ---- the process that starts the ranks ---- */

/* ERR_RESOURCE: no descriptors. */
MUST_CHECK enum status checkpoint_memory_open(struct checkpoint_memory *m, int32_t n, struct error *err);
void checkpoint_memory_close(struct checkpoint_memory *m);
/* The memory of a node is lost: its files are empty. No rank runs. */
void checkpoint_memory_lose(struct checkpoint_memory *m, uint64_t node);
/* Writes the usable generation of this step to folder DIR as its newest (checkpoint.h), for a run that ends. disk: step of the newest valid generation
 * there, 0: none; keep: generations to keep; config: text of config.json, NULL: none. No rank runs. ERR_INPUT, ERR_RESOURCE: DIR is as it was. O(bytes). */
MUST_CHECK enum status checkpoint_memory_write(struct arena *a, struct checkpoint_memory *m, int64_t step, const char *dir, int64_t disk, int32_t keep,
                                               const char *config, struct error *err);
/* Step of the newest usable generation, 0: none. *copies: ranks whose copy is needed. The next checkpoint overwrites the other one. */
int64_t checkpoint_memory_find(struct checkpoint_memory *m, int32_t *copies);

/* ---- ranks ---- */

struct checkpoint_memory_writer {
    struct checkpoint_memory_part *part;
    struct arena *a;
    struct checkpoint_tensor *rows;
    size_t capacity;
    int64_t at;
};
/* Any thread of the rank: begin, put tensors, end. ERR_RESOURCE: no memory. */
MUST_CHECK enum status checkpoint_memory_begin(struct checkpoint_memory_writer *w, struct arena *a, struct checkpoint_memory *m, int32_t generation,
                                               int32_t rank, uint64_t home, uint64_t peer, struct error *err);
MUST_CHECK enum status checkpoint_memory_put(void *writer, struct arena *a, const char *file, struct checkpoint_tensor *rows, const void *const *data,
                                             int32_t n, struct error *err);
MUST_CHECK enum status checkpoint_memory_end(struct checkpoint_memory_writer *w, int64_t step, struct error *err);
/* By rank 0, in addition: c has no tensors. */
void checkpoint_memory_describe(struct checkpoint_memory *m, int32_t generation, const struct checkpoint *c, int32_t n_ranks);
/* Then: copies the rank's file to the peer, in chunks of at most chunk_bytes. pace is called before each and returns when it may be copied. */
typedef void checkpoint_pace(void *owner, int64_t bytes);
MUST_CHECK enum status checkpoint_memory_copy(struct checkpoint_memory_writer *w, int64_t step, int64_t chunk_bytes, checkpoint_pace *pace, void *owner,
                                              struct error *err);
/* The generation of this step, to load tensors from; ERR_INPUT: it is not usable. */
MUST_CHECK enum status checkpoint_memory_read(struct arena *a, struct checkpoint_memory *m, int64_t step, struct checkpoint *out, struct error *err);

#endif
