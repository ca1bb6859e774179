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

/* What stages of one sharding share (shard_choices_new). */
struct shard_choices {
    const struct graph *whole;
    const struct sharding *s;
    const struct grain *grains;
    const struct op_choice *choices; /* (n_forward) */
    const bool *gathered;            /* (n_tensors) */
    const bool *trained;             /* (n_tensors) activations that require gradients */
    const bool *reaches;             /* (n_forward) the loss depends on it */
};

struct shard_window { /* forward operators of the whole graph: [begin, end) */
    int32_t begin, end;
    int32_t open; /* the tensor that is read behind it, -1: none */
};
struct shard_window shard_window_of(const struct shard_choices *c, int32_t first_layer,
                                    int32_t last_layer, int32_t until);
/* Fills trained and reaches. */
void shard_window_prepare(struct arena *a, struct shard_choices *c);

#endif
