/* core/lower/lowering.h - one call of lower_plan_graphs: its arguments, and the tables that its steps exchange.
 *
 * The steps run in the order of the table; each table is written by the file beside it, in its step, and read-only afterwards.
 *
 *   step                                  file            writes
 *   stages, lanes, training graphs        stages.c        stages, lanes, stage_of_layer; the list of views
 *     of sharded stages shard_views.c, stage_graph.c; kept for the next lowering in the memo, if there is one (memo.h)
 *   links and routes                      links.c         links
 *   uses of parameters                    param_uses.c    uses
 *   collectives of sharded stages         tensor_collectives.c      stage_build.collectives
 *   channels                              channels.c      stage_build.edge, program.channels
 *   orders                                orders.c        stage_build.order, lane_build.order
 *   fragments of local SGD                fragments.c     fragment_of_layer
 *   gradient groups                       groups.c        groups, stage_build.groups, program.groups
 *     flat parameters (ZeRO) zero.c, inside nodes hybrid.c, unequal shards cells.c, the loss scale's scale.c
 *   their launches                        launches.c      stage_build.launches
 *   for each stage in turn: copied from an equal one of this lowering or of one before it (equal_stages.c, by its key, stage_key.c), or
 *   with core/lower/stage_scratch.h:
 *     readers of each tensor              uses.c          stage_scratch.uses_forward, uses_back, rerun
 *     slots and buffer rings              slots.c         stage_scratch's slots, stage_slots; program_stage.slots, rings
 *     flat parameters (ZeRO)              zero_slots.c    stage_flats
 *     procedures                          procedures.c, update.c   stage_build.procedures, stage_scratch.done_at
 *     offsets inside scratch              scratch.c       offsets of slots
 *     sizes of buffer rings; ends of channels; segments of groups     orders.c, channels.c, groups.c
 *   orders, coded                        orders.c        orders, lanes
 *   parameter servers                     servers.c       their stages, lanes, orders and channels; workers' U
 *   deadlock check; memory                lower.c
 *
 * What the program refers to is in the arena `a`, or in the memo; the tables are in `tables`, which ends with the call.
 */
#ifndef CORE_LOWER_LOWERING_H
#define CORE_LOWER_LOWERING_H

#include "core/base/arena.h"
#include "core/lower/param_uses.h"
#include "core/lower/stages.h"

struct lowering {
    /* arguments */
    struct arena *a;
    struct arena *tables; /* until the end of the call: what the program does not refer to */
    const struct plan *plan;
    const struct lower_options *o;
    struct program *p;
    int32_t n_layers;
    /* tables */
    struct stage_build *stages; /* stages.c (p->n_stages) */
    struct lane_build *lanes;   /* stages.c (p->n_devices) */
    /* stages.c (n_replicas, n_layers): index into stages, of the first of several devices */
    int32_t *stage_of_layer;
    struct param_uses *uses; /* param_uses.c */
    struct links *links;     /* links.c */
    struct lower_groups *groups;   /* groups.c */
    const int32_t *fragment_of_layer; /* fragments.c (n_layers); NULL without local SGD */
    int32_t n_tensor_collectives;  /* tensor_collectives.c: about as many as the stages will have */
};

/* Sets an error, prefixed with the position in the plan. */
enum status lower_error(const struct lowering *l, const struct stage_build *b, struct error *err,
                        enum status code, const char *fmt, ...) PRINTF_LIKE(5, 6);

/* The stage that holds a layer, on the first of its devices. */
static inline int32_t lower_owner(const struct lowering *l, int32_t replica, int32_t layer)
{
    return l->stage_of_layer[replica * l->n_layers + layer];
}

/* A parameter use, in every view. */
static inline const struct use_place *lower_param_use(const struct lowering *l, int32_t param_use)
{
    return &l->uses->places[param_use];
}
static inline const struct stage_build *lower_param_use_owner(const struct lowering *l,
                                                              int32_t replica, int32_t param_use)
{
    return &l->stages[lower_owner(l, replica, lower_param_use(l, param_use)->layer)];
}

#endif
