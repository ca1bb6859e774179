/* core/lower/zero_slots.h - slots of the current stage's flat parameters (ZeRO). */
#ifndef CORE_LOWER_ZERO_SLOTS_H
#define CORE_LOWER_ZERO_SLOTS_H

#include "core/lower/zero.h"

struct stage_scratch;

/* A ZeRO group on one stage: slots by flat parameter; -1: none. */
struct flat_shard {
    int32_t group, member, own; /* own: 1 + index of the group among the stage's */
    int32_t parameter[FLAT_PARAMS_MAX];          /* full, zero 1 and 2 */
    int32_t gather[PHASE_INDICES][FLAT_PARAMS_MAX]; /* full, in the scratch of one procedure, zero 3 */
    int32_t gradient[FLAT_PARAMS_MAX];           /* full; from zero 2 on in scratch */
    int32_t own_parameter[FLAT_PARAMS_MAX], own_gradient[FLAT_PARAMS_MAX], state[FLAT_PARAMS_MAX][2],
        master[FLAT_PARAMS_MAX];
    int32_t outer[FLAT_PARAMS_MAX][PROGRAM_OUTER_SLOTS]; /* of local SGD: anchor, velocity, sum; -1 */
};

/* A slot inside a scratch slot, with the latter's lifetime and position. */
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

/* The stage's chunk of each of its groups: program_stage.own_chunk. */
void lower_zero_chunks(const struct lowering *l, const struct stage_build *b);
/* Regions and slots, after those of parameters outside ZeRO. */
void lower_zero_slots(struct stage_scratch *h);
/* The flat shard of a group, or of the group it gathers; NULL: none. */
const struct flat_shard *lower_zero_flat_shard(const struct stage_scratch *h, int32_t group);
/* Full slots of the group that a procedure keeps in scratch from its launch to its wait. Returns their number. */
int32_t lower_zero_scratch(const struct stage_scratch *h, int32_t group, int32_t out[FLAT_PARAMS_MAX]);
void lower_zero_segments(const struct stage_scratch *h, int32_t group, struct collective_member *m);
/* Inserts launches of all-gathers and their waits into a procedure's instructions (zero 3). */
void lower_zero_insert(const struct stage_scratch *h, enum phase phase, struct instr **instrs,
                       size_t *n);

#endif
