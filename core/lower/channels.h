/* core/lower/channels.h - messages of a stage: a tensor, or the interval of its sequences that one device of a neighbouring stage
 * has or needs; the channels between stages, and their slots once both ends have them. */
#ifndef CORE_LOWER_CHANNELS_H
#define CORE_LOWER_CHANNELS_H

#include "core/lower/stages.h"

struct crossing {
    int32_t tensor, channel;
    int64_t first, n; /* interval of the stage's own sequences */
    int32_t link;     /* blocking link, for which the compute stream waits; -1 */
    /* set by slots.c: slot of the tensor, of a piece, or of a copy that is forwarded unchanged */
    int32_t slot;
    bool whole; /* the message carries all that the stage has of the tensor, as it is */
    /* else ENCODING_NONE: it carries a code, in `slot`, of the tensor or, if cut, of the piece in the scratch slot `values` */
    struct encoding code;
    bool cut;
    int32_t values;
    /* parts > 1: the message carries part `part` of so many, by the last dimension, and the receiving devices exchange them */
    int32_t part, parts;
    int32_t
        rounds; /* messages that a GPU of the smaller end has one after the other: how long both ends are busy */
};
enum edge { ACTIVATIONS_IN, ACTIVATIONS_OUT, GRADIENTS_IN, GRADIENTS_OUT, EDGE_COUNT };
struct crossings { /* by neighbour, then in order of production */
    int32_t n;
    struct crossing *list; /* (n) */
};

/* ERR_INPUT: no link, or a sharded stage does not produce a crossing tensor. */
MUST_CHECK enum status lower_channels(struct lowering *l, struct error *err);
/* Sets the slots of the stage's ends in the program's channels. */
void lower_join_channels(struct lowering *l, const struct stage_build *b);

/* The part's first element of the last dimension of `whole` elements, and their number. */
static inline int64_t lower_part(const struct crossing *x, int64_t whole, int64_t *n)
{
    int64_t first = whole * x->part / x->parts;
    *n = whole * (x->part + 1) / x->parts - first;
    return first;
}

/* The message with the complete tensor; NULL if it crosses in pieces or not at all. */
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
