/* exec/worker/staging.h - pinned staging memory of a discrete device for collectives that run on the host.
 *
 * Layout: for a gradient all-reduce the segments, then this member's shards of them, then the buffer ring of separate
 * microbatches; for a collective inside calls its two operands. Each piece starts at a multiple of 64 bytes. The
 * algorithm determines what is copied down before and up after: only what it reads and writes, because the rest of a
 * slot may belong to another group. Adjacent pieces are copied together. */
#ifndef EXEC_WORKER_STAGING_H
#define EXEC_WORKER_STAGING_H

#include "core/program/program.h"

#include <stdint.h>

struct arena;
struct bounce_group;
struct chunk;

struct
    staging { /* of a gradient all-reduce: consecutive segments, each at a multiple of 64 bytes */
    char *segments, *own, *buffer_ring;
};

int64_t staging_bytes(const struct program *p, int32_t group, int32_t member);
/* base: of the whole staging area. */
struct staging staging_at(char *base, const struct program *p, int32_t group, int32_t member);
/* Fills *out for member `member` of a group, which is chunk k; moves are allocated in a. */
void staging_group(char *base, struct arena *a, const struct program *p, const struct chunk *k,
                   int32_t group, int32_t member, struct bounce_group *out);
void staging_tensor(char *base, const struct program *p, const struct chunk *k, int32_t group,
                     int32_t member, struct bounce_group *out);

#endif
