/* core/lower/zero.h - what is divided over replicas (plan.h's zero): groups and their flat parameters (FSDP). */
#ifndef CORE_LOWER_ZERO_H
#define CORE_LOWER_ZERO_H

#include "core/lower/groups.h"
#include "core/lower/orders.h"

/* A flat parameter (FSDP): parameters of a group one after the other, so that n members divide them evenly: those that decay and the
 * others apart, because updates tell them apart. A parameter starts at a multiple of 64 bytes; the end is padded. */
enum { FLAT_PARAMS_MAX = 2 };
struct flat_param {
    bool decay;
    int64_t elements; /* a multiple of n members · 64 bytes */
};

/* Where a parameter lies in the flat parameters of its owner group. */
struct flat_param_place {
    int32_t group, flat_param; /* group -1: not divided */
    int64_t first;             /* element */
};

struct zero_group { /* of a group_plan */
    int32_t n_flat_params;
    struct flat_param flat_param[FLAT_PARAMS_MAX];
    struct flat_param_place *places; /* (parameter uses) where each one's parameter lies */
    /* group whose flat parameters hold the parameters: itself, but for a tied one's second use */
    int32_t owner_group;
    int32_t gathered; /* of a gather: that group; else -1 */
    /* of an owner group: the gathers that F and the backward launch (zero 3), or [phase_index(PHASE_W)] the update (1, 2); -1 */
    int32_t gather[PHASE_INDICES];
};

/* Whether stages agree; ERR_INPUT. Once orders stand. */
MUST_CHECK enum status lower_zero_check(const struct lowering *l, struct error *err);
int32_t lower_zero_of(const struct lowering *l, int32_t param_use); /* level; 0: an ordinary sum */
/* Of a parameter of the stage's view; group -1: not divided. */
struct flat_param_place lower_zero_place(const struct lowering *l, const struct stage_build *b,
                                         int32_t tensor);
/* A use of a parameter that is used twice: its group holds nothing else. */
bool lower_zero_alone(const struct lowering *l, int32_t param_use);
void lower_zero_flat_params(struct lowering *l, int32_t group); /* and elements, of a new group */
void lower_zero_gathers(struct lowering *l); /* once the groups that scatter stand */
static inline struct zero_group *lower_zero_group(const struct lowering *l, int32_t group)
{
    return l->groups->plans[group].divided;
}

#endif
