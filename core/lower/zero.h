/* core/lower/zero.h - ZeRO (plan.h's zero): owner groups, their flat parameters (FSDP) and their collectives. */
#ifndef CORE_LOWER_ZERO_H
#define CORE_LOWER_ZERO_H

#include "core/lower/groups.h"
#include "core/lower/orders.h"

/* A flat parameter (FSDP): parameters of a group laid side by side, so that n members divide them evenly; one for parameters with
 * weight decay and one for the others, because their updates differ. A parameter starts at a multiple of 64 bytes; the end is padded. */
enum { FLAT_PARAMS_MAX = 2 };
struct flat_param {
    bool decay;
    int64_t elements; /* a multiple of n members · 64 bytes */
};

/* Position of a parameter in the flat parameters of its owner group. */
struct flat_param_place {
    int32_t group, flat_param; /* group -1: not sharded by ZeRO */
    int64_t first;             /* element */
};

struct zero_group { /* of a group_plan */
    int32_t n_flat_params;
    struct flat_param flat_param[FLAT_PARAMS_MAX];
    struct flat_param_place *places; /* (parameter uses) position of each one's parameter */
    /* group whose flat parameters hold the parameters: itself, except for the second use of a tied parameter */
    int32_t owner_group;
    int32_t gathered; /* of an all-gather: the group it gathers; else -1 */
    /* of an owner group: the all-gathers that F and the backward launch (zero 3), or at [phase_index(PHASE_W)] the update's (1, 2); -1 */
    int32_t gather[PHASE_INDICES];
};

/* Checks that the replicas' stages agree; ERR_INPUT. Requires orders. */
MUST_CHECK enum status lower_zero_check(const struct lowering *l, struct error *err);
int32_t lower_zero_of(const struct lowering *l, int32_t param_use); /* level; 0: an ordinary all-reduce */
/* Position of a parameter of the stage's view; group -1: not sharded by ZeRO. */
struct flat_param_place lower_zero_place(const struct lowering *l, const struct stage_build *b,
                                         int32_t tensor);
/* Whether the use is of a tied parameter, which has a group of its own. */
bool lower_zero_alone(const struct lowering *l, int32_t param_use);
void lower_zero_flat_params(struct lowering *l, int32_t group); /* and elements, of a new group */
void lower_zero_gathers(struct lowering *l); /* requires the reduce-scatter groups */
static inline struct zero_group *lower_zero_group(const struct lowering *l, int32_t group)
{
    return l->groups->plans[group].divided;
}

#endif
