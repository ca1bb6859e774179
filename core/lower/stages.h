/* core/lower/stages.h - the program's stages and lanes under construction; private to core/lower/.
 *
 * A stage of the plan on n devices is n stages of the program, consecutive in the list. stages.c writes the identity
 * fields once; each later step keeps its results in a struct of its own module, to which the stage
 * has a pointer, so a file sees only the structs whose headers it includes.
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
    int32_t shard, n_shards;           /* index among the plan stage's devices, consecutive in the program */
    int64_t first_sequence, sequences; /* of a microbatch */
    const struct lower_view *v;        /* its training graph, core/lower/param_uses.h */
    /* Results of later steps: */
    struct stage_collectives *collectives;     /* core/lower/tensor_collectives.c; NULL: not sharded */
    struct crossings *edge;              /* (EDGE_COUNT) core/lower/channels.h */
    struct stage_order *order;           /* core/lower/orders.h */
    struct stage_groups *groups;         /* core/lower/groups.h */
    struct stage_launches *launches;     /* core/lower/launches.h */
    struct stage_procedures *procedures; /* core/lower/procedures.h */
};

/* A device and its chunks. */
struct lane_build {
    int32_t device;            /* of the cluster */
    int32_t replica, n_stages; /* n_stages: chunks */
    int32_t turn;              /* the plan's lane (plan_lanes) with its calls */
    int32_t *stages;           /* (n_stages) in the program, ascending */
    struct lane_order *order;  /* core/lower/orders.c: its calls of one step */
};

static inline bool lower_owns(const struct stage_build *b, int32_t layer)
{
    return layer >= b->plan->first_layer && layer <= b->plan->last_layer;
}

/* Stages, lanes and the stages' graphs, from the set if it has them. ERR_INPUT. O(stages · devices). */
MUST_CHECK enum status lower_stages(struct lowering *l, const struct lower_graphs *s,
                                    struct error *err);

#endif
