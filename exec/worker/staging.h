/* exec/worker/staging.h - what the host has of a discrete lane's memory while it runs a collective for it.
 *
 * Staging lies in pinned memory: the segments of a gradient all-reduce one behind the other, then this member's own shards of them, then
 * the ring of separate microbatches; or the two operands of a collective inside calls. Everything starts at a multiple of 64 bytes. Which of it
 * is copied down before and up after follows from the algorithm: no more than it reads and writes, since what else is in a slot
 * may be another group's. Neighbours on both sides go in one copy. */
#ifndef EXEC_WORKER_STAGING_H
#define EXEC_WORKER_STAGING_H

#include "core/program/program.h"

#include <stdint.h>

struct arena;
struct bounce_group;
struct chunk;

struct
    staging { /* of a gradient all-reduce: segment after segment, each at a multiple of 64 bytes */
    char *segments, *own, *buffer_ring;
};

int64_t staging_bytes(const struct program *p, int32_t group, int32_t member);
/* base: of all staging. */
struct staging staging_at(char *base, const struct program *p, int32_t group, int32_t member);
/* Fills in *out for member `member` of a group, which is chunk k; moves are allocated in a. */
void staging_group(char *base, struct arena *a, const struct program *p, const struct chunk *k,
                   int32_t group, int32_t member, struct bounce_group *out);
void staging_tensor(char *base, const struct program *p, const struct chunk *k, int32_t group,
                     int32_t member, struct bounce_group *out);

#endif
