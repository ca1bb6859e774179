/* core/lower/stage_key.h - all that a stage's slots, rings and procedures depend on, as a list of numbers.
 *
 * Channels, gradient groups and collectives are numbered within the stage, so that stages which differ in their devices only, and the
 * same stage in another plan of the job, have equal keys. The sizes of buffer rings and the regions of unequal shards are not covered:
 * they are made for every stage.
 */
#ifndef CORE_LOWER_STAGE_KEY_H
#define CORE_LOWER_STAGE_KEY_H

#include "core/lower/lowering.h"

struct stage_key {
    struct arena *arena; /* of the list */
    int64_t *list;       /* (n) */
    size_t n, capacity;
    uint64_t hash;
    bool unique; /* an exchange within a device concerns two of its chunks: equal to no other stage */
};

/* Requires groups and launches. Reuses the list of the key before it. O(messages + groups + parameter uses under ZeRO). */
void stage_key_set(struct stage_key *k, const struct lowering *l, const struct stage_build *b);
/* The k-th chunk of the stage's device, the stage itself first. */
const struct stage_build *stage_key_chunk(const struct lowering *l, const struct stage_build *b,
                                          int32_t k);

#endif
