/* planner/spmd/price.h - interned placements, the shards of a tensor in each, and the cost of collectives over them.
 *
 * Placements that give every device the same shard have one number. Shapes of shards and costs are memoised: a model has about
 * ten shapes of tensors and some tens of placements. A collective costs what the steps of core/collective/collective take on
 * dedicated links: ring (all-reduce; all-gather and reduce-scatter padded to the largest shard), pairs (exact bytes; also
 * all-to-all) or hierarchical, the cheapest allowed algorithm. The groups of a mesh along one axis run in parallel with one
 * algorithm, so the slowest group counts. If nodes are given, messages of one step that leave or enter a node share its link:
 * on a mesh of nodes by GPUs the ring of every GPU uses it, and most messages of a node in an exchange by pairs. Within a node
 * messages share a link if it is a bus. Bytes are not rounded; every message has its latency.
 */
#ifndef PLANNER_SPMD_PRICE_H
#define PLANNER_SPMD_PRICE_H

#include "core/base/error.h"
#include "core/sharding/shard.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* Cost of a message between two of the stage's devices without contention; of: the caller's context. */
typedef struct cost_link spmd_hop(const void *of, int32_t from, int32_t to);

/* Measured time in ns of a collective of these members (sim/collective/price.h), -1: none; of: the caller's context. */
typedef int64_t spmd_measured(const void *of, enum collective_kind kind,
                              enum collective_algorithm algorithm, const int32_t *member, int32_t n,
                              int64_t bytes);

enum { SPMD_ALL_AXES = MESH_AXES_MAX };

struct spmd_price;
/* algorithms: set of allowed ones (1 << algorithm); a kind that supports none of them uses its first supported algorithm.
 * HIERARCHICAL needs equal numbers of members, at least two, on each of several nodes. node: (n_devices), or NULL. bus:
 * (n_devices), NULL: nowhere. measured: NULL, or times that override computed ones, except for bucketed gradient all-reduces
 * and all-to-all. */
struct spmd_price *spmd_price_new(struct arena *a, const struct sharding *s, spmd_hop *hop,
                                  const void *of, uint32_t algorithms, const int32_t *node,
                                  const bool *bus, spmd_measured *measured);

int32_t spmd_placement(struct spmd_price *y,
                       const struct placement *p); /* its number; 0: replicated */
const struct placement *spmd_placement_of(const struct spmd_price *y, int32_t placement);
int32_t spmd_placements(const struct spmd_price *y);
/* Number of collectives priced so far, one per group and direction; *pairs: pairs of members in them (the work). */
int64_t spmd_collectives_priced(const struct spmd_price *y, int64_t *pairs);
bool spmd_is_own(const struct spmd_price *y, int32_t placement); /* never converted */

/* Shapes of the shards of a tensor of this shape: (n_devices). */
const struct shape *spmd_shards(struct spmd_price *y, const struct shape *whole, int32_t placement);
/* Time of one step of a resharding: `kind` in the forward direction, or its dual over the same shards. */
MUST_CHECK enum status spmd_step_ns(struct spmd_price *y, const struct shape *whole,
                                    int64_t element_bytes, enum op_kind kind, int32_t axis,
                                    int32_t before, int32_t after, int64_t *out_ns,
                                    struct error *err);
/* Algorithm of such a step at that price; ring if nothing is sent. *even: all members of each group have equal shards. */
MUST_CHECK enum status spmd_step_algorithm(struct spmd_price *y, const struct shape *whole,
                                     int64_t element_bytes, enum op_kind kind, int32_t axis,
                                     int32_t before, int32_t after, enum collective_algorithm *algorithm,
                                     bool *even, struct error *err);
/* Time of a parameter's gradient all-reduce, once a step: a ring over axis, or over all devices in one row. joined: bucketed
 * with others in one collective, so without latency. */
MUST_CHECK enum status spmd_gradient_ns(struct spmd_price *y, const struct shape *whole,
                                        int64_t element_bytes, int32_t axis, int32_t placement,
                                        bool joined, int64_t *out_ns, struct error *err);
/* Time of an all-reduce over axis of a tensor in this placement. */
MUST_CHECK enum status spmd_reduce_ns(struct spmd_price *y, const struct shape *whole,
                                   int64_t element_bytes, int32_t axis, int32_t placement,
                                   int64_t *out_ns, struct error *err);

#endif
