/* core/collective/rounds.h - an algorithm of collectives inside calls, as rounds: the second half of its row in
 * core/collective/algorithm.h.
 *
 * A collective takes the same number of rounds on all members; a member starts a round when its round before has ended. In a round a
 * member sends at most one message and receives at most one. What is passed on lies in *chunks*: the shards of all members side
 * by side, each at chunk_first; of an all-reduce in the operand itself. A message is one run of them, so that an interpreter needs to
 * know nothing else of an algorithm. A direct algorithm sends each member what is that member's, out of the operand.
 * The functions are asked only for kinds that the row has, n_members > 1 and members that fit.
 */
#ifndef CORE_COLLECTIVE_ROUNDS_H
#define CORE_COLLECTIVE_ROUNDS_H

#include "core/collective/collective.h"

struct collective_rounds {
    bool direct;
    bool padded; /* chunks are all as long as the longest (`most`), the library's equal counts */
    /* Members must stand in tiers, equally many on each of several nodes, at least two (collective.tier). */
    bool tiers;
    bool (*fits)(int32_t n_members); /* NULL: any number of members */
    const char *members;             /* those that fit, in words: "a power of two of members" */
    int32_t (*count)(const struct collective *c);
    struct collective_round (*round)(const struct collective *c, int32_t member, int32_t round);
    bool (*sends)(const struct collective *c, int32_t from,
                  int32_t to); /* ever, whatever the sizes */
    int64_t (*chunk_first)(const struct collective *c, int32_t member); /* NULL: direct */
    int64_t (*most)(const struct collective *c); /* elements of the largest message */
};

/* round is NULL where the algorithm is not one of rounds. */
const struct collective_rounds *collective_rounds_of(enum collective_algorithm w);
/* Whether n members, in tiers or not, may go so; NULL, or what they would have to be, in words ("members on several nodes …"). */
const char *collective_misfit(enum collective_algorithm w, int32_t n, bool tiers);

#define X(id, name, kinds, native, rounds)                                                         \
    extern const struct collective_rounds collective_rounds_##rounds;
COLLECTIVE_ALGORITHMS(X)
#undef X

#endif
