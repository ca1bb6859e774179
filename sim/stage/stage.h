/* sim/stage/stage.h - what one stage alone takes: the planner's only source of stage costs, cached by structural key. */
#ifndef SIM_STAGE_STAGE_H
#define SIM_STAGE_STAGE_H

#include "core/base/error.h"
#include "core/graph/graph.h"
#include "core/lower/lower.h"
#include "sim/cost.h"

struct stage_cost {
    /* one microbatch; update once per step */
    int64_t forward_ns, input_ns, weight_ns, update_ns, recompute_ns;
    /* the same of input_ns and weight_ns where that is less: gradients of parameters written, not added to what is there
     * (plans that divide gradients, or keep each microbatch's) */
    int64_t input_least_ns, weight_least_ns;
    int64_t parameter_bytes, gradient_bytes, state_bytes; /* resident; all bytes are of one GPU */
    /* kept per microbatch in flight: what the backward reads of forward, received and input */
    int64_t activation_bytes;
    int64_t input_bytes; /* of received activation and inputs (kept instead under recompute) */
    /* most alive at once inside one procedure, without recompute; and the type's reserve */
    int64_t scratch_bytes;
};
/* Layers first … last (inclusive) of a training graph (gradient_build done) on device type `type`. Sums of operator costs:
 * compute is one stream, so the sum is exact. O(operators of the stage) first, O(1) when cached. */
struct stage_table; /* opaque: one per (graph, cost) */
struct stage_table *stage_table_new(struct arena *a, const struct graph *g, struct cost *k,
                                    const struct optimizer *o);
/* The graphs of the job's other variants (core/lower/lower.h), for types whose GPUs shard operators unlike those of g;
 * without them stage_table_cost refuses such types. Before the first stage_table_cost. */
void stage_table_graphs(struct stage_table *t, const struct lower_graphs *graphs);
/* The kinds that lowering fuses (lower_options): with flat_adamw or flat_sgd among them an update is one operator over the
 * decayed parameters and one over the others, else one a parameter. Before the first stage_table_cost. */
void stage_table_fused(struct stage_table *t, const enum op_kind *fused, int32_t n);
/* ERR_INPUT: what cost_op says; a type that shards operators in a way of which there is no graph. */
MUST_CHECK enum status stage_table_cost(struct stage_table *t, int32_t first_layer,
                                        int32_t last_layer, int32_t type, struct stage_cost *out,
                                        struct error *err);

#endif
