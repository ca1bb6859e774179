/* core/lower/hybrid.h - ZeRO with shards inside nodes (plan.h's hybrid_shard; PyTorch's HYBRID_SHARD, HSDP).
 *
 * The devices that hold a shard of a parameter are divided into *parts* of g on one node each, g the greatest common divisor of their
 * numbers on all nodes. A bucket of S bytes has a ZeRO group in every part, and for each of the g members one all-reduce of its
 * shard over the T parts, launched behind the part's reduce-scatter on the same stream. Time on rings: 2 (g-1)/g S / B_inside +
 * 2 (T-1)/T S/g / B_between a device, in place of 2 (n-1)/n S / B_between of one ring of n = g T devices.
 * With the plan's compression between nodes the all-reduces over the T parts have its messages (core/lower/codes.h).
 * With g = 1 or T = 1 a parameter is not sharded, or sharded as without hybrid_shard.
 */
#ifndef CORE_LOWER_HYBRID_H
#define CORE_LOWER_HYBRID_H

#include "core/lower/groups.h"

/* g of the devices that hold a use's parameter, in every part; 0: its stage states no hybrid_shard. O(holders + nodes). */
int32_t lower_hybrid_part(const struct lowering *l, int32_t param_use);
/* Some parameter of a hybrid_shard stage is sharded. ERR_INPUT. */
MUST_CHECK enum status lower_hybrid_check(const struct lowering *l, struct error *err);
/* The groups of a bucket with ZeRO, for one shard of its parameters: those of all parts have the name, those between them NAME.between,
 * so that stages of several parts are equal (core/lower/equal_stages.h). ERR_INPUT. */
MUST_CHECK enum status lower_hybrid_groups(struct lowering *l, struct group_plan plan, int32_t key, const char *name,
                                           struct error *err);
struct stage_scratch;
/* Segments of an all-reduce between parts, or of local SGD between islands: the member's own gradients, or sums of changes in flight. */
void lower_hybrid_segments(const struct stage_scratch *h, int32_t group, struct collective_member *m);

#endif
