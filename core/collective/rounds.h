/* core/collective/rounds.h - an algorithm of collectives inside calls, defined by rounds: the second half of its row in
 * core/collective/algorithm.h.
 *
 * A collective takes the same number of rounds on all members; a member starts a round when its previous round has ended. In a
 * round a member sends at most one message and receives at most one. Forwarded data lies in *chunks*: the shards of all members
 * side by side, each at chunk_first; of an all-reduce in the operand itself. A message is one contiguous run of chunks, so
 * interpreters need no other property of an algorithm. A direct algorithm sends each member its shard straight from the operand.
 * The functions are called only for supported kinds, n_members > 1 and members that fit.
 */
#ifndef CORE_COLLECTIVE_ROUNDS_H
#define CORE_COLLECTIVE_ROUNDS_H

#include "core/collective/collective.h"

struct collective_rounds {
    bool direct;
    bool padded; /* all chunks are as long as the longest (`most`): equal counts, as libraries require */
    /* Members must stand in tiers: equally many, at least two, on each of several nodes (collective.tier). */
    bool tiers;
    bool (*fits)(int32_t n_members); /* NULL: any number of members */
    const char *members;             /* the numbers that fit, for messages: "a power of two of members" */
    int32_t (*count)(const struct collective *c);
    struct collective_round (*round)(const struct collective *c, int32_t member, int32_t round);
    bool (*sends)(const struct collective *c, int32_t from,
                  int32_t to); /* in any round, whatever the sizes */
    int64_t (*chunk_first)(const struct collective *c, int32_t member); /* NULL: direct, or all_reduce only */
    int64_t (*most)(const struct collective *c); /* elements of the largest message */
};

/* The rounds of an algorithm; its round is NULL if it has none. */
const struct collective_rounds *collective_rounds_of(enum collective_algorithm w);
/* NULL if n members, in tiers or not, fit the algorithm; else the requirement, for messages ("members on several nodes …"). */
const char *collective_misfit(enum collective_algorithm w, int32_t n, bool tiers);

#define X(id, name, kinds, native, rounds)                                                         \
    extern const struct collective_rounds collective_rounds_##rounds;
COLLECTIVE_ALGORITHMS(X)
#undef X

#endif
