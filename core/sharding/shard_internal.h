/* core/sharding/shard_internal.h - shared by shard_place.c and shard.c. */
#ifndef CORE_SHARDING_SHARD_INTERNAL_H
#define CORE_SHARDING_SHARD_INTERNAL_H

#include "core/sharding/shard.h"

/* Units of axis x that the device has, counted from the beginning of the outer shard. */
void shard_units(struct arena *a, const struct sharding *s, const struct placement *p, int32_t x,
                 int32_t device, int64_t *first, int64_t *n);
/* How the device's group along x divides its dimension. */
struct division *shard_division(struct arena *a, const struct sharding *s,
                                const struct placement *p, int32_t x, int32_t device);
struct exchange *shard_group(struct arena *a, const struct sharding *s, int32_t axis,
                             int32_t device);
const struct exchange *shard_exchange(struct arena *a, const struct sharding *s,
                                      const struct conversion *c, int32_t device);

#endif
