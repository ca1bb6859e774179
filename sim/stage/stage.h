/* sim/stage/stage.h - duration and memory of one stage without contention: the planner's only source of stage costs, cached by
 * structural key. */
#ifndef SIM_STAGE_STAGE_H
#define SIM_STAGE_STAGE_H

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "sim/cost.h"

struct stage_cost {
    /* one microbatch; update once per step */
    int64_t forward_ns, input_ns, weight_ns, update_ns, recompute_ns;
    /* input_ns and weight_ns if gradients of parameters are overwritten and not accumulated, where that is faster
     * (plans that shard gradients, or keep each microbatch's) */
    int64_t input_least_ns, weight_least_ns;
    int64_t parameter_bytes, gradient_bytes, state_bytes; /* resident; all bytes are of one GPU */
    /* per microbatch in flight: activations that the backward reads, received activation and input included */
    int64_t activation_bytes;
    int64_t
        input_bytes; /* of received activation and inputs (kept instead of activations under recompute) */
    /* peak of temporaries inside one procedure, without recompute, plus the device type's reserve */
    int64_t scratch_bytes;
};
/* Layers first … last (inclusive) of a training graph (after gradient_build) on device type `type`. Durations are sums of
 * operator costs; the sum is exact, because compute is one stream. First call O(operators), then O(layers); with the first layer of the
 * last call O(layers of the stage). */
struct stage_table; /* opaque: one per (graph, cost) */
struct stage_table *stage_table_new(struct arena *a, const struct graph *g, struct cost *k,
                                    const struct optimizer *o);
/* Kinds that lowering fuses (lower_options): with flat_adamw or flat_sgd among them, an update is one operator over the
 * decayed parameters and one over the others, else one per parameter. Call before the first stage_table_cost. */
void stage_table_fused(struct stage_table *t, const enum op_kind *fused, int32_t n);
/* A group of equal devices, each with the same share of every operator (core/sharding/sharding.h with even ratios): the table's
 * graph is then the view of one member, which stands for all, because they wait for each other in every collective. The group's
 * collectives take their time on otherwise idle links, or the one of sim/collective/price. */
struct stage_group {
    const struct sharding *sharding;
    const int32_t *device; /* (n_devices) of the cost's cluster */
    struct cost_link (*hop)(const void *of, int32_t from, int32_t to); /* between two devices */
    const void *of;
    int64_t beside; /* messages of one round that share a link: 1, or n_devices on a bus */
    bool duplex;    /* the bus has its bandwidth once for each direction, in the order of the devices and against it */
};
/* Call before the first stage_table_cost. */
void stage_table_group(struct stage_table *t, const struct stage_group *group);
/* ERR_INPUT: as cost_op; a type whose sharding variant has no graph. */
MUST_CHECK enum status stage_table_cost(struct stage_table *t, int32_t first_layer,
                                        int32_t last_layer, int32_t type, struct stage_cost *out,
                                        struct error *err);

#endif
