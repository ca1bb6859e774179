/* planner/candidate/group.h - a group of equal GPUs that shard the operators of a stage, priced as one more device type of a space.
 *
 * All GPUs of a group have the same share, so the view of one (core/sharding/shard.h) stands for all: its operators at their
 * local shapes and its collectives, summed by sim/stage. It is the slower one of the first and the last, because shares of the
 * positions are unequal work in causal attention. Sizes are of one GPU. At a stage's borders activations are
 * converted to and from what crosses them (replicated, or sharded by sequences); both borders together cost what the view of two
 * layers alone costs more than these layers within the model's view, and each is taken as one half of it. Approximate where the
 * layers' conversions differ; the simulation of a plan is exact.
 */
#ifndef PLANNER_CANDIDATE_GROUP_H
#define PLANNER_CANDIDATE_GROUP_H

#include "planner/candidate/space.h"

/* Views of blocks, which are needed only while groups are priced. */
struct group_scratch {
    struct arena *arena;
    struct group_view *blocks;
};
struct group_request {
    int32_t n; /* GPUs, at least 2 */
    const int32_t
        *device; /* (n) of the cost's cluster, one group as good as any other of the class */
    const struct sharding *sharding; /* of n devices, even */
    struct group_scratch *scratch;
};

/* From here on the space's type `type` has the costs of the group. type: of the space's cluster; its entry there is that of a
 * single GPU. ERR_INPUT: rules that the model does not allow. O(operators of the model). */
MUST_CHECK enum status group_add(struct space *s, int32_t type, const struct group_request *r,
                                 struct error *err);
/* The table of a type: the group's, or that of single devices. */
struct stage_table *group_table(const struct space *s, int32_t type);
/* Adds what the group's borders cost to the price of layers first … last. */
void group_borders(const struct space *s, int32_t type, int32_t first, int32_t last,
                   struct stage_cost *out);
/* At most so many rings over which a GPU of the group sends the gradients of layers first … last once a step: runs of parameters that are
 * sharded over the same axes. Lowering has one for each set of axes (core/lower/groups.c); counted so, GPT-175B on 4,096 GPUs takes 10.90 s,
 * with runs 10.75 s (2026-11-26). 1 for a type that is no group. O(1). */
int32_t group_rings(const struct space *s, int32_t type, int32_t first, int32_t last);
/* How often the GPUs of a group together hold an activation at the border of a stage: once if they divide the sequences, each if it is replicated.
 * 1 for a type that is no group. O(1). */
int32_t group_copies(const struct space *s, int32_t type);
/* Optimizer state of the parameters that another stage uses too. O(1). */
int64_t group_tied_bytes(const struct space *s, int32_t type, int32_t first, int32_t last);
/* Optimizer state of a GPU if ZeRO divides it among all that hold a parameter: the GPUs of the group with equal shards, in so many replicas.
 * A parameter that another stage uses too is not divided (core/lower/zero.c). O(1). */
int64_t group_zero_bytes(const struct space *s, int32_t type, int32_t first, int32_t last,
                         int32_t replicas);
/* The type that prices a plan's stage: that of the group with its number of GPUs and its sharding, else that of its first
 * device. */
int32_t group_type_of(const struct space *s, const struct plan_stage *x);
static inline const struct stage_cost *group_stage(const struct space *s,
                                                   const struct plan_stage *x)
{
    return space_stage_type(s, group_type_of(s, x), x->first_layer, x->last_layer);
}
/* Time of what a stage recomputes, of its cost. */
int64_t group_recompute_ns(const struct space *s, const struct plan_stage *x, const struct stage_cost *c);
/* Forward and backward of a microbatch on the slowest device of a stage, in ns: by its group, or in proportion to its sequences;
 * with recomputation of the stage or its blocks, if it recomputes. */
int64_t group_stage_ns(const struct space *s, const struct plan_stage *x);
/* The iteration time of a plan whose slowest stage never waits nor recomputes: orders do with less recomputation than named schedules. */
int64_t group_busiest_ns(const struct space *s, const struct plan *p);

#endif
