/* core/lower/stages.h - the program's stages and lanes while they are built; for core/lower/ alone.
 *
 * A stage of the plan on several devices is as many stages of the program, neighbours in the list. The fields of identity are
 * written once, by stages.c; what a later step finds out of a stage is a struct of that step's own module, to which the stage
 * has a pointer, so that a file sees only the slices whose headers it includes.
 */
#ifndef CORE_LOWER_STAGES_H
#define CORE_LOWER_STAGES_H

#include "core/base/error.h"
#include "core/lower/lower.h"

#include <stdbool.h>
#include <stdint.h>

struct lowering;

struct stage_build {
    struct program_stage *s;
    const struct plan_stage *plan;
    int32_t index, replica, stage;     /* in the program; in the plan */
    int32_t device;                    /* of the cluster */
    int32_t chunk;                     /* of the device */
    int32_t shard, n_shards;           /* the stage's devices; neighbours in the program */
    int64_t first_sequence, sequences; /* of a microbatch */
    const struct lower_view *v;        /* its training graph, core/lower/param_uses.h */
    /* Slices of later steps: */
    struct stage_collectives *collectives;     /* core/lower/tensor_collectives.c; NULL: not sharded */
    struct crossings *edge;              /* (EDGE_COUNT) core/lower/channels.h */
    struct stage_order *order;           /* core/lower/orders.h */
    struct stage_groups *groups;         /* core/lower/groups.h */
    struct stage_launches *launches;     /* core/lower/launches.h */
    struct stage_procedures *procedures; /* core/lower/procedures.h */
};

/* A device: its chunks. */
struct lane_build {
    int32_t device;            /* of the cluster */
    int32_t replica, n_stages; /* n_stages: chunks */
    int32_t turn;              /* which of the plan's lanes (plan_lanes) it takes its calls from */
    int32_t *stages;           /* (n_stages) in the program, ascending */
    struct lane_order *order;  /* core/lower/orders.c: its calls of one step */
};

static inline bool lower_owns(const struct stage_build *b, int32_t layer)
{
    return layer >= b->plan->first_layer && layer <= b->plan->last_layer;
}

/* Stages, lanes and the stages' graphs, from the set where it has them. ERR_INPUT. O(stages · devices). */
MUST_CHECK enum status lower_stages(struct lowering *l, const struct lower_graphs *s,
                                    struct error *err);

#endif
