/* exec/host_transport/memory.h - a stage's slots in device memory.
 *
 * Lowering decides the layout; this module allocates the regions from the backend and maps (slot, sequence number) to
 * an address. Parameters are initialised from random streams keyed by (seed, name, element), so that every plan of a
 * job starts from the same unsharded tensors.
 */
#ifndef EXEC_HOST_TRANSPORT_MEMORY_H
#define EXEC_HOST_TRANSPORT_MEMORY_H

#include "core/base/error.h"
#include "core/program/program.h"
#include "exec/backend.h"

#include <stdint.h>

struct arena;

struct lane_memory {
    struct backend *backend;
    const struct program_stage *stage;
    char *region[SLOT_CLASS_COUNT];
    char **buffer_ring; /* (n_buffer_rings) first buffer */
    char *staging;      /* of collectives */
    char *host;         /* activations in host memory, offload_host_bytes, page-locked on a discrete device; NULL: none */
    int64_t bytes;      /* allocated from the backend: program_stage_bytes */
};

/* staging: whether the collectives' staging is on the device. */
MUST_CHECK enum status lane_memory_open(struct lane_memory *m, struct arena *a,
                                        const struct program *p, int32_t stage, struct backend *b,
                                        bool staging, struct error *err);
void lane_memory_close(struct lane_memory *m); /* NULL members are allowed */
/* The values do not depend on the number of threads (memory_init.c). */
MUST_CHECK enum status lane_memory_init(struct lane_memory *m, uint64_t seed, int32_t threads,
                                        struct error *err);
/* Address of a slot for sequence number seq (any seq if the slot is in no buffer ring). */
void *lane_memory_slot(const struct lane_memory *m, int32_t slot, int64_t seq);

/* A precomputed address: base + (seq mod count) · stride. */
struct place {
    char *base;
    int64_t stride;
    int64_t count;
};
struct place lane_memory_place(const struct lane_memory *m, int32_t slot);
static inline void *place_at(const struct place *p, int64_t seq)
{
    return p->count <= 1 || seq < 0 ? p->base : p->base + seq % p->count * p->stride;
}

#endif
