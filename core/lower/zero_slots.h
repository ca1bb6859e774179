/* core/lower/zero_slots.h - the divided groups (ZeRO) of the stage at hand: slots of their sections. */
#ifndef CORE_LOWER_ZERO_SLOTS_H
#define CORE_LOWER_ZERO_SLOTS_H

#include "core/lower/zero.h"

struct stage_scratch;

/* A divided group on one stage: slots by flat parameter; -1 where there is none. */
struct flat_shard {
    int32_t group, member;
    int32_t parameter[FLAT_PARAMS_MAX];          /* whole, zero 1 and 2 */
    int32_t gather[PHASE_INDICES][FLAT_PARAMS_MAX]; /* whole, in the scratch of one procedure, zero 3 */
    int32_t gradient[FLAT_PARAMS_MAX];           /* whole; from zero 2 on in scratch */
    int32_t own_parameter[FLAT_PARAMS_MAX], own_gradient[FLAT_PARAMS_MAX], state[FLAT_PARAMS_MAX][2],
        master[FLAT_PARAMS_MAX];
};

/* A slot inside a scratch slot, by which it lives and moves. */
struct inner {
    int32_t slot, whole;
    int64_t offset_bytes;
};

struct stage_flats {
    int32_t n, n_inner;
    struct flat_shard *list; /* (n) ascending by group */
    struct inner *inner;
    size_t inner_capacity;
};

/* Regions and slots behind those of what is not divided. */
void lower_zero_slots(struct stage_scratch *h);
/* The flat shard of a group, or of what it gathers; NULL: not divided. */
const struct flat_shard *lower_zero_flat_shard(const struct stage_scratch *h, int32_t group);
/* Whole slots of the group that a procedure keeps in scratch from its launch until it is awaited. Returns how many. */
int32_t lower_zero_scratch(const struct stage_scratch *h, int32_t group, int32_t out[FLAT_PARAMS_MAX]);
void lower_zero_segments(const struct stage_scratch *h, int32_t group, struct collective_member *m);
/* Puts launches of gathers and waits for them among a procedure's instructions (zero 3). */
void lower_zero_insert(const struct stage_scratch *h, enum phase phase, struct instr **instrs,
                       size_t *n);

#endif
