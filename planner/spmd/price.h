/* planner/spmd/price.h - placements by number, what each device has of a tensor in them, and what a collective over it costs.
 *
 * Placements that give every device the same shard have one number. Shapes of shards and prices are kept: a model has some ten
 * shapes of tensors and some tens of placements. A collective is priced as core/collective/collective's steps would play on links of their
 * own: by ring (all-reduce; all-gather and reduce-scatter padded to the largest shard), by pairs (as many bytes as there are;
 * all-to-all) or hierarchically, the cheapest of those that go; a mesh's groups along one axis meet beside each other, all
 * in one way, so the slowest counts.
 * Where it is told on which nodes devices stand, messages that leave a node, or come to one, in the same step share its link:
 * of a mesh of nodes by GPUs every GPU's ring goes over it, of an exchange by pairs most of the node's messages. Inside a
 * node messages share a link where it is a bus (bus, (n_devices); NULL: nowhere).
 * All bytes are bytes, every message has its latency.
 */
#ifndef PLANNER_SPMD_PRICE_H
#define PLANNER_SPMD_PRICE_H

#include "core/base/error.h"
#include "core/sharding/shard.h"
#include "sim/cost.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;

/* The hop from one of the stage's devices to another, alone; of: the caller's. */
typedef struct cost_link spmd_hop(const void *of, int32_t from, int32_t to);

/* What a collective of these members was measured to take, -1 where it was not (sim/collective/price.h); of: the caller's. */
typedef int64_t spmd_measured(const void *of, enum collective_kind kind,
                              enum collective_algorithm algorithm, const int32_t *member, int32_t n,
                              int64_t bytes);

enum { SPMD_ALL_AXES = MESH_AXES_MAX };

struct spmd_price;
/* ways: the set of algorithms (1 << algorithm) that may be used; where a kind can go by none of them it goes by the first that can.
 * HIERARCHICAL, where node (n_devices; NULL: none) tells equal numbers of members, at least two, on each of several nodes. */
/* measured (NULL: nothing is): where it has a time it is believed; but for sums that are joined with others, and all-to-all. */
struct spmd_price *spmd_price_new(struct arena *a, const struct sharding *s, spmd_hop *hop,
                                  const void *of, uint32_t algorithms, const int32_t *node,
                                  const bool *bus, spmd_measured *measured);

int32_t spmd_placement(struct spmd_price *y,
                       const struct placement *p); /* its number, 0 is whole */
const struct placement *spmd_placement_of(const struct spmd_price *y, int32_t placement);
int32_t spmd_placements(const struct spmd_price *y);
/* Collectives priced so far, a group's in each direction for itself, and what there was to look at in them: pairs of members. */
int64_t spmd_collectives_priced(const struct spmd_price *y, int64_t *pairs);
bool spmd_is_own(const struct spmd_price *y, int32_t placement); /* stays where it is made */

/* Shapes of the shards of a tensor of this shape: (n_devices). */
const struct shape *spmd_shards(struct spmd_price *y, const struct shape *whole, int32_t placement);
/* One step of conversion, forward; or another kind over the same shards (its dual). */
MUST_CHECK enum status spmd_step_ns(struct spmd_price *y, const struct shape *whole,
                                    int64_t element_bytes, enum op_kind kind, int32_t axis,
                                    int32_t before, int32_t after, int64_t *out_ns,
                                    struct error *err);
/* Which way such a step goes at that price; ring where nothing is sent. even: all members of each group have as much. */
MUST_CHECK enum status spmd_step_algorithm(struct spmd_price *y, const struct shape *whole,
                                     int64_t element_bytes, enum op_kind kind, int32_t axis,
                                     int32_t before, int32_t after, enum collective_algorithm *algorithm,
                                     bool *even, struct error *err);
/* The sum of a parameter's gradient, once a step: round a ring over axis, or over all of them in one row; joined: with others
 * in one collective, whose latencies are nobody's own. */
MUST_CHECK enum status spmd_gradient_ns(struct spmd_price *y, const struct shape *whole,
                                        int64_t element_bytes, int32_t axis, int32_t placement,
                                        bool joined, int64_t *out_ns, struct error *err);
/* A sum over axis of what is placed so. */
MUST_CHECK enum status spmd_reduce_ns(struct spmd_price *y, const struct shape *whole,
                                   int64_t element_bytes, int32_t axis, int32_t placement,
                                   int64_t *out_ns, struct error *err);

#endif
