/* core/lower/groups.h - the program's gradient groups under construction, and the groups of each stage. */
#ifndef CORE_LOWER_GROUPS_H
#define CORE_LOWER_GROUPS_H

#include "core/lower/lowering.h"

enum group_factor { FACTOR_NONE, FACTOR_LEFT, FACTOR_RIGHT }; /* core/lower/factors.h */

struct group_plan {                /* for the program's collective of the same index */
    int32_t n_uses;              /* parameter uses that it reduces; 2 of a tied exchange, 0 of an all-gather */
    const int32_t *uses;         /* (n_uses) ascending, not always neighbours */
    bool bucketed;                 /* launched when complete, else after the last operator */
    bool tied;                     /* exchange between the owners of both uses inside one replica */
    bool agrees; /* all-reduce of the overflow flag and of the sum of squares (core/lower/scale.c) … */
    bool back;   /* … that carries the sum of all replicas back to the device's stages or the replica's devices */
    bool between;  /* all-reduce of shards between the parts of a ZeRO group (core/lower/hybrid.h) */
    enum group_factor factor; /* its members add this factor of each gradient */
    struct encoding code; /* its members gather codes; kind ENCODING_NONE: they add values */
    bool outer;    /* sum of the parameters' changes over the islands of local SGD (core/lower/outer.c) … */
    int32_t fragment; /* … of this fragment */
    const struct cells *cells; /* core/lower/cells.h; NULL: full gradients of all parameter uses */
    /* the plan's ZeRO level, else 0; of an all-gather the level of what it gathers */
    int32_t zero;
    struct zero_group *divided; /* core/lower/zero.h; NULL: zero 0 */
    /* of a tensor: the same without its team, and whether it shares its operands' slots with others */
    const struct collective *like;
    bool shares_operands;
};

/* Whether the update launches it, because what it sums needs a sum before: a second factor, or codes of sums inside nodes. */
static inline bool lower_group_late(const struct group_plan *g)
{
    return g->factor == FACTOR_RIGHT || (g->between && g->code.kind);
}

struct lower_groups {
    struct group_plan *plans; /* (p->n_collectives); zero.c fills `divided` */
    bool *mixed;              /* (n_param_uses): replicas keep its parameter in different shards */
    int8_t *zero;             /* (n_param_uses) lower_zero_of, -1: not asked for yet */
    struct known_cells *cells; /* core/lower/cells.c: the latest refinements */
    struct known_pairs *pairs; /* core/lower/group_new.c */
    bool in_rounds;            /* some all-reduce has an algorithm that a stage states */
    size_t group_capacity, plan_capacity;
    struct use_group *of_use; /* (n_param_uses) on the stage whose groups are `of_stage` */
    const struct stage_groups *of_stage;
    int32_t *known; /* core/lower/tensor_collectives.c's table of the current stage */
    size_t known_capacity;
};

struct use_group { /* the group that reduces a parameter use, -1, and the index of the use there */
    int32_t group, index;
};

struct stage_groups {
    /* ascending, tied ones last, then all-gathers; and the stage's member index in each */
    int32_t n, *group, *member;
};

static inline const struct group_plan *lower_group_plan(const struct lowering *l, int32_t group)
{
    return &l->groups->plans[group];
}

MUST_CHECK enum status lower_groups(struct lowering *l, struct error *err);
/* Whether an update waits for this exchange between two chunks of one device before b's update. */
bool lower_exchanged_before(const struct lowering *l, const struct stage_build *b, int32_t group);
/* Of the parameter use on this stage. The first question about a stage takes O(parameter uses), the next ones O(1), until one about
 * another stage. */
struct use_group lower_group_of_param_use(const struct lowering *l, const struct stage_build *b, int32_t param_use);

/* Replicas of an island that have partial values of a shard of the use, device by device: adds them to g; g NULL: only counts. island
 * -1: all replicas. Returns at + their number. */
int32_t lower_group_members(const struct lowering *l, int32_t island, int32_t param_use, int32_t key,
                            struct collective *g, int32_t at);
/* A new group of n members; lower_group_join adds its links. */
struct collective *lower_group_new(struct lowering *l, const char *name, enum collective_algorithm algorithm,
                              int32_t n, struct group_plan plan);
/* A new collective of the program, to be filled in. */
struct collective *lower_group_add(struct lowering *l, struct group_plan plan);
/* Room for more of them at once, because an array that doubles leaves as much memory behind as it takes. */
void lower_group_reserve(struct lowering *l, int32_t more);
/* Once its members and elements are set: gives an all-reduce by ring the algorithm that the plan's stages state (all_reduce), if its
 * members fit. ERR_INPUT: the stages differ, or it has more members than COLLECTIVE_ROUNDS_MEMBERS. */
MUST_CHECK enum status lower_group_choose(struct lowering *l, int32_t group, struct error *err);
/* ERR_INPUT: a stage states an algorithm, and no all-reduce of the plan has one. */
MUST_CHECK enum status lower_groups_check_rounds(const struct lowering *l, struct error *err);
/* Sets its links once its members are set. ERR_INPUT. */
MUST_CHECK enum status lower_group_join(struct lowering *l, int32_t group, struct error *err);

struct stage_scratch;
void lower_group_segments(const struct stage_scratch *h); /* requires the stage's slots */

#endif
