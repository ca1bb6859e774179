/* core/lower/groups.h - the program's groups while they are made, and which of them a stage is in. */
#ifndef CORE_LOWER_GROUPS_H
#define CORE_LOWER_GROUPS_H

#include "core/lower/lowering.h"

struct group_plan {                /* beside the program's group of the same index */
    int32_t first_use, last_use; /* inclusive; of a tied exchange: the parameter's two */
    bool bucketed;                 /* launched as soon as complete, else after the last operator */
    bool tied;                     /* exchange between the owners of both uses inside one replica */
    bool overflow; /* agreement on whether all gradients are finite (core/lower/scale.c) */
    const struct cells *cells; /* core/lower/cells.h; NULL: all of all parameter uses from first to last */
    /* Divided (ZeRO): the plan's level, else 0; of a gather the level of what it gathers. */
    int32_t zero;
    struct zero_group *divided; /* core/lower/zero.h; NULL: zero 0 */
};

struct lower_groups {
    struct group_plan *plans; /* (p->n_collectives); of a plan zero.c fills `divided` */
    bool *mixed;              /* (n_param_uses): replicas keep its parameter in different shards */
    size_t group_capacity, plan_capacity;
};

struct stage_groups {
    /* ascending; tied ones last, then gathers; and which member of each it is */
    int32_t n, *group, *member;
};

static inline const struct group_plan *lower_group_plan(const struct lowering *l, int32_t group)
{
    return &l->groups->plans[group];
}

MUST_CHECK enum status lower_groups(struct lowering *l, struct error *err);
/* Is this exchange between two chunks of one device awaited in an update before that of b? */
bool lower_exchanged_before(const struct lowering *l, const struct stage_build *b, int32_t group);
/* The group that sums the parameter use on this stage, -1. */
int32_t lower_group_of_param_use(const struct lowering *l, const struct stage_build *b, int32_t param_use);

/* A new group of n members, whose links are joined once they stand. */
struct collective *lower_group_new(struct lowering *l, const char *name, enum collective_algorithm algorithm,
                              int32_t n, struct group_plan plan);
/* Its links, once its members stand. ERR_INPUT. */
MUST_CHECK enum status lower_group_join(struct lowering *l, int32_t group, struct error *err);

struct stage_scratch;
void lower_group_segments(const struct stage_scratch *h); /* once the stage's slots stand */

#endif
