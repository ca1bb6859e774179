/* core/lower/channels.h - messages of a stage: a tensor, or the sequences of it that one device of the stage before or behind
 * has or wants. The channels between stages, and their slots once both ends' stand. */
#ifndef CORE_LOWER_CHANNELS_H
#define CORE_LOWER_CHANNELS_H

#include "core/lower/stages.h"

struct crossing {
    int32_t tensor, channel;
    int64_t first, n; /* sequences of the stage's own that it has */
    int32_t link;     /* that the compute stream waits for; -1 */
    /* slots.c: that holds it: the tensor's own, a piece's, or a copy's of what is handed on as it came */
    int32_t slot;
    bool whole; /* it is all that the stage has of the tensor */
};
enum edge { ACTIVATIONS_IN, ACTIVATIONS_OUT, GRADIENTS_IN, GRADIENTS_OUT, EDGE_COUNT };
struct crossings { /* by neighbour, and then as the tensors are made */
    int32_t n;
    struct crossing *list; /* (n) */
};

/* ERR_INPUT: no link, or a sharded stage does not make what crosses. */
MUST_CHECK enum status lower_channels(struct lowering *l, struct error *err);
/* Tells the program's channels the slots of the stage's ends. */
void lower_join_channels(struct lowering *l, const struct stage_build *b);

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

#endif
