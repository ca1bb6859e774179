/* planner/spmd_price.h - placements by number, what each device has of a tensor in them, and what a meeting over it costs.
 *
 * Placements that give every device the same part have one number. Shapes of parts and prices are kept: a model has some ten
 * shapes of tensors and some tens of placements. A meeting is priced as core/meeting's steps would play on links of their
 * own: by ring (all-reduce; all-gather and reduce-scatter padded to the largest part) or by pairs (as many bytes as there are;
 * all-to-all), the cheaper one where both go; a mesh's groups along one axis meet beside each other, so the slowest counts.
 * All bytes are bytes, every message has its latency.
 */
#ifndef PLANNER_SPMD_PRICE_H
#define PLANNER_SPMD_PRICE_H

#include "core/error.h"
#include "core/shard.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* The hop from one of the stage's devices to another, alone; of: the caller's. */
typedef struct cost_link spmd_hop(const void *of, int32_t from, int32_t to);

enum spmd_meeting_way { SPMD_RING = 1, SPMD_PAIRS = 2, SPMD_TIERS = 4 };

struct spmd_price;
/* ways: a set of spmd_meeting_way that may be used; where a kind can go none of them it goes the way that it can. TIERS: a sum
 * as a reduce-scatter inside nodes, one ring for each local rank between them (a node's members share the link that leaves
 * it) and an all-gather, where node (n_devices; NULL: none) tells equal numbers of devices, side by side, on several nodes. */
struct spmd_price *spmd_price_new(struct arena *a, const struct sharding *s, spmd_hop *hop,
                                  const void *of, uint32_t ways, const int32_t *node);

int32_t spmd_placement(struct spmd_price *y,
                       const struct placement *p); /* its number, 0 is whole */
const struct placement *spmd_placement_of(const struct spmd_price *y, int32_t placement);
int32_t spmd_placements(const struct spmd_price *y);

/* Shapes of the parts of a tensor of this shape: (n_devices). */
const struct shape *spmd_parts(struct spmd_price *y, const struct shape *whole, int32_t placement);
/* One step of conversion, forward; or another kind over the same parts (its dual). */
MUST_CHECK enum status spmd_step_ns(struct spmd_price *y, const struct shape *whole,
                                    int64_t element_bytes, enum op_kind kind, int32_t axis,
                                    int32_t before, int32_t after, int64_t *out_ns,
                                    struct error *err);
/* A sum over axis of what is placed so. */
MUST_CHECK enum status spmd_sum_ns(struct spmd_price *y, const struct shape *whole,
                                   int64_t element_bytes, int32_t axis, int32_t placement,
                                   int64_t *out_ns, struct error *err);

/* The steps of n members: elements (n, n) from each to each, by pairs; or of chunks round the ring. For tests as well. */
int64_t spmd_pairs_ns(int32_t n, const int64_t *bytes, const struct cost_link *hop);
int64_t spmd_ring_ns(int32_t n, int32_t steps, int64_t chunk_bytes, const struct cost_link *hop);

#endif
