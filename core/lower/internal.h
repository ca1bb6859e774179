/* core/lower/internal.h - what the files of lowering share; for core/lower/lower*.c alone.
 *
 * One `struct lowering` lives as long as one call of lower_plan_graph. A plan is lowered in one
 * pass: orders and groups first (they decide which rings and variants a stage needs), then each
 * stage's slots, operators and procedures, then counts of rings, links and the proof by the token
 * game.
 */
#ifndef CORE_LOWER_INTERNAL_H
#define CORE_LOWER_INTERNAL_H

#include "core/base/arena.h"
#include "core/lower/lower.h"
#include "core/plan/internal.h"

#include <stddef.h>

enum { SLOT_ALIGN = 64 };
static inline int64_t slot_align(int64_t bytes)
{
    return (bytes + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
}

/* The parts of one microbatch's life on a stage, in order. Where the backward is fused, BACK is B
 * and WEIGHT is the same procedure; where it is split, BACK is I and WEIGHT is W. */
enum graph_part { PART_FORWARD, PART_BACK, PART_WEIGHT, PART_COUNT };

struct unit { /* one use of one parameter: what replicas sum. Sorted by layer, parameter, use. */
    int32_t gradient, parameter, use, layer; /* tensors; layer of the use */
};

/* Parameters of a group laid flat one after the other, so that n members divide them evenly: those that decay and the
 * others apart, because updates tell them apart. A parameter starts at a multiple of 64 bytes; the end is padded. */
enum { SECTIONS_MAX = 2 };
struct section {
    bool decay;
    int64_t elements; /* a multiple of n members · 64 bytes */
};

/* A training graph and what is asked of it again and again. One for each way in which stages of the plan compute
 * (lower.h): tensors and operators are numbered anew in each, units and layers are not. */
struct lower_view {
    const struct graph *g;
    struct unit *units;       /* (n_units) */
    int32_t *unit_of;         /* (n_tensors): unit of a parameter gradient, else -1 */
    int32_t *use_unit;        /* (n_tensors, 2): units of a parameter's uses, -1 */
    struct cut *gradient_cut; /* (n_layers - 1): gradients that cross back after layer k */
};

/* A message of a stage: a tensor, or the sequences of it that one device of the stage before or behind has or wants. */
struct crossing {
    int32_t tensor, channel;
    int64_t first, n; /* sequences of the stage's own that it has */
    int32_t link;     /* that the compute stream waits for; -1 */
    /* that holds it: the tensor's own, a piece's, or a copy's of what is handed on as it came */
    int32_t slot;
    bool whole; /* it is all that the stage has of the tensor */
};
enum edge { ACTIVATIONS_IN, ACTIVATIONS_OUT, GRADIENTS_IN, GRADIENTS_OUT, EDGE_COUNT };
struct crossings {
    int32_t n;
    struct crossing *list; /* (n) */
};

/* Where a parameter lies in the sections of its home. */
struct flat_place {
    int32_t group, section; /* group -1: not divided */
    int64_t first;          /* element */
};

/* What members of a group that keep different parts have in common (core/lower/cells.c). */
struct cells {
    int32_t n;             /* segments */
    int32_t *unit;         /* (n) of a tied exchange: any of the two */
    struct region *within; /* (members, n) in the member's own gradient */
};

struct group_plan {                /* beside the program's group of the same index */
    int32_t first_unit, last_unit; /* inclusive; of a tied exchange: the parameter's two */
    bool bucketed;                 /* launched as soon as complete, else after the last operator */
    bool tied;                     /* exchange between the owners of both uses inside one replica */
    bool overflow; /* agreement on whether all gradients are finite (core/lower/scale.c) */
    /* Divided (ZeRO): the plan's level, else 0; of a gather the level of what it gathers. */
    int32_t zero;
    const struct cells *cells; /* NULL: all of all units from first to last */
    int32_t n_sections;
    struct section section[SECTIONS_MAX];
    struct flat_place *places; /* (units) where each one's parameter lies */
    /* group whose sections hold the parameters: itself, but for a tied one's second use */
    int32_t home;
    int32_t gathered; /* of a gather: that group; else -1 */
    /* of a home: the gathers that F and the backward launch (zero 3), or [PART_WEIGHT] the update (1, 2); -1 */
    int32_t gather[PART_COUNT];
};

/* A divided group on one stage: slots by section; -1 where there is none. */
struct flat {
    int32_t group, member;
    int32_t parameter[SECTIONS_MAX];          /* whole, zero 1 and 2 */
    int32_t gather[PART_COUNT][SECTIONS_MAX]; /* whole, in the scratch of one procedure, zero 3 */
    int32_t gradient[SECTIONS_MAX];           /* whole; from zero 2 on in scratch */
    int32_t own_parameter[SECTIONS_MAX], own_gradient[SECTIONS_MAX], state[SECTIONS_MAX][2], master[SECTIONS_MAX];
};

/* What an update has: parameter, gradient, m, v, and the master copy in fp32 where the parameter is in half precision. */
enum { UPDATE_P, UPDATE_G, UPDATE_M, UPDATE_V, UPDATE_MASTER, UPDATE_SLOTS };

/* A slot inside a scratch slot, by which it lives and moves. */
struct inner {
    int32_t slot, whole;
    int64_t offset_bytes;
};

struct rows { /* sequences of a microbatch */
    int64_t first, n;
};

/* Devices that meet: their links, as program groups have them; NULL where no meeting goes that way. */
struct lower_team {
    bool found[COLLECTIVE_ALGORITHM_COUNT];
    int32_t *link, *direction, *pair_link, *pair_direction;
    const int32_t *tier; /* (members) the nodes they stand on; NULL: no hierarchical meetings */
};

struct stage_build {
    struct program_stage *s;
    const struct plan_stage *plan;
    int32_t index, replica, stage;          /* in the program; in the plan */
    int32_t device;                         /* of the cluster */
    int32_t chunk;                          /* of the device */
    int32_t shard, n_shards;                /* the stage's devices; neighbours in the program */
    int64_t first_sequence, sequences;      /* of a microbatch */
    struct lower_team *team[MESH_AXES_MAX]; /* its group along each axis; NULL: no meetings there */
    int32_t *meetings; /* of the stage's first device: see lower_shard_meeting */
    bool *ways_used;   /* of the stage's first device: entries of collectives */
    const struct lower_view *v;
    bool split, ascending, apart; /* I and W; W in ascending order; gradients kept per microbatch */
    int32_t in_flight;            /* forwards before the first backward */

    int64_t n_calls;         /* of the stage in one step, the update (last) included */
    char *letter;            /* (n_calls) */
    int32_t *microbatch;     /* (n_calls) */
    int32_t *at[PART_COUNT]; /* (microbatches): position of the call of each part */
    int64_t last_weight; /* position in the lane of the call that completes the step's gradients */

    struct crossings edge[EDGE_COUNT]; /* by neighbour, and then as the tensors are made */

    size_t slot_capacity, ring_capacity, op_capacity;
    size_t ring_group_capacity;
    int32_t *ring_group;    /* (n_rings): group whose gradients a ring keeps apart, else -1 */
    int32_t run_slot[2][UPDATE_SLOTS]; /* flat runs, decayed and not; -1 */
    int32_t overflow_slot; /* whether gradients are finite; where there is a loss scale */
    /* ascending; tied ones last, then gathers; and which member of each it is */
    int32_t n_groups, *groups, *member;
    /* groups of the device that its last weight gradients launch, ascending */
    int32_t n_launches, *launches;
    bool late; /* all of them when its last weight gradients are all there */
    int32_t n_flats, n_inner; /* ascending by group */
    struct flat *flats;
    struct inner *inner;
    size_t inner_capacity;
    int32_t procedure_f, procedure_back, procedure_w, procedure_last, procedure_u,
        procedure_check; /* -1: none */
};

/* A device: its chunks, and their calls of one step in turn, without the updates. */
struct lane_build {
    int32_t device;            /* of the cluster */
    int32_t replica, n_stages; /* n_stages: chunks */
    int32_t turn;              /* which of the plan's lanes (plan_lanes) it takes its calls from */
    int32_t *stages;           /* (n_stages) in the program, ascending */
    int64_t n_calls;
    struct schedule_op *calls; /* (n_calls) */
};

struct lowering {
    struct arena *a;
    const struct plan *plan;
    const struct lower_options *o;
    int32_t n_views, n_layers;
    struct lower_view *views;
    struct program *p;
    struct stage_build *stages; /* (p->n_stages) */
    struct lane_build *lanes;   /* (p->n_devices) */
    /* (n_replicas, n_layers), index into stages; of several devices the first */
    int32_t *stage_of_layer;
    int32_t n_units;
    bool *mixed; /* (n_units): replicas keep its parameter in different parts */
    struct group_plan *group_plans;
    size_t group_capacity, plan_capacity;
    struct lower_routes *routes;
    struct graph *whole; /* forward, of a microbatch; where devices share operators */
    struct shard_stage *shared; /* what those of the stage at hand have in common */
    const struct plan_stage *shared_of;

    /* Of the stage at hand, reset by lower_slots. (n_tensors) each. */
    const struct lower_view *v;
    int32_t *slot_forward, *slot_back; /* slot of the tensor as F and as the backward know it */
    uint8_t *uses_forward, *uses_back; /* bits 1 << part: who reads it */
    int32_t *apart_slot, *sum_slot;    /* (n_units): per-microbatch gradient, GRADIENT slot; -1 */
    int32_t *done_at; /* (n_units): instruction after which the gradient is complete */
    bool *rerun;      /* (n_ops): forward operators that the backward runs again */
};

/* ERR_INPUT and others with the place in the plan in front. */
enum status lower_error(const struct lowering *l, const struct stage_build *b, struct error *err,
                        enum status code, const char *fmt, ...) PRINTF_LIKE(5, 6);

static inline bool lower_owns(const struct stage_build *b, int32_t layer)
{
    return layer >= b->plan->first_layer && layer <= b->plan->last_layer;
}
/* The one message that is the whole tensor, NULL where it crosses there in pieces or not at all. */
static inline struct crossing *lower_crossing(const struct stage_build *b, enum edge e,
                                              int32_t tensor)
{
    for (int32_t i = 0; i < b->edge[e].n; i++)
        if (b->edge[e].list[i].tensor == tensor && b->edge[e].list[i].whole)
            return &b->edge[e].list[i];
    return NULL;
}
static inline bool lower_crosses(const struct stage_build *b, enum edge e, int32_t tensor)
{
    for (int32_t i = 0; i < b->edge[e].n; i++)
        if (b->edge[e].list[i].tensor == tensor) return true;
    return false;
}
static inline char part_letter(const struct stage_build *b, enum graph_part p)
{
    return p == PART_FORWARD ? 'F' : !b->split ? 'B' : p == PART_BACK ? 'I' : 'W';
}
/* The part that runs a gradient operator; WEIGHT only where it is a procedure of its own. */
static inline enum graph_part op_part(const struct stage_build *b, const struct graph_op *op)
{
    return op->phase == PHASE_F               ? PART_FORWARD
           : b->split && op->phase == PHASE_W ? PART_WEIGHT
                                              : PART_BACK;
}
/* core/lower/stages.c: stages, lanes and the stages' graphs, from the set where it has them. */
MUST_CHECK enum status lower_stages(struct lowering *l, const struct lower_graphs *s,
                                    struct error *err);

/* core/lower/graphs.c: the training graph of a stage that ends behind these layers (graph.edge). */
MUST_CHECK enum status lower_graph_between(struct arena *a, const struct job *j, int64_t sequences,
                                           const struct lower_options *o, int32_t n_edges,
                                           const int32_t *edge, struct graph **out,
                                           struct error *err);

/* core/lower/shards.c: stages whose devices share operators. The training graph of one of them; what each has of an
 * activation that crosses, and of its gradient; the links of those who meet. ERR_INPUT. */
MUST_CHECK enum status lower_shard_view(struct lowering *l, struct stage_build *b,
                                        const struct graph **out, struct error *err);
MUST_CHECK enum status lower_shard_rows(const struct lowering *l, const struct stage_build *b,
                                        int32_t activation, struct rows *out, struct error *err);
MUST_CHECK enum status lower_shard_teams(struct lowering *l, struct error *err);
/* Which activation of another view's cut behind a layer the i-th of this one's is, by what both were before any conversion;
 * -1. The gradient of the i-th that crosses back there; -1. */
int32_t lower_shard_same(const struct lower_view *v, int32_t i, const struct lower_view *other,
                         int32_t layer);
int32_t lower_shard_back(const struct lower_view *v, int32_t i, int32_t layer);
/* Of the devices that have the same rows (of: those of each device of the giver's stage), does this one give them to the
 * other stage's device? */
bool lower_shard_gives(const struct stage_build *giver, const struct stage_build *taker,
                       const struct rows *of);
/* core/lower/meetings.c. The meeting that stands for an operator of the stage's view, this device's operands being these slots. again: run again
 * by the backward. Returns its group. */
int32_t lower_shard_meeting(struct lowering *l, struct stage_build *b, int32_t op, bool again,
                            const char *name, int32_t in, int32_t out);
/* Keys of a gradient on the devices of a stage (first: its first device), a device's own, whether two units' are alike. */
int32_t lower_shard_keys(const struct stage_build *first, int32_t unit);
int32_t lower_shard_key(const struct stage_build *b, int32_t unit);
bool lower_shard_same_keys(const struct stage_build *first, int32_t unit, int32_t other);
/* Fills l->mixed. ERR_INPUT: what is kept in different parts is divided over replicas or cards as well. */
MUST_CHECK enum status lower_shard_mixed(struct lowering *l, struct error *err);
/* The part of the unit's parameter that the device keeps; whether each device of the one stage keeps the same as that of
 * the other; whether every device of the stage keeps all of it. */
const struct tensor_part *lower_shard_part(const struct stage_build *b, int32_t unit);
bool lower_shard_same_parts(const struct stage_build *a, const struct stage_build *b, int32_t unit);
bool lower_shard_whole(const struct stage_build *first, int32_t unit);

/* core/lower/cells.c: sums over devices that keep parameters in different parts. Units first … last, over the stages `owner` of
 * the plan (their first devices); summed: every holder has the whole sum of its stage, which counts once. Groups are
 * named and planned alike. */
MUST_CHECK enum status lower_cells(struct lowering *l, const struct stage_build *const *owner,
                                   int32_t n_owners, const char *name, struct group_plan plan,
                                   struct error *err);

/* core/lower/channels.c: the channels between stages, and their slots once both ends' stand. */
MUST_CHECK enum status lower_channels(struct lowering *l, struct error *err);
void lower_join_channels(struct lowering *l, const struct stage_build *b);

/* core/lower/links.c: the cluster's links; then the link that carries from one stage's device to another's, or the route,
 * which is added where it is new. ERR_INPUT naming both devices where neither is. */
void lower_links(struct lowering *l);
MUST_CHECK enum status lower_link(struct lowering *l, const struct stage_build *from,
                                  const struct stage_build *to, int32_t *link, int32_t *direction,
                                  struct error *err);
/* Whether the compute stream waits for the link's transport; a route's where it waits for one of its hops. */
bool lower_blocking(const struct lowering *l, int32_t link);

/* core/lower/orders.c */
MUST_CHECK enum status lower_orders(struct lowering *l, struct error *err);
void lower_ring_counts(struct lowering *l, struct stage_build *b);
void lower_share_orders(struct lowering *l);

/* core/lower/param_uses.c */
MUST_CHECK enum status lower_units(struct lowering *l, struct error *err);

/* core/lower/groups.c */
MUST_CHECK enum status lower_groups(struct lowering *l, struct error *err);
void lower_launches(struct lowering *l); /* once groups and orders stand */
/* Is this exchange between two chunks of one device awaited in an update before that of b? */
bool lower_exchanged_before(const struct lowering *l, const struct stage_build *b, int32_t group);
/* Instruction after which a group may be launched by the stage, at most `end`; another chunk's has long been complete. */
int32_t lower_complete_at(const struct lowering *l, const struct stage_build *b, int32_t group,
                          int32_t end);
void lower_group_segments(struct lowering *l,
                          struct stage_build *b); /* once the stage's slots stand */

/* A new group of n members, whose links are joined once they stand. */
struct collective *lower_group_new(struct lowering *l, const char *name, enum collective_algorithm algorithm,
                              int32_t n, struct group_plan plan);
/* Its links, once its members stand. ERR_INPUT. */
MUST_CHECK enum status lower_group_join(struct lowering *l, int32_t group, struct error *err);
/* Layer and use of a unit are the same in every view. */
static inline const struct unit *lower_unit(const struct lowering *l, int32_t unit)
{
    return &l->views[0].units[unit];
}
/* The stage that holds a layer; of several devices the first. */
static inline int32_t lower_owner(const struct lowering *l, int32_t replica, int32_t layer)
{
    return l->stage_of_layer[replica * l->n_layers + layer];
}

static inline const struct stage_build *lower_unit_owner(const struct lowering *l, int32_t replica,
                                                         int32_t unit)
{
    return &l->stages[lower_owner(l, replica, lower_unit(l, unit)->layer)];
}

/* core/lower/zero.c: what is divided over replicas (plan.h's zero) */
/* Whether stages agree; ERR_INPUT. Once orders stand. */
MUST_CHECK enum status lower_zero_check(const struct lowering *l, struct error *err);
int32_t lower_zero_of(const struct lowering *l, int32_t unit); /* level; 0: an ordinary sum */
/* Of the parameter of the view at hand, which is b's; group -1: not divided. */
struct flat_place lower_zero_place(const struct lowering *l, const struct stage_build *b,
                                   int32_t tensor);
/* A use of a parameter that is used twice: its group holds nothing else. */
bool lower_zero_alone(const struct lowering *l, int32_t unit);
void lower_zero_sections(struct lowering *l, int32_t group); /* and elements, of a new group */
void lower_zero_gathers(struct lowering *l); /* once the groups that scatter stand */
/* Regions and slots behind those of what is not divided. */
void lower_zero_slots(struct lowering *l, struct stage_build *b);
void lower_zero_segments(struct lowering *l, const struct stage_build *b, int32_t group,
                         struct collective_member *m);
/* The flat of a group, or of what it gathers; NULL: not divided. */
const struct flat *lower_zero_flat(const struct lowering *l, const struct stage_build *b,
                                   int32_t group);
/* Whole slots of the group that a procedure keeps in scratch from its launch until it is awaited. Returns how many. */
int32_t lower_zero_scratch(const struct lowering *l, const struct stage_build *b, int32_t group,
                           int32_t out[SECTIONS_MAX]);
/* Puts launches of gathers and waits for them among a procedure's instructions (zero 3). */
void lower_zero_insert(struct lowering *l, const struct stage_build *b, enum graph_part part,
                       struct instr **instrs, size_t *n);

/* core/lower/scale.c: a loss scale in fp16. Whether there is one; its groups, behind all that are summed; a stage's slots, behind all
 * others of their regions; the one segment of a group. */
static inline bool lower_scales(const struct lowering *l) { return l->p->loss_scale.initial > 0; }
MUST_CHECK enum status lower_scale_groups(struct lowering *l, struct error *err);
void lower_scale_slots(struct lowering *l, struct stage_build *b);
void lower_scale_segment(struct lowering *l, const struct stage_build *b, struct collective_member *m);
/* Its updates come in two calls: whether gradients are finite must be known of all chunks before one of them is updated. */
static inline bool lower_checks_apart(const struct lowering *l, const struct lane_build *lane)
{
    return lower_scales(l) && lane->n_stages > 1;
}

/* core/lower/slots.c */
int32_t lower_add_slot(struct lowering *l, struct stage_build *b, struct slot s);
struct slot lower_slot_like(const struct lowering *l, const struct stage_build *b, int32_t tensor,
                            enum slot_class class);
int64_t
lower_wide(const struct lowering *l); /* bytes of a gradient or state for one of a parameter */
bool lower_runs_flat(const struct lowering *l);
void lower_slots(struct lowering *l, struct stage_build *b);
void lower_scratch(struct lowering *l, struct stage_build *b); /* once the procedures stand */
/* core/lower/uses.c: whether two forward operators belong to one block of the model; fills uses_* and rerun; whether the backward
 * finds what F made of the tensor, or has it made again. */
bool lower_same_block(const struct lowering *l, int32_t op, int32_t other);
void lower_find_uses(struct lowering *l, const struct stage_build *b);
bool lower_kept(const struct lowering *l, const struct stage_build *b, int32_t tensor);
int32_t lower_group_of_unit(const struct lowering *l, const struct stage_build *b,
                            int32_t unit); /* -1 */

/* core/lower/procedures.c */
void lower_procedures(struct lowering *l, struct stage_build *b);

#endif
